"""An LSTM that XLA compiles as one loop, and a check for recurrent layers that XLA would unroll.

XLA unrolls `nn.LSTM`: 100 steps take minutes and gigabytes to compile. Parameters, their names and the results of
`LSTM` are those of `nn.LSTM`, so weights can be exchanged. Off the XLA device it is `nn.LSTM`, without the runtime.
Must not import torch_xla: the backend is imported when a tensor is on `xla`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import dropout, linear

State = tuple[torch.Tensor, torch.Tensor]
Tensors = tuple[torch.Tensor, ...]


class LSTM(nn.LSTM):
    """`nn.LSTM`, without `proj_size`, for sequences of any length.

    Sequences are padded, not packed: on XLA every new length would compile another program. Under autocast the products
    use the low precision, sums and states are float32, and the output is float32.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As `nn.LSTM`. Raises `ValueError` if `proj_size` is set."""
        super().__init__(*args, **kwargs)
        if self.proj_size:
            raise ValueError("the scan LSTM has no projection; leave proj_size at 0 and add a linear layer after it")

    def forward(self, sequence: Any, state: State | None = None) -> tuple[Any, State]:
        """Output [time, n, directions * hidden] and the last (h, c), each [layers * directions, n, hidden].

        As in `nn.LSTM`, `batch_first` swaps the first two dimensions of `sequence` and output, and an unbatched
        sequence gives an unbatched output. Raises `TypeError` for a packed sequence on XLA.
        """
        if isinstance(sequence, nn.utils.rnn.PackedSequence):
            if sequence.data.device.type == "xla":
                raise TypeError("the scan LSTM takes no packed sequence on XLA; pad it and mask the output")
        elif sequence.device.type == "xla":
            return self._on_xla(sequence, state)
        plain: Any = super()
        output, last = plain.forward(sequence, state)
        return output, last

    def _on_xla(self, sequence: torch.Tensor, state: State | None) -> tuple[torch.Tensor, State]:
        single = sequence.dim() == 2
        if single:
            sequence = sequence.unsqueeze(0)
            state = None if state is None else (state[0].unsqueeze(1), state[1].unsqueeze(1))
        elif not self.batch_first:
            sequence = sequence.transpose(0, 1)
        output, (h, c) = self._layers(sequence, state)
        if single:
            return output.squeeze(0), (h.squeeze(1), c.squeeze(1))
        return output if self.batch_first else output.transpose(0, 1), (h, c)

    def _layers(self, sequence: torch.Tensor, state: State | None) -> tuple[torch.Tensor, State]:
        """All layers over a sequence [n, time, features]."""
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                sequence = dropout(sequence, self.dropout, self.training)
            outputs = []
            for suffix in suffixes:
                start = self._zeros(sequence) if state is None else (state[0][len(last)], state[1][len(last)])
                output, h, c = self._direction(sequence, start, f"_l{layer}{suffix}")
                outputs.append(output)
                last.append((h, c))
            sequence = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
        return sequence, (torch.stack([h for h, _ in last]), torch.stack([c for _, c in last]))

    def _zeros(self, sequence: torch.Tensor) -> State:
        weight: torch.Tensor = self.get_parameter("weight_hh_l0")
        zeros = sequence.new_zeros(sequence.shape[0], self.hidden_size, dtype=weight.dtype)
        return zeros, zeros

    def _direction(self, sequence: torch.Tensor, start: State, name: str) -> tuple[torch.Tensor, ...]:
        """One direction of a layer: the states of every step, and the last (h, c)."""
        weight = getattr(self, f"weight_hh{name}")
        bias = getattr(self, f"bias_ih{name}") + getattr(self, f"bias_hh{name}") if self.bias else None
        # The inputs of all steps in one large product; over [n, time], because if n is sharded over cores, [time, n]
        # cannot be viewed as one dimension without gathering everything on each core.
        inputs = linear(sequence, getattr(self, f"weight_ih{name}"), bias).to(weight.dtype)
        if torch.is_autocast_enabled("xla"):
            weight = weight.to(torch.get_autocast_dtype("xla"))
        h, c = start
        recurrence: Any = _Recurrence.apply
        output, last_h, last_c = recurrence(
            inputs.transpose(0, 1), h.to(inputs.dtype), c.to(inputs.dtype), weight, name.endswith("_reverse")
        )
        return output.transpose(0, 1), last_h, last_c


class _Recurrence(torch.autograd.Function):
    """The loop over time and its backward loop. The gradient of the weight is one product over all steps."""

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weight: torch.Tensor, back: bool
    ) -> Any:
        from engine.xla import backend

        (last_h, last_c, _), (hs, cs, gates) = backend.scan(_step, (h, c, weight), (inputs,), reverse=back)
        ctx.save_for_backward(h, c, weight, hs, cs, gates)
        ctx.back = back
        return hs, last_h, last_c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_hs: torch.Tensor, d_h: torch.Tensor, d_c: torch.Tensor) -> Any:
        from engine.xla import backend

        h, c, weight, hs, cs, gates = ctx.saved_tensors
        earlier_h, earlier_c = _earlier(hs, h, ctx.back), _earlier(cs, c, ctx.back)
        rows = (d_hs, cs, earlier_c, gates)
        (d_h, d_c, _), (d_gates,) = backend.scan(_step_back, (d_h, d_c, weight), rows, reverse=not ctx.back)
        d_weight = _rows(d_gates, weight.dtype).t() @ _rows(earlier_h, weight.dtype)
        return d_gates, d_h, d_c, d_weight, None


def _earlier(states: torch.Tensor, start: torch.Tensor, back: bool) -> torch.Tensor:
    """The initial state of each step."""
    first = start.unsqueeze(0)
    return torch.cat((states[1:], first)) if back else torch.cat((first, states[:-1]))


def _rows(states: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[time, n, features] as [n * time, features]."""
    return states.to(dtype).transpose(0, 1).flatten(0, 1)


def _step(carry: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
    """One time step; also returns the gates for the backward pass."""
    h, c, weight = carry
    i, f, g, o = (row[0] + (h.to(weight.dtype) @ weight.t()).to(h.dtype)).chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    h = o * c.tanh()
    return (h, c, weight), (h, c, torch.cat((i, f, g, o), dim=1))


def _step_back(carry: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
    """Gradients of one step's gates before their activation, and of its initial state."""
    d_h, d_c, weight = carry
    d_out, c, earlier_c, gates = row
    i, f, g, o = gates.chunk(4, dim=1)
    d_h = d_h + d_out
    squashed = c.tanh()
    d_c = d_c + d_h * o * (1 - squashed * squashed)
    before = (
        d_c * g * i * (1 - i),
        d_c * earlier_c * f * (1 - f),
        d_c * i * (1 - g * g),
        d_h * squashed * o * (1 - o),
    )
    d_gates = torch.cat(before, dim=1)
    d_h = (d_gates.to(weight.dtype) @ weight).to(d_gates.dtype)
    return (d_h, d_c * f, weight), (d_gates,)


REMEDY = "engine.models.scan_lstm.LSTM"


def unrolled_modules(model: nn.Module) -> list[str]:
    """A sentence for each recurrent module that XLA would unroll, one copy per step: minutes to compile for 100 steps.

    A cell that the network calls in its own loop is not detected.
    """
    sentences = []
    for name, module in model.named_modules():
        kind = _unrolled(module)
        if kind is not None:
            place = f'"{name}"' if name else "the network"
            sentences.append(
                f"{place} is an {kind}, which XLA unrolls: 100 steps take more than a minute and gigabytes to compile; "
                f"{_remedy(module)}"
            )
    return sentences


def _unrolled(module: nn.Module) -> str | None:
    """The name of a module's kind, if XLA unrolls it."""
    if isinstance(module, nn.LSTM):
        return None if isinstance(module, LSTM) else "nn.LSTM"
    if isinstance(module, nn.RNN):
        return "nn.RNN"
    # The runtime replaces nn.GRU with a scan of its own, and keeps the original for bidirectional layers.
    gru: Any = nn.GRU
    if isinstance(module, getattr(gru, "_orig", gru)) and module.bidirectional:
        return "nn.GRU (bidirectional)"
    return None


def _remedy(module: nn.Module) -> str:
    if isinstance(module, nn.LSTM):
        return f"use {REMEDY}, whose weights and results are the same"
    return f"use {REMEDY} in its place"

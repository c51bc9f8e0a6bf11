"""`TrainStep`: network and optimizer on the device; traces training steps and evaluations, saves and restores state.

Nothing here runs a program or reads the device; the caller syncs once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from engine.checkpoint.resume import Position
from engine.errors import Refused, TaskError
from engine.loop import network
from engine.loop.optimizer import learning_rate, optimizer, update
from engine.parallel.base import Strategy
from engine.task import Dataset, Plan
from engine.xla import backend
from tputui.reporting import TRACE_PARTS, SectionTimer

Outcomes = dict[str, torch.Tensor]
"""Per-example values by name, [rows of the batch, ...] each."""
Reduce = Callable[[Sequence[nn.Parameter]], None]
"""Replaces each gradient by its mean over all processes."""
_RANK_STRIDE = 0x9E37_79B9_7F4A_7C15
_SEED_BITS = (1 << 63) - 1
_CLIP_EPS = 1e-6


class Evaluation(NamedTuple):
    """The traced result of an evaluation step, [rows of the batch, ...] each."""

    outcomes: Outcomes
    predictions: Outcomes
    judged: Outcomes
    """What the task's scores are computed from."""


class TrainStep:
    def __init__(self, plan: Plan, strategy: Strategy, examples: Dataset) -> None:
        """Makes the network with the weights of the seed on the device; `examples` give lazy layers their shapes.

        Raises `Refused`.
        """
        self.strategy = strategy
        self.trace_timer = SectionTimer(names=TRACE_PARTS)
        """Splits the host time of tracing training steps."""
        self._plan = plan
        self.model = network.make(plan, strategy, examples)
        self._trained = list(self.model.parameters())
        self._optimizer = optimizer(plan.config, self._trained)
        self._bf16 = plan.config.device.precision == "bf16"
        self._norm: torch.Tensor | None = None
        self._sums: list[torch.Tensor] = []
        """Gradients summed over the batches since the last update, one for each parameter that has any; not meaningful
        right after an update."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, whose state is on the device."""
        return self._optimizer

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)

    @property
    def buffer_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.model.named_buffers())

    def take_gradient_norm(self) -> torch.Tensor | None:
        """Norm over all gradients of the newest traced step, [] on the device; None if norms are not kept. It is
        handed over rather than kept, since a tensor that is alive at the sync is an output of the program."""
        norm, self._norm = self._norm, None
        return norm

    def trace_s(self) -> dict[str, float]:
        """Seconds by part of the trace since `trace_timer.restart`, without compiling."""
        return {name: s for name, s in self.trace_timer.totals().items() if name not in ("compile", "other")}

    def step(self, tensors: dict[str, torch.Tensor], at: Position, reduce: Reduce) -> Outcomes:
        """Traces the training step after the position `at` for a batch, [rows, ...] each; returns its outcomes, [rows]
        each. `reduce` is called with the parameters before each update. Raises `TaskError`."""
        optim, updates = self._plan.config.optim, self._plan.updates(at.batch)
        self._seed(at.step + 1)
        with self._precision():
            with self.trace_timer.section("forward"):
                tensors = self._plan.task.augment(tensors)
                predictions = self._plan.task.predict(self.model, tensors)
            with self.trace_timer.section("loss"):
                outcomes = self._checked(self._plan.task.outcomes(predictions, tensors))
        with self.trace_timer.section("backward"):
            loss = outcomes["loss"].mean()
            (loss / optim.accumulate if optim.accumulate > 1 else loss).backward()  # type: ignore[no-untyped-call]
        if optim.accumulate > 1:
            self._add_sums(is_first=at.batch % optim.accumulate == 0)
        if updates:
            reduce(self._trained)
        with self.trace_timer.section("optimizer"):
            norm = _norm(self._trained) if self._plan.keeps_norms or (updates and optim.clip_norm) else None
            self._norm = norm if self._plan.keeps_norms else None
            if updates and optim.clip_norm is not None and norm is not None:
                _clip(self._trained, norm, optim.clip_norm)
            if updates:
                self._update(learning_rate(self._plan, at.epoch, at.batch))
            if not updates:
                self._sums = _gradients(self._trained)
            # Before the sync, so that the gradients are no outputs of the program.
            self._optimizer.zero_grad(set_to_none=True)
        return outcomes

    def _update(self, lr: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        update(self._optimizer, self._send)

    def _add_sums(self, *, is_first: bool) -> None:
        """Adds the gradients of the batches since the last update to those of this batch."""
        with_gradients = [parameter for parameter in self._trained if parameter.grad is not None]
        gradients = _gradients(with_gradients)
        with torch.no_grad():
            # Sent to the device, so that the first batch of a run or of an update is the same program as all others.
            sums = self._sums or self._send([torch.zeros(gradient.shape) for gradient in gradients])
            (kept,) = self._send([torch.tensor(0.0 if is_first else 1.0)])
            totals = torch._foreach_add(gradients, torch._foreach_mul(sums, kept))
        for parameter, total in zip(with_gradients, totals, strict=True):
            parameter.grad = total

    def _send(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return backend.put(tensors, self.strategy.device)

    def begin_evaluation(self) -> None:
        """Switches to evaluation mode, with the running statistics of the first process. Call after a sync."""
        self.model.eval()
        self.strategy.broadcast_tensors(list(self.model.buffers()))

    def evaluate(self, tensors: dict[str, torch.Tensor], step: int) -> Evaluation:
        """Traces the evaluation of a batch, [rows, ...] each, after the training step `step`. Raises `TaskError`."""
        self._seed(step)
        task = self._plan.task
        with torch.no_grad(), self._precision():
            predictions = task.predict(self.model, tensors)
            outcomes = self._checked(task.outcomes(predictions, tensors))
            judged = task.judged(predictions, tensors) if task.scores else {}
        return Evaluation(outcomes, predictions, judged)

    def state(self) -> dict[str, Any]:
        """State of network, optimizer and host random numbers, on the host. Call right after the sync of an update."""
        state: dict[str, Any] = backend.to_host(
            {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}
        )
        return {**state, "rng": torch.get_rng_state()}

    def restore(self, state: dict[str, Any], *, new_settings: bool) -> None:
        """Continues from a saved state; with `new_settings` the optimizer's settings are the configuration's, not the
        saved ones. Raises `Refused` if the state belongs to another network."""
        saved = state["optimizer"]
        if new_settings:
            saved = {**saved, "param_groups": self._optimizer.state_dict()["param_groups"]}
        try:
            self.model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(saved)
        except (RuntimeError, ValueError) as error:
            raise Refused.of("task", f"the checkpoint contains another network: {error}") from error
        torch.set_rng_state(state["rng"])

    def _seed(self, step: int) -> None:
        """Makes the random numbers of a step depend on its number only, not on saves or reports in between."""
        # Ranks draw different numbers for their rows; the first one draws what a single process would.
        offset = self.strategy.stream * _RANK_STRIDE
        backend.seed(((self._plan.config.seed << 32) + step) ^ (offset & _SEED_BITS), self.strategy.device)

    def _precision(self) -> torch.autocast:
        return torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16)

    def _checked(self, outcomes: Outcomes) -> Outcomes:
        """Returns the outcomes, [rows] each. Raises `TaskError` for other names or shapes."""
        meters = self._plan.task.meters
        if set(outcomes) != set(meters):
            raise TaskError(f"outcomes() returned {sorted(outcomes)}, but meters is {sorted(meters)}")
        size = self._plan.config.batch_per_core * self.strategy.traced
        for name, value in outcomes.items():
            if value.shape != (size,):
                shape = list(value.shape)
                raise TaskError(f'outcomes() returned "{name}" of shape {shape}; it must be [{size}]')
        return outcomes


def _gradients(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _norm(parameters: Sequence[nn.Parameter]) -> torch.Tensor | None:
    """Norm over all gradients, []; None if there are none."""
    gradients = _gradients(parameters)
    if not gradients:
        return None
    with torch.no_grad():
        # One call: 161 calls, one for each gradient, take 10 ms to trace, and this takes 1.7 ms.
        norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        return norm


def _clip(parameters: Sequence[nn.Parameter], norm: torch.Tensor, largest: float) -> None:
    """Scales all gradients down to the norm `largest` if their `norm`, [], is larger, as `clip_grad_norm_` does."""
    with_gradients = [parameter for parameter in parameters if parameter.grad is not None]
    with torch.no_grad():
        factor = torch.clamp(largest / (norm + _CLIP_EPS), max=1.0)
        for parameter, scaled in zip(
            with_gradients, torch._foreach_mul(_gradients(with_gradients), factor), strict=True
        ):
            parameter.grad = scaled

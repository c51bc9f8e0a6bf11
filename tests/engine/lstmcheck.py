"""Compares the scan LSTM on 8 virtual cores with `nn.LSTM` on the CPU, in a process of its own; prints JSON.

Run as a module with `PJRT_DEVICE=CPU CPU_NUM_DEVICES=8`.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from engine.models.scan_lstm import LSTM
from engine.parallel.strategies import Spmd
from engine.xla import backend
from tests.engine.lstmcases import CASES, FEATURES, HIDDEN, LONG, SHORT
from tputui.observers.xla_runtime import XlaRuntime

CORES = 8


def differences(options: dict[str, Any], cores: Spmd) -> dict[str, float]:
    """The largest relative difference of outputs, last states and gradients."""
    torch.manual_seed(0)
    plain = nn.LSTM(FEATURES, HIDDEN, **options)
    scan = LSTM(FEATURES, HIDDEN, **options)
    scan.load_state_dict(plain.state_dict())
    rows = 2 * CORES
    sequence = torch.randn((rows, SHORT, FEATURES) if plain.batch_first else (SHORT, rows, FEATURES))
    start = torch.randn(plain.num_layers * (1 + plain.bidirectional), rows, HIDDEN)
    expected = _everything(plain, sequence, start)
    # The first dimension is split over the cores, so it must be the rows.
    if plain.batch_first:
        put = cores.put({"sequence": sequence, "start": start.transpose(0, 1).contiguous()})
        given = put["sequence"], put["start"].transpose(0, 1)
    else:
        given = sequence.to(cores.device), start.to(cores.device)
    scanned = _everything(scan.to(cores.device), *given)
    backend.sync()
    return {
        name: float((scanned[name].cpu() - value).abs().max() / value.abs().max()) for name, value in expected.items()
    }


def _everything(model: nn.LSTM, sequence: torch.Tensor, start: torch.Tensor) -> dict[str, torch.Tensor]:
    sequence = sequence.detach().requires_grad_()
    output, (h, c) = model(sequence, (start.tanh(), start))
    weights = torch.linspace(-1, 1, HIDDEN, device=output.device).repeat(1 + model.bidirectional)
    ((output * weights).sum() + h.square().sum() + c.sum()).backward()
    assert sequence.grad is not None
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    return {"output": output.detach(), "h": h.detach(), "c": c.detach(), "sequence": sequence.grad, **gradients}


def program(steps: int, cores: Spmd) -> dict[str, float]:
    """The cost of compiling a training step of that many time steps."""
    model = LSTM(FEATURES, HIDDEN, batch_first=True).to(cores.device)
    put = cores.put({"sequence": torch.randn(CORES, steps, FEATURES)})
    backend.sync()
    before = XlaRuntime().compile_times()
    model(put["sequence"])[0].sum().backward()
    backend.sync()
    after = XlaRuntime().compile_times()
    return {"compiles": after.total - before.total, "seconds": after.seconds - before.seconds}


def main() -> None:
    """Compares every case, and compiles a short and a long loop."""
    cores = Spmd(CORES)
    by_case: dict[str, Any] = {name: differences(options, cores) for name, options in CASES.items()}
    by_case["programs"] = [program(steps, cores) for steps in (SHORT, LONG)]
    by_case["fallbacks"] = XlaRuntime().fallbacks()
    print(json.dumps(by_case))  # noqa: T201


if __name__ == "__main__":
    main()

"""Trains BatchNorm layers on virtual cores and on plain torch: `python -m tests.engine.bncheck CORES`.

Prints, as JSON, the largest relative difference of each running statistic and of an evaluation, and how many programs
were compiled after the second step.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import torch
from torch import nn

from engine import run_plan
from engine.process import hardware
from tputui import config

STEPS = 6
TEXT = """
task = "tests.engine.deeptask:Deep"
epochs = 1
model.blocks = 1
data.batch_per_core = 2
optim = { name = "sgd", lr = 0.01, lr_scaling = "none", momentum = 0.0 }
"""


def off(computed: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference relative to the largest expected value."""
    return float((computed - expected).abs().max() / expected.abs().max())


def without_dropout(model: nn.Module) -> nn.Module:
    """The model in training mode, without dropout, which differs by device."""
    for module in model.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def main(num_cores: int) -> None:
    """Compares the engine with plain torch."""
    checked = config.parse(TEXT, "bncheck", [f"device.cores={num_cores}"])
    here = hardware.find({"PJRT_DEVICE": "CPU"})
    os.environ.update(hardware.environment(checked, here))
    planned = run_plan.make(checked, here, "bncheck")
    from engine.checkpoint.resume import Position
    from engine.loop import build
    from engine.loop.train_step import TrainStep
    from engine.xla import backend
    from tputui.observers.xla_runtime import XlaRuntime

    cores, task = build.strategy(planned), planned.task
    images = task.load(planned.data, 0).train
    inputs = [images.fetch((np.arange(checked.global_batch) + 5 * step) % 64) for step in range(STEPS)]
    train_step = TrainStep(planned, cores, images)
    without_dropout(train_step.model)
    plain = task.model(planned.model, planned.data)
    plain.load_state_dict(backend.to_host(train_step.model.state_dict()))
    compiles = []
    for step, batch in enumerate(inputs):
        at = Position(epoch=1, batch=step, step=step, evaluating=False)
        train_step.step(cores.put(batch), at, lambda parameters: None)
        backend.sync()
        compiles.append(XlaRuntime().compile_times().total)
    state = backend.to_host(train_step.model.state_dict())

    optimizer = torch.optim.SGD(without_dropout(plain).parameters(), lr=0.01)
    for batch in inputs:
        task.outcomes(task.predict(plain, batch), batch)["loss"].mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    expected = plain.state_dict()
    apart = {name: off(state[name], expected[name]) for name in expected if "running" in name}
    other = task.model(planned.model, planned.data)
    other.load_state_dict(state)
    pixels = inputs[0]["pixels"]
    with torch.no_grad():
        evaluation = off(other.eval()(pixels), plain.eval()(pixels))
    sys.stdout.write(json.dumps({"apart": apart, "evaluation": evaluation, "late": compiles[-1] - compiles[1]}) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Trains `deeptask` on virtual cores: `rematcheck CORES PRECISION REMATERIALISE STEPS BATCH BLOCKS`.

Prints losses, running statistics and how often was compiled, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np


def main() -> None:
    """Trains and prints the result."""
    num_cores, precision, rematerialise, steps, batch, blocks = sys.argv[1:7]
    from engine import run_plan
    from engine.process import hardware
    from tputui import config

    cores = num_cores if num_cores.startswith("[") else int(num_cores)
    text = (
        f'task = "tests.engine.deeptask:Deep"\nepochs = 1\n[model]\nblocks = {blocks}\n'
        f"[data]\nbatch_per_core = {batch}\n"
        f'[optim]\nname = "sgd"\nlr = 0.05\n[device]\ncores = {cores}\nprecision = "{precision}"\n'
    )
    checked = config.parse(text, "test.toml")
    here = hardware.find({"PJRT_DEVICE": "CPU"})
    os.environ.update(hardware.environment(checked, here))
    planned = run_plan.make(checked, here, "test.toml")
    from engine.checkpoint.resume import Position
    from engine.loop import build
    from engine.loop.train_step import TrainStep
    from engine.memory import remat
    from engine.xla import backend
    from tputui.observers.xla_runtime import XlaRuntime

    strategy = build.strategy(planned)
    splits = planned.task.load(planned.data, 0)
    train_step = TrainStep(planned, strategy, splits.train)
    if rematerialise == "yes":
        remat.apply(remat.blocks(planned.task, train_step.model), backend.recomputed)
    train_step.model.train()
    losses, compiles = [], []
    for number in range(1, int(steps) + 1):
        at = Position(epoch=1, batch=0, step=number - 1, evaluating=False)
        rows = (np.arange(checked.global_batch) + number) % 64
        outcomes = train_step.step(strategy.put(splits.train.fetch(rows)), at, lambda parameters: None)
        backend.sync()
        losses.append(float(outcomes["loss"].detach().cpu().mean()))
        compiles.append(XlaRuntime().compile_times().total)
    state = backend.to_host(train_step.model.state_dict())
    result = {
        "losses": losses,
        "compiles": compiles,
        "statistics": {name: value.double().sum().item() for name, value in state.items() if "running" in name},
        "counted": [int(value) for name, value in state.items() if name.endswith("num_batches_tracked")],
        "names": list(state),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

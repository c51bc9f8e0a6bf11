"""Trains a few weights under settings of `[optim]` on two virtual cores, by the engine and by plain torch on the host.

`optimcheck SETTING...`, each a comma-separated list of overrides. Prints, for each setting, how far the weights lie
apart after some epochs, and how many programs were compiled: in all, by the end of the first epoch, and around the
steps where numbers of the update meet one another (`JUMPS`), as JSON.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import sys
from typing import Any

import numpy as np

TEXT = """
task = "tests.engine.curve_task:CurveTask"
epochs = 3
[data]
global_batch = 32
batches_per_epoch = 6
[optim]
lr = 0.01
lr_scaling = "none"
[device]
cores = 2
virtual_cores = 2
"""
JUMPS = {6_205: 10, 36_700: 60}
"""Updates before a jump, and how many follow: Adam's second correction meets `beta2` at 6,212 in float32, and is 1 in
double precision from about 36,730 on."""
STEPS = 6
"""Steps of an epoch."""


def main() -> None:
    """Trains with each setting and prints the results."""
    settings = {text: [part.replace(";", ",") for part in text.split(",")] for text in sys.argv[1:]}
    from engine import run_plan
    from engine.process import hardware
    from tputui import config

    here = hardware.find({"PJRT_DEVICE": "CPU"})
    first = config.parse(TEXT, "test.toml")
    os.environ.update(hardware.environment(first, here))
    from engine.loop import build

    strategy = build.strategy(run_plan.make(first, here, "test.toml"))
    by_name = {}
    for text, overrides in settings.items():
        planned = run_plan.make(config.parse(TEXT, "test.toml", overrides), here, "test.toml")
        by_name[text] = measured(planned, strategy)
    sys.stdout.write(json.dumps(by_name) + "\n")


def measured(planned: Any, strategy: Any) -> dict[str, Any]:
    """Result of the engine for one setting."""
    from engine.checkpoint.resume import Position
    from engine.loop.train_step import TrainStep
    from engine.xla import backend
    from tputui.observers.xla_runtime import XlaRuntime

    train = planned.task.load(planned.data, 0).train
    train_step = TrainStep(planned, strategy, train)
    theirs = copy.deepcopy(train_step.model).to("cpu")
    train_step.model.train()
    before = XlaRuntime().compile_times().total

    def step(epoch: int, batch: int) -> int:
        at = Position(epoch, batch, (epoch - 1) * STEPS + batch, evaluating=False)
        train_step.step(strategy.put(train.fetch(rows_of(epoch, batch))), at, lambda parameters: None)
        train_step.take_gradient_norm()
        backend.sync()
        compiled: int = XlaRuntime().compile_times().total - before
        return compiled

    compiles = [step(epoch, batch) for epoch in range(1, 4) for batch in range(STEPS)]
    by_hand(planned.config.optim, theirs, train)
    ours = backend.to_host(train_step.model.state_dict())
    apart = max(float((ours[name] - value).abs().max()) for name, value in theirs.state_dict().items())
    for updates, following in JUMPS.items():
        # Not by `restore`, since a restored state compiles a program of its own, once.
        for kept in train_step._optimizer.state.values():
            if "step" in kept:
                kept["step"].fill_(updates)
        # Beyond the last epoch a cosine has come down to its end.
        compiles += [step(4, batch) for batch in range(following)]
    return {"apart": apart, "first epoch": compiles[STEPS - 1], "in all": compiles[-1]}


def rows_of(epoch: int, batch: int) -> Any:
    """Examples of a batch."""
    return (np.arange(32) * 5 + epoch * 17 + batch * 32) % 256


def by_hand(optim: Any, model: Any, train: Any) -> None:
    """The same training as one would write it with torch alone."""
    import torch

    decay = optim.weight_decay
    made: dict[str, Any] = {
        "adam": lambda p: torch.optim.Adam(p, betas=optim.betas, weight_decay=decay),
        "adamw": lambda p: torch.optim.AdamW(p, betas=optim.betas, weight_decay=decay),
        "sgd": lambda p: torch.optim.SGD(p, momentum=0.9 if optim.momentum is None else optim.momentum),
        "rmsprop": lambda p: torch.optim.RMSprop(
            p, alpha=optim.alpha, momentum=optim.momentum or 0, weight_decay=decay
        ),
    }
    optimizer = made[optim.name](model.parameters())
    batches = list(itertools.product(range(1, 4), range(STEPS)))
    updates = len(batches) // optim.accumulate
    warm_up = optim.warmup_steps or round(optim.warmup_epochs * STEPS / optim.accumulate)
    for number, (epoch, batch) in enumerate(batches):
        data = train.fetch(rows_of(epoch, batch))
        loss = (model(data["x"]).squeeze(1) - data["y"]).square().mean() / optim.accumulate
        loss.backward()
        if (number + 1) % optim.accumulate:
            continue
        lr, update = optim.lr, number // optim.accumulate
        if optim.schedule == "cosine":
            part = max(0, update - warm_up) / (updates - warm_up)
            lr = optim.min_lr + 0.5 * (lr - optim.min_lr) * (1 + math.cos(math.pi * part))
        if optim.step_size:
            lr *= optim.gamma ** ((epoch - 1) // optim.step_size)
        if update < warm_up:
            lr *= (update + 1) / warm_up
        if optim.clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), optim.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

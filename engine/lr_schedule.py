"""The learning rate of each step: a pure function of its position, so that a resumed run continues exactly.

Counted in weight updates; one update takes `accumulate` batches. Does not import torch.
"""

from __future__ import annotations

import math

from tputui.config import RunConfig


def learning_rate(config: RunConfig, steps_per_epoch: int, epoch: int, batch: int) -> float:
    """Learning rate of the update that batch `batch` (from 0) of epoch `epoch` (from 1) belongs to.

    A warm-up of N updates rises linearly from 1/N of the scheduled rate at the first update to the full rate at the
    Nth. A cosine schedule starts after the warm-up at the full rate, and would reach `min_lr` at the update after the
    last.
    """
    optim, full, least = config.optim, config.scaled_lr, config.scaled_min_lr
    per_epoch = steps_per_epoch // optim.accumulate
    done = (epoch - 1) * per_epoch + batch // optim.accumulate
    warm_up = optim.warmup_steps or round(optim.warmup_epochs * per_epoch)
    rise = min(1.0, (done + 1) / warm_up) if warm_up else 1.0
    if optim.used_schedule == "step" and optim.step_size is not None:
        return rise * max(least, full * optim.gamma ** ((epoch - 1) // optim.step_size))
    if optim.used_schedule == "cosine" and done >= warm_up:
        part = min(1.0, (done - warm_up) / max(1, config.epochs * per_epoch - warm_up))
        return least + (full - least) * (1 + math.cos(math.pi * part)) / 2
    return rise * full

"""Optimizer and learning rate from the configuration."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.optim.lr_scheduler import StepLR

from tputui.config import RunConfig

NEVER = 2**31


def optimizer(config: RunConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer over parameters that are on the device already, at the scaled learning rate.

    `foreach`: XLA traces an update of many parameters in fewer calls. Adam's step count stays on the host: its two
    corrections are sent with each step as numbers and compile nothing, where counts on the device (`capturable`) are
    worked out anew for each parameter and cost a small network a third of its step. The learning rate stays a plain
    number; as a tensor it costs two compiles and half the speed.
    """
    options, lr = config.optim, config.scaled_lr
    decay = options.weight_decay
    if options.name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=options.momentum, weight_decay=decay, foreach=True)
    cls = torch.optim.AdamW if options.name == "adamw" else torch.optim.Adam
    return cls(parameters, lr=lr, weight_decay=decay, foreach=True)


def scheduler(config: RunConfig, of: torch.optim.Optimizer) -> StepLR:
    """StepLR, stepped once an epoch; without `step_size` the learning rate stays."""
    return StepLR(of, step_size=config.optim.step_size or NEVER, gamma=config.optim.gamma)

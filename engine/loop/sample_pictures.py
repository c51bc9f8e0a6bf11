"""Pictures of a few training examples with their labels, drawn before the first step."""

from __future__ import annotations

import numpy as np
import torch

from engine.data.readers import checked
from engine.errors import BadExample
from engine.loop.evaluation import spread
from engine.task import Dataset, Picture, Plan, Task


def draw(plan: Plan, dataset: Dataset) -> list[Picture]:
    """Pictures of `report.pictures` examples all over the training split, changed at random as a step changes them.

    Empty where the task draws none. Raises what the task raises.
    """
    if type(plan.task).examples is Task.examples:
        return []
    rows = [row for index in spread(plan.config.report.pictures, len(dataset)) if (row := _row(dataset, index))]
    if not rows:
        return []
    batch = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    # Training draws the same numbers whether pictures are drawn or not.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(plan.config.seed)
        batch = plan.task.augment(batch)
    return plan.task.examples({name: tensor.numpy() for name, tensor in batch.items()})


def _row(dataset: Dataset, index: int) -> dict[str, torch.Tensor] | None:
    """An example as a batch of one; None where it cannot be used, which training reports."""
    try:
        return checked(dataset.fetch(np.array([index], dtype=np.int64)), 1)
    except BadExample:
        return None

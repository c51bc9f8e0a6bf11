"""Which examples pictures are drawn of, and the pictures of training examples before the first step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from engine.data.batch_reader import check_batch
from engine.errors import BadExample
from engine.task import Dataset, Picture, Plan, Task

MAX_POSITIONS = 8
"""Positions in the split that pictures are taken from: each keeps a batch on the device until the next report."""


def training_examples(plan: Plan, dataset: Dataset) -> list[Picture]:
    """Pictures of `report.pictures` examples spread over the training split, augmented as a step augments them.

    Empty if the task draws none. Raises what the task raises.
    """
    if type(plan.task).examples is Task.examples:
        return []
    rows = [row for index in spread(plan.config.report.pictures, len(dataset)) if (row := _row(dataset, index))]
    if not rows:
        return []
    batch = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    # Forked, so that training draws the same random numbers whether pictures are drawn or not.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(plan.config.seed)
        batch = plan.task.augment(batch)
    return plan.task.examples({name: tensor.numpy() for name, tensor in batch.items()})


def spread(count: int, total: int) -> list[int]:
    """`count` indices of `total` examples, spread evenly since neighbours are often alike. If there are more than
    `MAX_POSITIONS`, the examples right behind those positions follow."""
    positions = min(count, MAX_POSITIONS)
    chosen: dict[int, None] = {}
    offset = 0
    while len(chosen) < min(count, total):
        for position in range(positions):
            if len(chosen) < count:
                chosen[((2 * position + 1) * total // (2 * positions) + offset) % total] = None
        offset += 1
    return sorted(chosen)


def rows_by_batch(examples: list[int], size: int) -> dict[int, list[int]]:
    """The rows of these examples in each batch of `size` examples, by the number of the batch."""
    rows: dict[int, list[int]] = {}
    for example in examples:
        rows.setdefault(example // size, []).append(example % size)
    return rows


def present_rows(rows: list[int], present: npt.NDArray[np.bool_] | None) -> list[int]:
    """The rows of a batch, each without an example replaced by the next free row that has one, else by the last one.

    `present` [rows of the batch] is the mask of rows with an example; None if all do.
    """
    if present is None:
        return rows
    free = [row for row in range(len(present)) if present[row]]
    chosen: list[int] = []
    for row in rows:
        if free:
            chosen.append(next((other for other in free if other >= row), free[-1]))
            free.remove(chosen[-1])
    return sorted(chosen)


def _row(dataset: Dataset, index: int) -> dict[str, torch.Tensor] | None:
    """An example as a batch of one; None if it cannot be used, which training reports."""
    try:
        return check_batch(dataset.fetch(np.array([index], dtype=np.int64)), 1)
    except BadExample:
        return None

"""Gives lazy layers, such as `nn.LazyLinear`, their shapes before anything counts or moves their parameters."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from engine.data.readers import checked
from engine.errors import BadExample, Problem, Refused
from engine.task import Dataset, Task
from engine.task_registry import reason

TRIES = 16
"""How many examples are tried for one that can be read."""


def uninitialized(model: nn.Module) -> list[str]:
    """Names of the parameters and buffers that have no shape yet."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return [name for name, tensor in tensors if is_lazy(tensor)]


def materialise(model: nn.Module, task: Task, dataset: Dataset) -> None:
    """Predicts one example on the CPU if the model has lazy layers, which sets their shapes. Raises `Refused`."""
    if not uninitialized(model):
        return
    trains = model.training
    try:
        # In evaluation mode, so that no running statistics change.
        with torch.no_grad():
            task.predict(model.eval(), _example(dataset))
    except Exception as error:  # The task's own code.
        names = ", ".join(uninitialized(model)[:3])
        message = (
            f"model(): {names} has no shape yet (a lazy layer), and predict() of one example on the CPU, which would "
            f"set it, failed: {reason(error)}; give the layer its number of inputs"
        )
        raise Refused([Problem("task", message)]) from error
    finally:
        model.train(trains)
    if left := uninitialized(model):
        message = (
            f"model(): {left[0]} has no shape yet, and predict() does not use it; give the layer its number of inputs"
        )
        raise Refused([Problem("task", message)])


def _example(dataset: Dataset) -> dict[str, torch.Tensor]:
    """The first example that can be read. Raises what the last one of some raised."""
    last = min(TRIES, len(dataset)) - 1
    for index in range(last):
        with contextlib.suppress(BadExample):
            return _one(dataset, index)
    return _one(dataset, last)


def _one(dataset: Dataset, index: int) -> dict[str, torch.Tensor]:
    return checked(dataset.fetch(np.array([index], dtype=np.int64)), 1)

"""Gives lazy layers, such as `nn.LazyLinear`, their shapes from one example, on the CPU."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from engine.data.batch_reader import check_batch
from engine.errors import BadExample, Problem, Refused, one_line
from engine.task import Dataset, Task

MAX_TRIES = 16
"""How many examples are tried in search of one that can be read."""


def uninitialized(model: nn.Module) -> list[str]:
    """Names of the parameters and buffers of lazy layers, such as `nn.LazyLinear`, that have no shape yet."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return [name for name, tensor in tensors if is_lazy(tensor)]


def materialise(model: nn.Module, task: Task, dataset: Dataset) -> None:
    """Predicts one example on the CPU if the model has lazy layers, which sets their shapes. Raises `Refused`."""
    if not uninitialized(model):
        return
    was_training = model.training
    try:
        # In evaluation mode, so that no running statistics change.
        with torch.no_grad():
            task.predict(model.eval(), _readable_example(dataset))
    except Exception as error:  # The task's own code.
        names = ", ".join(uninitialized(model)[:3])
        message = (
            f"model(): {names} has no shape yet (a lazy layer), and predict() of one example on the CPU, which would "
            f"set it, failed: {one_line(error)}; give the layer its number of inputs"
        )
        raise Refused([Problem("task", message)]) from error
    finally:
        model.train(was_training)
    if left := uninitialized(model):
        message = (
            f"model(): {left[0]} has no shape yet, and predict() does not use it; give the layer its number of inputs"
        )
        raise Refused([Problem("task", message)])


def _readable_example(dataset: Dataset) -> dict[str, torch.Tensor]:
    """The first example that can be read, [1, ...] each. Raises the error of the last one tried."""
    last = min(MAX_TRIES, len(dataset)) - 1
    for index in range(last):
        with contextlib.suppress(BadExample):
            return _example(dataset, index)
    return _example(dataset, last)


def _example(dataset: Dataset, index: int) -> dict[str, torch.Tensor]:
    return check_batch(dataset.fetch(np.array([index], dtype=np.int64)), 1)

"""What an evaluation says besides its meters: scores of the whole split, and pictures of a few of its examples.

The task's tensors stay on the device until the next report, and are then read in one transfer. Must not sync.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.data.feed import Batch
from engine.loop.train_step import Evaluation, TaskError
from engine.parallel.base import Strategy
from engine.task import Picture, Plan, Task

Arrays = dict[str, npt.NDArray[Any]]
_Present = npt.NDArray[np.bool_] | None
_Kept = tuple[dict[str, torch.Tensor], _Present]

PLACES_MAX = 8
"""Places of the split that pictures are taken from: the batch of each stays on the device until the next report."""


class _Shown(NamedTuple):
    """A batch with examples that are shown."""

    rows: list[int]
    inputs: dict[str, torch.Tensor]
    predictions: dict[str, torch.Tensor]
    present: _Present


class EvalCollector:
    """Judges one evaluation after the other."""

    def __init__(self, plan: Plan, strategy: Strategy) -> None:
        self._task = plan.task
        self._strategy = strategy
        draws = type(plan.task).pictures is not Task.pictures
        self._size = plan.config.batch_per_core * len(strategy.own)
        shown = spread(plan.config.report.pictures, plan.sizes.valid) if draws else []
        self._rows = by_batch(shown, plan.config.global_batch)
        """By batch of an evaluation: the rows that are shown."""
        self.restart()

    def restart(self) -> None:
        """Begins an evaluation."""
        self._pending: list[_Kept] = []
        self._judged: list[Arrays] = []
        self._num_batches = 0
        self._predicted: dict[str, torch.Tensor] = {}
        """What the newest step left, which lives until that was run."""
        self._kept: list[_Shown] = []
        self._shown: list[tuple[Arrays, Arrays]] = []

    def add(self, evaluation: Evaluation, batch: Batch) -> None:
        """Keeps what a traced evaluation step left; to be called before it runs."""
        if self._task.scores:
            self._pending.append((self._sharded(evaluation.judged, "judged"), batch.present))
        if self._rows:
            # Of every batch, and by row on the host: what is asked of one batch alone makes one more program.
            self._predicted = self._sharded(evaluation.predictions, "predict")
            if rows := self._rows.get(self._num_batches):
                self._kept.append(_Shown(rows, batch.tensors, self._predicted, batch.present))
        self._num_batches += 1

    def fetch(self) -> None:
        """Reads what has run since the last call."""
        for tensors, present in self._pending:
            self._judged.append(self._read(tensors, self._chosen(present)))
        self._pending = []
        self._shown += [self._read_shown(kept) for kept in self._kept]
        self._kept, self._predicted = [], {}

    def scores(self) -> dict[str, float]:
        """The scores of the split. Raises `TaskError` where the task leaves one out."""
        if not self._judged:
            return {}
        scores = {name: float(score) for name, score in self._task.score(_joined(self._judged)).items()}
        if missing := [name for name in self._task.scores if name not in scores]:
            raise TaskError(f"score() returned {sorted(scores)} without {', '.join(missing)}")
        return scores

    def pictures(self) -> list[Picture]:
        """The pictures of the examples that are shown."""
        if not self._shown:
            return []
        inputs, predictions = (_joined([arrays[side] for arrays in self._shown]) for side in (0, 1))
        return self._task.pictures(inputs, predictions)

    def _read_shown(self, kept: _Shown) -> tuple[Arrays, Arrays]:
        present = None if kept.present is None else self._strategy.gather(kept.present, 0)
        rows = sound(kept.rows, present)
        return self._read(kept.inputs, rows), self._read(kept.predictions, rows)

    def _sharded(self, tensors: dict[str, torch.Tensor], method: str) -> dict[str, torch.Tensor]:
        for name, tensor in tensors.items():
            if tensor.dim() == 0 or len(tensor) != self._size:
                shape = list(tensor.shape)
                raise TaskError(f'{method}() returned "{name}" of shape {shape}; its first dimension is [{self._size}]')
        # Numpy knows no bfloat16.
        plain = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in tensors.items()}
        return {name: self._strategy.shard(tensor, 0) for name, tensor in plain.items()}

    def _chosen(self, present: _Present) -> npt.NDArray[np.bool_] | slice:
        """Which rows of a batch are examples: what stands in the place of a bad one is shown and judged by itself."""
        return slice(None) if present is None else self._strategy.gather(present, 0)

    def _read(self, tensors: dict[str, torch.Tensor], chosen: npt.NDArray[np.bool_] | slice | list[int]) -> Arrays:
        rows = self._strategy.read_rows(list(tensors.values()))
        return {name: array[chosen] for name, array in zip(tensors, rows, strict=True)}


def spread(count: int, total: int) -> list[int]:
    """`count` of `total` examples, evenly over the split since neighbours are often alike; of more than there are
    places, those right behind too."""
    places = min(count, PLACES_MAX)
    found: dict[int, None] = {}
    behind = 0
    while len(found) < min(count, total):
        for place in range(places):
            if len(found) < count:
                found[((2 * place + 1) * total // (2 * places) + behind) % total] = None
        behind += 1
    return sorted(found)


def by_batch(examples: list[int], size: int) -> dict[int, list[int]]:
    """By batch of `size` examples: which of its rows these are."""
    found: dict[int, list[int]] = {}
    for example in examples:
        found.setdefault(example // size, []).append(example % size)
    return found


def sound(rows: list[int], present: _Present) -> list[int]:
    """These rows of a batch; in place of one without an example the next that has one, else the last, if there is
    any that is not shown yet."""
    if present is None:
        return rows
    free = [row for row in range(len(present)) if present[row]]
    found: list[int] = []
    for row in rows:
        if free:
            found.append(next((one for one in free if one >= row), free[-1]))
            free.remove(found[-1])
    return sorted(found)


def _joined(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([arrays[name] for arrays in parts]) for name in parts[0]}

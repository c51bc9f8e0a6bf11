"""What an evaluation says besides its meters: scores of the whole split, and pictures of its first examples.

The task's tensors stay on the device until the next report, and are then read in one transfer. Must not sync.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.data.feed import Batch
from engine.learner import Evaluation, TaskError
from engine.plan import Plan
from engine.strategies.base import Strategy
from engine.tasks.base import Picture, Task

Arrays = dict[str, npt.NDArray[Any]]
_Present = npt.NDArray[np.bool_] | None
_Kept = tuple[dict[str, torch.Tensor], _Present]


class Judge:
    """Judges one evaluation after the other."""

    def __init__(self, plan: Plan, strategy: Strategy) -> None:
        self._task = plan.task
        self._strategy = strategy
        draws = type(plan.task).pictures is not Task.pictures
        self._num_pictures = min(plan.config.report.pictures, plan.sizes.valid) if draws else 0
        self._size = plan.config.batch_per_core * len(strategy.own)
        self.restart()

    def restart(self) -> None:
        """Begins an evaluation."""
        self._pending: list[_Kept] = []
        self._judged: list[Arrays] = []
        self._first: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], _Present] | None = None
        self._shown: tuple[Arrays, Arrays] | None = None

    def add(self, evaluation: Evaluation, batch: Batch) -> None:
        """Keeps what a traced evaluation step left; to be called before it runs."""
        if self._task.scores:
            self._pending.append((self._sharded(evaluation.judged, "judged"), batch.present))
        if self._num_pictures and self._first is None:
            self._first = batch.tensors, self._sharded(evaluation.predictions, "predict"), batch.present

    def fetch(self) -> None:
        """Reads what has run since the last call."""
        for tensors, present in self._pending:
            self._judged.append(self._read(tensors, self._chosen(present)))
        self._pending = []
        if self._first is not None and self._shown is None:
            *both, present = self._first
            chosen = self._chosen(present)
            inputs, predictions = (self._cut(self._read(tensors, chosen)) for tensors in both)
            self._shown = inputs, predictions

    def scores(self) -> dict[str, float]:
        """The scores of the split. Raises `TaskError` where the task leaves one out."""
        if not self._judged:
            return {}
        whole = {name: np.concatenate([arrays[name] for arrays in self._judged]) for name in self._judged[0]}
        scores = {name: float(score) for name, score in self._task.score(whole).items()}
        if missing := [name for name in self._task.scores if name not in scores]:
            raise TaskError(f"score() returned {sorted(scores)} without {', '.join(missing)}")
        return scores

    def pictures(self) -> list[Picture]:
        """The pictures of the first examples."""
        return self._task.pictures(*self._shown) if self._shown is not None else []

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

    def _read(self, tensors: dict[str, torch.Tensor], chosen: npt.NDArray[np.bool_] | slice) -> Arrays:
        rows = self._strategy.read_rows(list(tensors.values()))
        return {name: array[chosen] for name, array in zip(tensors, rows, strict=True)}

    def _cut(self, arrays: Arrays) -> Arrays:
        return {name: array[: self._num_pictures] for name, array in arrays.items()}

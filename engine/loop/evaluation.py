"""Evaluation of the validation split: meters, scores of the whole split, and pictures of a few of its examples.

The task's tensors stay on the device until the next report and are then read together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.checkpoint.resume import Position
from engine.data.feed import Batch
from engine.errors import TaskError
from engine.loop.artifacts import present_rows, rows_by_batch, spread_examples
from engine.loop.events import EventEmitter
from engine.loop.reporting import make_buffer
from engine.loop.train_step import Evaluation
from engine.non_finite import NonFiniteDetector
from engine.parallel.base import Strategy
from engine.parallel.coordinator import Coordinator
from engine.task import Picture, Plan, Task
from engine.xla import backend
from tputui.reporting import events as ev

Arrays = dict[str, npt.NDArray[Any]]
"""By name, [rows, ...] each."""
_Present = npt.NDArray[np.bool_] | None
"""[rows] whether a row of a batch holds an example; None if all do."""


class EvalResult(NamedTuple):
    meters: dict[str, ev.MeterReading]
    scores: dict[str, float]
    pictures: list[Picture]

    def value(self, name: str) -> float:
        """The average of a meter, or a score."""
        return self.meters[name].avg if name in self.meters else self.scores[name]


class EvalReporter:
    def __init__(self, plan: Plan, strategy: Strategy, events: EventEmitter, coordinator: Coordinator) -> None:
        self.buffer = make_buffer(plan, strategy, plan.task.meters)
        self._events = events
        self._coordinator = coordinator
        self._detector = NonFiniteDetector("valid", strategy.core_ids, plan.config.non_finite.policy, events.emit)
        self._collector = EvalCollector(plan, strategy)

    @property
    def not_finite(self) -> str | None:
        """Sentence about a loss that is NaN or infinite; None if all that were read are finite. The same in every
        process."""
        return self._detector.found

    def begin(self) -> None:
        self.buffer.restart()
        self._collector.restart()
        self._events.restart_pace()

    def run(self, evaluation: Evaluation, batch: Batch, at: Position) -> None:
        """Runs a traced evaluation step, and reports if a report is due."""
        self.buffer.append(evaluation.outcomes, batch)
        self._collector.append(evaluation, batch)
        self._events.programs.run("evaluate")
        if self._coordinator.is_report_due(self.buffer):
            self.report_pending(at)

    def report_pending(self, at: Position) -> None:
        """Reports every evaluation batch since the last report."""
        steps, events = self.buffer.pending, self._events
        if not steps:
            return
        with events.sections.section("report"):
            with events.sections.section("evaluate"):
                backend.wait()
            # Sums, since a core without an example has no mean.
            self._detector.look(at.step, self.buffer.fetch(self.buffer.detach()).sums)
            self._collector.fetch()
            self.buffer.interval.retune(events.step_s(steps))
            events.report_meters(at, "valid", self.buffer.meters.readings(), self.buffer.meters.reduced)
            events.report_runtime()
        events.restart_pace()

    def result(self) -> EvalResult:
        """The result of the evaluation. Raises `TaskError` if the task leaves a score out."""
        with self._events.sections.section("evaluate"):
            return EvalResult(self.buffer.meters.readings(), self._collector.scores(), self._collector.pictures())


class EvalCollector:
    """Collects what scores and pictures are made of, from one evaluation after the other."""

    def __init__(self, plan: Plan, strategy: Strategy) -> None:
        self._task = plan.task
        self._strategy = strategy
        draws = type(plan.task).pictures is not Task.pictures
        self._size = plan.config.batch_per_core * strategy.traced
        shown = spread_examples(plan.config.report.pictures, plan.sizes.valid) if draws else []
        self._rows = rows_by_batch(shown, plan.config.global_batch)
        """Rows of which pictures are drawn, by number of the batch."""
        self.restart()

    def restart(self) -> None:
        self._pending: list[tuple[dict[str, torch.Tensor], _Present]] = []
        self._judged: list[Arrays] = []
        self._num_batches = 0
        self._predicted: dict[str, torch.Tensor] = {}
        """Predictions of the newest step, which must live until that step has run."""
        self._pending_shown: list[tuple[list[int], dict[str, torch.Tensor], dict[str, torch.Tensor], _Present]] = []
        """Rows of a batch of which pictures are drawn, with its inputs, predictions and the examples that it has."""
        self._shown: list[tuple[Arrays, Arrays]] = []
        """Inputs and predictions of the rows of which pictures are drawn."""

    def append(self, evaluation: Evaluation, batch: Batch) -> None:
        """Takes the tensors of a traced evaluation step; must be called before the step runs."""
        if self._task.scores:
            self._pending.append((self._sharded(evaluation.judged, "judged"), batch.present))
        if self._rows:
            # Of every batch, and rows are chosen on the host: another choice for one batch is one more program.
            self._predicted = self._sharded(evaluation.predictions, "predict")
            if rows := self._rows.get(self._num_batches):
                self._pending_shown.append((rows, batch.tensors, self._predicted, batch.present))
        self._num_batches += 1

    def fetch(self) -> None:
        """Reads the steps that have run since the last call."""
        for tensors, present in self._pending:
            self._judged.append(self._read(tensors, self._examples(present)))
        self._pending = []
        self._shown += [self._read_shown(*shown) for shown in self._pending_shown]
        self._pending_shown, self._predicted = [], {}

    def scores(self) -> dict[str, float]:
        """The scores of the split. Raises `TaskError` if the task leaves one out."""
        if not self._judged:
            return {}
        scores = {name: float(score) for name, score in self._task.score(_joined(self._judged)).items()}
        if missing := [name for name in self._task.scores if name not in scores]:
            raise TaskError(f"score() returned {sorted(scores)} without {', '.join(missing)}")
        return scores

    def pictures(self) -> list[Picture]:
        """Pictures of the chosen examples."""
        if not self._shown:
            return []
        inputs, predictions = (_joined([arrays[side] for arrays in self._shown]) for side in (0, 1))
        return self._task.pictures(inputs, predictions)

    def _read_shown(
        self, rows: list[int], inputs: dict[str, torch.Tensor], predictions: dict[str, torch.Tensor], present: _Present
    ) -> tuple[Arrays, Arrays]:
        rows = present_rows(rows, None if present is None else self._strategy.gather(present, 0))
        return self._read(inputs, rows), self._read(predictions, rows)

    def _sharded(self, tensors: dict[str, torch.Tensor], method: str) -> dict[str, torch.Tensor]:
        """The tensors, [rows of the own cores, ...] each, marked as sharded. Raises `TaskError` for another shape."""
        for name, tensor in tensors.items():
            if tensor.dim() == 0 or len(tensor) != self._size:
                shape = list(tensor.shape)
                raise TaskError(
                    f'{method}() returned "{name}" of shape {shape}; its first dimension must be {self._size}'
                )
        # Numpy has no bfloat16.
        plain = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in tensors.items()}
        return {name: self._strategy.shard(tensor, 0) for name, tensor in plain.items()}

    def _examples(self, present: _Present) -> npt.NDArray[np.bool_] | slice:
        """The rows of a batch that hold an example: whatever replaces a bad one must not count twice."""
        return slice(None) if present is None else self._strategy.gather(present, 0)

    def _read(self, tensors: dict[str, torch.Tensor], rows: npt.NDArray[np.bool_] | slice | list[int]) -> Arrays:
        arrays = self._strategy.read_rows(list(tensors.values()))
        return {name: array[rows] for name, array in zip(tensors, arrays, strict=True)}


def _joined(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([arrays[name] for arrays in parts]) for name in parts[0]}

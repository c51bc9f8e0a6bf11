"""`LightningReporter`: reports the steps of Lightning's loop and the values that the module logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from engine.checkpoint.resume import Position
from engine.data.feed import Batch
from engine.loop.events import EventEmitter
from engine.loop.reporting import StepReporter
from engine.parallel.base import Strategy
from engine.parallel.coordinator import Coordinator
from engine.task import Plan
from engine.xla import backend
from tputui.telemetry import events as ev

REDUCED = "as Lightning reduced it: by default the mean over batches, weighted by their examples; one value for all"
"""How a logged value was computed, in words."""
WARM_UP_RUNS = {"step": 3, "evaluate": 2, "last evaluate": 2, "logged": 2, "reset": 2}
"""Runs in which a program may be compiled: Lightning's own state of logged values begins anew in each pass."""


class LightningReporter:
    """Reports through the `StepReporter` of our own loop."""

    def __init__(self, plan: Plan, cores: Strategy, events: EventEmitter) -> None:
        self.lr = float("nan")
        """Learning rate in force, set by the callback."""
        coordinator = Coordinator(cores, events.sections, events.programs.run)
        self.steps = StepReporter(plan, cores, events, coordinator, lambda at: self.lr, meters=("loss",))
        self._device = cores.device
        self._num_cores = len(cores.core_ids)
        self._events = events
        self._batch_shape = (plan.config.global_batch,)
        self._counts = np.full(self._num_cores, plan.config.batch_per_core, dtype=np.int64)
        self._has_losses: bool | None = None
        """Whether the module returns the loss of each example; None before the first step."""

    def append(self, loss: torch.Tensor | None, losses: object) -> None:
        """Traces what keeps the result of a step: the loss of each example, `losses` [global batch], if the module
        returns it, else their mean, `loss` []."""
        outcomes = None
        if loss is not None and self._events.telemetry:
            by_example = losses if self._check(losses) else None
            mean = loss.detach().float().expand(self._batch_shape)
            outcomes = {"loss": by_example.detach() if isinstance(by_example, torch.Tensor) else mean}
        self.steps.append(outcomes, Batch(tensors={}, real=None, counts=self._counts, present=None))

    def _check(self, losses: object) -> bool:
        """Whether the module returns the loss of each example; the first step decides for all."""
        if self._has_losses is None:
            self._has_losses = isinstance(losses, torch.Tensor) and losses.shape == self._batch_shape
            self.steps.per_core = self._has_losses
            if not self._has_losses and self._num_cores > 1:
                given = f"of shape {list(losses.shape)}" if isinstance(losses, torch.Tensor) else "missing"
                self._events.warn(
                    "one loss is shown for all cores, since training_step returns their mean; to see each core, return "
                    f'a dict with "losses", one value per example [{self._batch_shape[0]}] (it is {given})'
                )
        return self._has_losses

    def report_evaluation(self, at: Position, valid: dict[str, ev.MeterReading]) -> None:
        """Reports the values that the module logged in the validation split."""
        self._events.report_meters(at, "valid", valid, REDUCED)
        self._events.report_runtime()

    def read_logged(self, logged: Mapping[str, Any]) -> dict[str, float]:
        """Logged values as numbers; one transfer of those on the device."""
        with self._events.sections.section("report"):
            self._events.programs.run("logged")
            on_device = {
                name: value
                for name, value in logged.items()
                if isinstance(value, torch.Tensor) and value.device == self._device
            }
            read = dict(zip(on_device, backend.read_all(list(on_device.values())), strict=True))
            return {name: float(read.get(name, value)) for name, value in logged.items()}

"""What Lightning's loop tells of itself: the same facts as any run, and what the module logged.

A report of training is held when it falls due, read after the next step was traced and before it is dispatched, so
that the device does not idle meanwhile. Must not decide anything about training.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.checkpoint.position import Position
from engine.data.feed import Batch
from engine.lightning import logged_values
from engine.loop.events import EventEmitter
from engine.loop.step_buffer import Held, StepBuffer, Steps
from engine.non_finite import NonFiniteDetector
from engine.parallel.base import Strategy
from engine.process.requests import Progress
from engine.report_interval import ReportInterval
from engine.task import Plan
from engine.xla import backend
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

WARM_UP_RUNS = {"step": 3, "evaluate": 2, "last evaluate": 2, "figures": 2, "reset": 2}
"""Runs in which a program may be compiled: what Lightning keeps of the logged figures begins anew in each pass."""


class Facts(NamedTuple):
    """What Lightning knows once it has set the data up."""

    steps_per_epoch: int
    valid_steps: int
    train_examples: int
    valid_examples: int
    num_parameters: int
    lr_rule: str


class _Held(NamedTuple):
    at: Position
    steps: Held


class LightningReporter(EventEmitter):
    """Keeps the tally and the clock of Lightning's loop, and puts what they say in the journal."""

    def __init__(
        self, plan: Plan, cores: Strategy, reporter: Reporter, progress: Progress, *, telemetry: bool = True
    ) -> None:
        super().__init__(plan, cores, reporter, progress, WARM_UP_RUNS)
        self.lr = float("nan")
        """Learning rate in force, as the loop last said."""
        self._telemetry = telemetry
        cadence = ReportInterval(plan.config.report.interval_s, plan.config.report.every_batches)
        self._tally = StepBuffer(("loss",), cores, cadence)
        self._lookout = NonFiniteDetector("train", cores.core_ids, plan.config.non_finite.policy, reporter.emit)
        self._counts = np.full(len(cores.core_ids), plan.config.batch_per_core, dtype=np.int64)
        self._by_core: bool | None = None
        self._held: _Held | None = None
        self._is_traced = False
        """Whether a step was traced that has not run."""

    def open(self, at: Position, facts: Facts) -> None:
        """Tells what is to be trained, and on what."""
        config = self._plan.config
        self.progress.reported_step = at.step if self._telemetry else None
        self._declare_topology()
        self._reporter.emit(
            ev.TrainingPlanned(
                t=time.time(),
                task=f"lightning {getattr(self._plan.model, 'module', '')}",
                num_epochs=config.epochs,
                first_step=at.step + 1,
                batch_per_core=config.batch_per_core,
                global_batch=config.global_batch,
                precision="fp32" if config.device.precision == "fp32" else "bf16",
                lr=self.lr,
                **facts._asdict(),
            )
        )
        self._report_memory()

    def begin_epoch(self, at: Position, meters: dict[str, list[float]]) -> None:
        """Starts the epoch's clock and meters; `meters` is their state where another run began the epoch."""
        self.sections.restart()
        self.progress.epoch = at.epoch
        self._tally.restart()
        self._tally.meters.restore(meters)
        self._restart_pace()
        self._reporter.emit(ev.EpochStarted(t=time.time(), epoch=at.epoch, first_step=at.step + 1))

    def note_step(self, loss: torch.Tensor | None, losses: object) -> None:
        """Traces what keeps the loss of a step: each example's where the module gives them, else the mean."""
        self._is_traced = True
        if not self._telemetry or loss is None:
            return
        by_example = losses if self._gives_examples(losses) else None
        size = (self._plan.config.global_batch,)
        values = by_example.detach() if isinstance(by_example, torch.Tensor) else loss.detach().float().expand(size)
        self._tally.push({"loss": values}, Batch(tensors={}, real=None, counts=self._counts, present=None))

    def _gives_examples(self, losses: object) -> bool:
        """Whether the module gives a loss an example; what the first step gave holds for all."""
        if self._by_core is None:
            size = (self._plan.config.global_batch,)
            self._by_core = isinstance(losses, torch.Tensor) and losses.shape == size
            if not self._by_core and len(self._cores.core_ids) > 1:
                given = f"of shape {list(losses.shape)}" if isinstance(losses, torch.Tensor) else "missing"
                self.warn(
                    "one loss is shown for all cores: training_step returns their mean; return a dict that also "
                    f'has "losses", one value an example [{size[0]}], to see each core\'s (it is {given})'
                )
        return self._by_core

    def run_step(self, at: Position) -> None:
        """Runs the step that was traced, which ends at `at`; reports where that falls due."""
        compiled_s = self.programs.compile_s
        self.settle()
        with self.sections.section("execute"):
            self.programs.run("step")
        self._is_traced = False
        self.progress.step = at.step
        if self._telemetry and self._tally.due:
            self._held = _Held(at, self._tally.hold())
            # The next step may be compiled as well, and that can take minutes.
            if self.programs.compile_s > compiled_s:
                self.settle()

    def report_training(self, at: Position) -> None:
        """Reports every step up to now."""
        self.settle()
        if self._tally.pending:
            self._held = _Held(at, self._tally.hold())
            self.settle()

    def report_before_failure(self, at: Position) -> None:
        """Reports the steps up to `at`, where training failed, as far as they can be read: not if the last one was
        traced but did not run, since a read would run it."""
        if self._is_traced:
            return
        with contextlib.suppress(Exception):
            self.report_training(at)

    def settle(self) -> None:
        """Reads what is held, in one transfer, and tells it."""
        if self._held is None:
            return
        (at, held), self._held = self._held, None
        with self.sections.section("execute"):
            backend.wait()
        with self.sections.section("report"):
            steps = self._tally.read(held)
            step_s = self._step_s(len(steps.means))
            self._tally.cadence.retune(step_s)
            self._restart_pace()
            self._tell(at, steps, step_s)

    @property
    def not_finite(self) -> str | None:
        """Where the loss is NaN or infinite, in one sentence; None where it is finite, so far as was read."""
        return self._lookout.found

    def _tell(self, at: Position, steps: Steps, step_s: float) -> None:
        shown = steps.means if self._by_core else np.ascontiguousarray(steps.means[:, :1])
        self._lookout.look(at.step - len(shown) + 1, steps.means, apart=bool(self._by_core))
        self._report_steps(at, shown, step_s, lr=self.lr, report_steps=self._tally.cadence.steps)
        self._report_meters(at, "train", self._tally.meters.readings(), self._tally.meters.reduced)
        self._report_runtime()

    def report_evaluation(self, at: Position, valid: dict[str, ev.MeterReading]) -> None:
        """Tells what Lightning made of the validation split."""
        self._report_meters(at, "valid", valid, logged_values.REDUCED)
        self._report_runtime()

    def read_figures(self, logged: Mapping[str, Any]) -> dict[str, float]:
        """What Lightning has kept of logged values, as numbers; one transfer."""
        with self.sections.section("report"):
            self.programs.run("figures")
            on_device = {
                name: value
                for name, value in logged.items()
                if isinstance(value, torch.Tensor) and value.device == self._cores.device
            }
            read = dict(zip(on_device, backend.read_all(list(on_device.values())), strict=True))
            return {name: float(read.get(name, value)) for name, value in logged.items()}

    def train_readings(self) -> dict[str, ev.MeterReading]:
        """Training loss of the epoch, over every step reported so far."""
        return self._tally.meters.readings()

    def meters_state(self) -> dict[str, list[float]]:
        """What `begin_epoch` takes to go on with the epoch."""
        return self._tally.meters.state()

    def end_epoch(self, ended: ev.EpochEnded) -> None:
        """Sums the epoch up."""
        self._reporter.emit(ended)

"""What the loop tells of itself: one report every second or so, and the facts between.

A report of training is read while the loop is one step ahead: its steps are held when it falls due, read after the
next step was traced and before that one is dispatched, when the loop would have to wait for the device anyway, and
told after the dispatch. So the device does not idle while a step is traced. Where the loop is about to wait for
something else, the report is settled first.

Must not decide anything about training. With `telemetry` off no step keeps anything on the device and no report is
made; that is for measuring what telemetry costs.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch

from engine.checkpoint.position import Position
from engine.data.feed import Batch
from engine.loop.evaluation import EvalCollector
from engine.loop.events import EventEmitter
from engine.loop.meters import Meters
from engine.loop.step_buffer import Held, StepBuffer, Steps
from engine.loop.train_step import Evaluation, Outcomes, TrainStep
from engine.non_finite import NonFiniteDetector
from engine.process.requests import Progress
from engine.report_interval import ReportInterval
from engine.task import Picture, Plan
from engine.xla import backend
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

_ASKED, _DUE = 1, 2


class _Held(NamedTuple):
    """Training steps up to `at` that wait on the device."""

    at: Position
    steps: Held


class _Unsaid(NamedTuple):
    """Training steps up to `at` that were read."""

    at: Position
    steps: Steps
    step_s: float


class EvalResult(NamedTuple):
    """What an evaluation came to."""

    meters: dict[str, ev.MeterReading]
    scores: dict[str, float]
    pictures: list[Picture]

    def figure(self, name: str) -> float:
        """A meter's average or a score."""
        return self.meters[name].avg if name in self.meters else self.scores[name]


class StepReporter(EventEmitter):
    """Keeps the tallies and the clock of the loop, and puts what they say in the journal."""

    def __init__(
        self,
        plan: Plan,
        learner: TrainStep,
        reporter: Reporter,
        progress: Progress,
        *,
        telemetry: bool = True,
    ) -> None:
        super().__init__(plan, learner.strategy, reporter, progress)
        self._learner = learner
        learner.parts.compiled_s = self.programs.seconds
        self._telemetry = telemetry
        self._train = self._tally(with_norm=plan.keeps_norms)
        self._valid = self._tally()
        policy, ids = plan.config.non_finite.policy, learner.strategy.core_ids
        self._lookout = NonFiniteDetector("train", ids, policy, reporter.emit)
        self._valid_lookout = NonFiniteDetector("valid", ids, policy, reporter.emit)
        self._running = self._train
        self._due = False
        self._word: int | None = None
        self._judge = EvalCollector(plan, learner.strategy)
        self._held: _Held | None = None
        self._unsaid: _Unsaid | None = None
        self._is_traced = False
        """Whether a step was traced that has not run."""

    @property
    def train_meters(self) -> Meters:
        """Training meters of the running epoch, up to the newest report."""
        return self._train.meters

    @property
    def train_loss(self) -> float:
        """Mean training loss of the running epoch; NaN without telemetry, which alone reads it from the device."""
        readings = self._train.meters.readings()
        return readings["loss"].avg if "loss" in readings else math.nan

    @property
    def not_finite(self) -> str | None:
        """Where a loss or gradient is NaN or infinite, in one sentence; None where all are finite, so far as was read.
        The same in every process."""
        return self._lookout.found or self._valid_lookout.found

    def open(self, at: Position) -> None:
        """Tells what is to be trained, and on what."""
        config = self._plan.config
        self.progress.reported_step = at.step if self._telemetry else None
        self._declare_topology()
        self._reporter.emit(
            ev.TrainingPlanned(
                t=time.time(),
                task=config.task,
                num_epochs=config.epochs,
                steps_per_epoch=self._plan.steps_per_epoch,
                valid_steps=self._plan.valid_steps,
                first_step=at.step + 1,
                batch_per_core=config.batch_per_core,
                global_batch=config.global_batch,
                train_examples=self._plan.sizes.train,
                valid_examples=self._plan.sizes.valid,
                num_parameters=self._learner.num_parameters,
                precision=str(config.device.precision),
                lr=self._plan.learning_rate(at.epoch, at.batch),
                lr_rule=config.lr_rule,
            )
        )
        self._report_memory()

    def begin_epoch(self, at: Position, meters: dict[str, list[float]]) -> None:
        """Starts the epoch's clock and meters; `meters` is their state where the epoch was begun in another run."""
        self.sections.restart()
        self._learner.parts.restart()
        self.progress.epoch = at.epoch
        self._train.restart()
        self._running = self._train
        self._train.meters.restore(meters)
        self._restart_pace()
        self._reporter.emit(ev.EpochStarted(t=time.time(), epoch=at.epoch, first_step=at.step + 1))

    def note_step(self, outcomes: Outcomes, batch: Batch) -> None:
        """Traces what keeps a training step's outcomes on the device."""
        self._is_traced = True
        if self._telemetry:
            self._train.push(outcomes, batch, self._learner.take_gradient_norm())

    def agree(self, asked: bool) -> bool:
        """Whether a request waits, as the first process sees it; at the boundary before each step.

        It says at the same time whether that step is to end a report: several processes report together, and have
        several clocks.
        """
        strategy = self._cores
        if strategy.alone:
            return asked
        word, self._word = self._word, None
        if word is None:
            word = strategy.agree(_ASKED * asked + _DUE * self._running.is_due_after(self._running.pending + 1))
        self._due = bool(word & _DUE)
        return bool(word & _ASKED)

    def reduce_gradients(self, asked: bool, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Makes every gradient the mean over all processes. What is to be agreed on at the next boundary goes along
        where it can, since an exchange of its own costs as much as a short step."""
        strategy = self._cores
        if strategy.alone:
            return
        # This step is not among the pending ones yet, and will not be where it ends a report.
        steps = (0 if self._due else self._train.pending + 1) + 1
        word = _ASKED * asked + _DUE * self._train.is_due_after(steps)
        with self.sections.section("execute"):
            self._word = strategy.reduce_gradients(parameters, partial(self.programs.run, "gradients"), word)

    def run_step(self, at: Position) -> None:
        """Runs the step that was traced, which ends at `at`; reports where that falls due."""
        compiled_s = self.programs.compile_s
        self._read()
        with self.sections.section("execute"):
            self.programs.run("step" if self._plan.updates(at.batch - 1) else "accumulate")
        self._is_traced = False
        self.progress.step = at.step
        self._tell()
        if self._telemetry and self._is_due(self._train):
            self._held = _Held(at, self._train.hold())
            # The next step may be compiled as well, and that can take minutes. And several processes read together.
            if self.programs.compile_s > compiled_s or not self._cores.alone:
                self.settle()

    def settle(self) -> None:
        """Reports what is held, now."""
        self._read()
        self._tell()

    def report_training(self, at: Position) -> None:
        """Reports every step up to now."""
        self.settle()
        if self._train.pending:
            self._held = _Held(at, self._train.hold())
            self.settle()

    def report_before_failure(self, at: Position) -> None:
        """Reports the steps up to `at`, where training failed, as far as they can be read: not if the step after `at`
        was traced but did not run, since a read would run it, nor if the other processes are needed."""
        if not self._cores.alone or self._is_traced:
            return
        with contextlib.suppress(Exception):
            self.report_training(at)

    def _read(self) -> None:
        """Waits for the held steps and reads them; one transfer."""
        held = self._held
        if held is None:
            return
        self._held = None
        with self.sections.section("execute"):
            backend.wait()
        with self.sections.section("report"):
            steps = self._train.read(held.steps)
            step_s = self._step_s(len(steps.means))
            self._train.cadence.retune(step_s)
            self._unsaid = _Unsaid(held.at, steps, step_s)
        self._restart_pace()

    def _tell(self) -> None:
        """Puts what was read in the journal."""
        if self._unsaid is None:
            return
        (at, steps, step_s), self._unsaid = self._unsaid, None
        with self.sections.section("report"):
            meters = self._train.meters
            lr = self._lr(at)
            self._report_steps(at, steps.means, step_s, lr=lr, report_steps=self._train.cadence.steps)
            self._lookout.look(at.step - len(steps.means) + 1, steps.means, steps.norms)
            self._report_meters(at, "train", meters.readings(), meters.reduced)
            self._report_runtime()

    def begin_evaluation(self) -> None:
        """Starts the meters of an evaluation."""
        self._valid.restart()
        self._running = self._valid
        self._judge.restart()
        self._restart_pace()

    def evaluation_step(self, evaluation: Evaluation, batch: Batch, at: Position) -> None:
        """Runs a traced evaluation step; reports where that falls due."""
        self._valid.push(evaluation.outcomes, batch)
        self._judge.add(evaluation, batch)
        self.programs.run("evaluate")
        if self._is_due(self._valid):
            self.report_evaluation(at)

    def report_evaluation(self, at: Position) -> None:
        """Reports every evaluation batch since the last report."""
        steps = self._valid.pending
        if not steps:
            return
        with self.sections.section("report"):
            with self.sections.section("evaluate"):
                backend.wait()
            # Sums: a core without an example has no mean.
            self._valid_lookout.look(at.step, self._valid.read(self._valid.hold()).sums)
            self._judge.fetch()
            self._valid.cadence.retune(self._step_s(steps))
            self._report_meters(at, "valid", self._valid.meters.readings(), self._valid.meters.reduced)
            self._report_runtime()
        self._restart_pace()

    def judge(self) -> EvalResult:
        """What the evaluation came to."""
        with self.sections.section("evaluate"):
            return EvalResult(self._valid.meters.readings(), self._judge.scores(), self._judge.pictures())

    def end_epoch(self, at: Position, verdict: EvalResult, *, train_s: float, valid_s: float, best: bool) -> None:
        """Sums the epoch up; `at` is its last position."""
        self._reporter.emit(
            ev.EpochEnded(
                t=time.time(),
                epoch=at.epoch,
                step=at.step,
                train=self._train.meters.readings(),
                valid=verdict.meters,
                train_s=train_s,
                valid_s=valid_s,
                sections_s=self.sections.totals(),
                lr=self._lr(at),
                best=best,
                scores=verdict.scores,
                trace_s={
                    name: spent
                    for name, spent in self._learner.parts.totals().items()
                    if name not in ("compile", "other")
                },
            )
        )

    def _lr(self, at: Position) -> float:
        """Learning rate of the step that ended at `at`."""
        return self._plan.learning_rate(at.epoch, at.batch - 1)

    def _is_due(self, tally: StepBuffer) -> bool:
        return tally.due if self._cores.alone else self._due

    def _tally(self, *, with_norm: bool = False) -> StepBuffer:
        config = self._plan.config
        return StepBuffer(
            self._plan.task.meters,
            self._cores,
            ReportInterval(config.report.interval_s, config.report.every_batches),
            with_norm=with_norm,
        )

"""The training loop: epochs of training steps, each followed by an evaluation and a save.

Each step is one sync and no read; `StepReporter` reads what steps leave on the device. Requests are polled at every
boundary between steps, where the state is complete. Must not import the runtime or a task.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from torch import nn

from engine.checkpoint.checkpoint_store import CheckpointStore
from engine.checkpoint.resume import Checkpoint, Position
from engine.data.batch_reader import DataWait
from engine.data.feed import BatchFeeds, Feed
from engine.errors import OutOfMemory, Stopped
from engine.loop.artifacts import RunArtifacts
from engine.loop.checkpoint_manager import CheckpointManager
from engine.loop.evaluation import EvalReporter, EvalResult
from engine.loop.events import EventEmitter
from engine.loop.optimizer import learning_rate
from engine.loop.reporting import StepReporter
from engine.loop.train_step import TrainStep
from engine.memory.layer_table import Recorder
from engine.parallel.coordinator import Coordinator, ReportSchedule
from engine.process.requests import RequestQueue
from engine.task import Plan
from tputui.reporting import Request
from tputui.reporting import events as ev

POLL_S = 0.2
"""Interval at which requests are polled while the loop waits for a batch."""


class Trainer:
    """Trains a plan to its end, or until a request stops it."""

    def __init__(
        self,
        plan: Plan,
        feeds: BatchFeeds,
        train_step: TrainStep,
        events: EventEmitter,
        requests: RequestQueue,
        store: CheckpointStore,
        artifacts: RunArtifacts,
        explain: Callable[[BaseException], str | None],
    ) -> None:
        """`explain` returns what to change if an error means that memory ran out, else None."""
        strategy = train_step.strategy
        self.position = Position(epoch=1, batch=0, step=0, evaluating=False)
        self.events = events
        self._plan = plan
        self._strategy = strategy
        self._feeds = feeds
        self._train_step = train_step
        events.programs.follow(train_step.optimizer)
        self._coordinator = Coordinator(strategy, events.sections, events.programs.run)
        self.reporter = StepReporter(
            plan, strategy, events, self._coordinator, self._lr, meters=plan.task.meters, with_norm=plan.keeps_norms
        )
        self._evaluation = EvalReporter(plan, strategy, events, self._coordinator)
        self._requests = requests
        self._manager = CheckpointManager(plan.config, events, store, self._state)
        self._artifacts = artifacts
        self._explain = explain
        self._waiting = DataWait(feeds.remedy)
        self._layers: Recorder | None = Recorder(train_step.model)
        """Records the layers during the first step."""
        self._losses: list[tuple[float, float]] = []
        self._meters: dict[str, list[float]] = {}
        """State of the meters of an epoch that another run began."""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continues from a checkpoint. Raises `Refused` if it belongs to another network."""
        self._train_step.restore(checkpoint.training_state, new_settings=checkpoint.new_settings)
        self.position = checkpoint.position
        self._manager.best.restore(checkpoint.best, checkpoint.best_epoch)
        self._losses = list(checkpoint.losses)
        self._meters = checkpoint.meters
        self.events.progress.step = self.position.step

    def begin(self) -> None:
        config, at = self._plan.config, self.position
        self.events.begin_training(
            at,
            ev.TrainingPlanned(
                t=time.time(),
                num_epochs=config.epochs,
                first_step=at.step + 1,
                batch_per_core=config.batch_per_core,
                global_batch=config.global_batch,
                task=config.task,
                steps_per_epoch=self._plan.steps_per_epoch,
                valid_steps=self._plan.valid_steps,
                train_examples=self._plan.sizes.train,
                valid_examples=self._plan.sizes.valid,
                num_parameters=self._train_step.num_parameters,
                precision=str(config.device.precision),
                lr=learning_rate(self._plan, at.epoch, at.batch),
                lr_rule=config.lr_rule,
                guess_loss=self._plan.task.guess_loss,
            ),
        )

    def train(self) -> str:
        """Trains every epoch that is left and returns the result in one sentence.

        Raises `Stopped`, `NotFinite` and `OutOfMemory`.
        """
        self.begin()
        try:
            while self.position.epoch <= self._plan.config.epochs:
                self.train_epoch()
        except BaseException as error:
            page = self._explain(error) if isinstance(error, RuntimeError | MemoryError) else None
            if page is not None:
                raise OutOfMemory(page) from error
            self.reporter.report_before_failure(self.position)
            if isinstance(error, Stopped):
                self.events.end_training(self.position)
            raise
        self.events.end_training(self.position)
        epochs = self._plan.config.epochs
        return self._manager.conclude(f"{epochs} epoch{'s' if epochs != 1 else ''} trained")

    def train_epoch(self) -> None:
        """Trains, evaluates and saves one epoch, or what is left of it. Raises `Stopped` and `NotFinite`."""
        self.begin_epoch()
        began = time.perf_counter()
        if not self.position.evaluating:
            self.train_steps()
            self.position = self.position._replace(evaluating=True)
        trained = time.perf_counter()
        self._evaluate()
        evaluated = time.perf_counter()
        self._end_epoch(trained - began, evaluated - trained)

    def begin_epoch(self) -> None:
        """Restarts the clocks and meters of an epoch."""
        self._train_step.trace_timer.restart()
        self.reporter.begin_epoch(self._meters)
        self.events.begin_epoch(self.position)
        self._meters = {}

    def train_steps(self) -> None:
        """Trains the steps of the epoch that are left."""
        self._train_step.model.train()
        sections = self.events.sections
        with self._feeds.training(self.position.epoch, self.position.batch) as feed:
            batches = iter(feed)
            for _ in range(self.position.batch, self._plan.steps_per_epoch):
                self._serve_requests(self.reporter.buffer)
                self.events.between_steps(self.position)
                if not feed.ready:
                    self.reporter.flush()
                began = time.perf_counter()
                with sections.section("data"):
                    self._wait_for(feed)
                    batch = next(batches)
                waited_s = time.perf_counter() - began
                self._feeds.times.waited_s += waited_s
                self._coordinator.begin_step()
                with sections.section("trace"):
                    outcomes = self._train_step.step(batch.tensors, self.position, self._reduce_gradients)
                    self.reporter.append(outcomes, batch, self._train_step.take_gradient_norm())
                    del outcomes
                if self._layers is not None:
                    # Before its compilation, which may take long.
                    batch_size = self._plan.config.batch_per_core * self._strategy.traced
                    self._artifacts.layers(self._layers, batch_size, self.events.warn)
                    self._layers = None
                at = self.position._replace(batch=self.position.batch + 1, step=self.position.step + 1)
                self.reporter.run("step" if self._plan.updates(at.batch - 1) else "accumulate", at)
                self.position = at
                self._warn_of_waiting(waited_s, time.perf_counter() - began)
                self._check_finite()
        self.reporter.report_pending(self.position)
        self._check_finite()

    def _evaluate(self) -> None:
        self._train_step.begin_evaluation()
        self._evaluation.begin()
        with self.events.sections.section("evaluate"), self._feeds.validation() as feed:
            self._wait_for(feed)
            for batch in feed:
                self._serve_requests(self._evaluation.buffer)
                evaluation = self._train_step.evaluate(batch.tensors, self.position.step)
                self._evaluation.run(evaluation, batch, self.position)
                self._check_finite()
                self._wait_for(feed)
            self._evaluation.report_pending(self.position)
            self._check_finite()

    def _end_epoch(self, train_s: float, valid_s: float) -> None:
        ended, monitor = self.position, self._plan.config.checkpoint.monitor
        result, best = self._evaluation.result(), self._manager.best
        value = result.value(monitor)
        if math.isnan(value):
            self.events.warn(f"{monitor} is NaN, so epoch {ended.epoch} cannot be the best")
        is_best = best.update(value, ended.epoch)
        self._losses.append((self.reporter.mean_loss, result.meters["loss"].avg))
        self.position = Position(epoch=ended.epoch + 1, batch=0, step=ended.step, evaluating=False)
        requests = self._shared(self._requests.take(epoch_end=True))
        record = partial(
            self.events.end_epoch,
            ended,
            self.reporter.buffer.meters.readings(),
            result.meters,
            train_s=train_s,
            valid_s=valid_s,
            lr=self._lr(ended),
            scores=result.scores,
            trace_s=self._train_step.trace_s(),
        )
        with self.events.progress.saving:
            try:
                saved = self._manager.end_epoch(ended.epoch, requests, is_best=is_best)
            except Exception:
                if self._manager.ended_by_others:
                    # Training continues after this epoch.
                    record(best=is_best)
                raise
            record(best=best.epoch == ended.epoch)
        self._write_artifacts(ended, result)
        if saved is not None:
            self._manager.acknowledge(requests, saved, self.position)

    def _write_artifacts(self, ended: Position, result: EvalResult) -> None:
        """Writes losses and pictures; training does not depend on them."""
        try:
            with self.events.sections.section("save"):
                self._artifacts.losses(self._losses)
                self.events.pictures_written(ended, self._artifacts.pictures(ended.epoch, result.pictures))
        except OSError as error:
            self.events.warn(f"the losses or pictures of epoch {ended.epoch} could not be written: {error.strerror}")

    def _wait_for(self, feed: Feed) -> None:
        """Waits for a batch. If this is the only process, requests are served and steps reported meanwhile.

        The phase is `data` in an evaluation as well, so that a wait that lasts too long is noticed.
        """
        progress = self.events.progress
        phase, began = progress.doing.phase, time.monotonic()
        while not feed.wait(POLL_S):
            # From the beginning of the wait, whatever was reported and saved meanwhile.
            progress.enter("data", began)
            if self._strategy.is_only:
                self.reporter.report_pending(self.position)
                self._serve_requests(self.reporter.buffer)
        progress.enter(phase)

    def _warn_of_waiting(self, waited_s: float, took_s: float) -> None:
        """Warns once if most of the time is spent waiting for data; the first process warns for all."""
        warning = self._waiting.add(waited_s, took_s)
        if warning is not None and self._strategy.is_first:
            self.events.warn(warning)

    def _reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        requested = self._requests.is_pending
        self._coordinator.reduce_gradients(self.reporter.buffer, parameters, requested=requested)

    def _serve_requests(self, schedule: ReportSchedule) -> None:
        """Serves pending requests, all with one save, if the weights contain the gradients of every batch."""
        if not self._coordinator.should_serve(schedule, requested=self._requests.is_pending and self._is_complete):
            return
        requests = self._shared(self._requests.take())
        if requests:
            self.reporter.report_pending(self.position)
            self._manager.serve_requests(requests, self.position)

    def _shared(self, requests: list[Request]) -> list[Request]:
        """The requests to all processes that ask for a save, from every host. Collective."""
        shared = self._coordinator.share_requests(requests)
        for request in self._requests.adopt(shared):
            self.events.server.seen(request)
        return self.events.take_traces(shared)

    def _check_finite(self) -> None:
        """Ends training if a loss or gradient is not finite and the configuration says so. Raises `NotFinite`."""
        if self._is_complete:
            not_finite = self.reporter.not_finite or self._evaluation.not_finite
            self._manager.enforce_finite(not_finite, self.position, self.reporter.report_pending)

    @property
    def _is_complete(self) -> bool:
        """Whether no accumulated gradient waits for its update: only then the state can be saved."""
        return self.position.batch % self._plan.config.optim.accumulate == 0

    def _lr(self, at: Position) -> float:
        """Learning rate of the step that ended at a position."""
        return learning_rate(self._plan, at.epoch, at.batch - 1)

    def _state(self) -> Checkpoint:
        meters = self.reporter.buffer.meters.state() if self.position.batch else {}
        state, best = self._train_step.state(), self._manager.best
        losses, buffers = tuple(self._losses), self._train_step.buffer_names
        return Checkpoint(self.position, state, meters, best.value, best.epoch, losses, buffers)

"""The loop: epochs of training steps, each followed by an evaluation and a save.

One sync a step and no read; what a step leaves is fetched by `StepReporter`. Requests are looked for at every boundary,
where the state is whole. Must know neither the runtime nor a task.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from engine.checkpoint.checkpoint_files import Checkpoint, CheckpointStore
from engine.checkpoint.position import Position
from engine.data.feed import Feed
from engine.data.readers import Waiting
from engine.errors import OutOfMemory
from engine.loop.artifacts import RunArtifacts
from engine.loop.batches import BatchFeeds
from engine.loop.checkpoint_manager import CheckpointManager, Stopped, best_words
from engine.loop.reporting import EvalResult, StepReporter
from engine.loop.train_step import TrainStep
from engine.memory.layer_table import Recorder
from engine.process.requests import RequestQueue
from engine.task import Plan

__all__ = ["Stopped", "Trainer"]

HEED_S = 0.2
"""Between two looks at the requests while no batch comes."""


class Trainer:
    """Trains a plan to its end, or to the point where it is told to stop."""

    def __init__(
        self,
        plan: Plan,
        feeds: BatchFeeds,
        learner: TrainStep,
        reports: StepReporter,
        control: RequestQueue,
        store: CheckpointStore,
        keepsakes: RunArtifacts,
        explain: Callable[[BaseException], str | None],
    ) -> None:
        """`explain` tells what to do where an error means that memory ran out."""
        self.at = Position(epoch=1, batch=0, step=0, evaluating=False)
        self._plan = plan
        self._feeds = feeds
        self._learner = learner
        self._reports = reports
        self._control = control
        self._saver = CheckpointManager(reports, store, self._state)
        self._keepsakes = keepsakes
        self._explain = explain
        self._waiting = Waiting(feeds.remedy)
        self._layers: Recorder | None = Recorder(learner.model)
        """Follows the network through its first step."""
        self._best: float | None = None
        self._best_epoch = 0
        self._losses: list[tuple[float, float]] = []
        self._meters: dict[str, list[float]] = {}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint instead of from the start."""
        self._learner.restore(checkpoint.learner, new_settings=checkpoint.new_settings)
        self.at = checkpoint.position
        self._best = checkpoint.best
        self._best_epoch = checkpoint.best_epoch
        self._losses = list(checkpoint.losses)
        self._meters = checkpoint.meters
        self._reports.progress.step = self.at.step

    def train(self) -> str:
        """Trains every epoch that is left and says so in one sentence. Raises `Stopped`, `NotFinite`, `OutOfMemory`."""
        self._reports.open(self.at)
        try:
            while self.at.epoch <= self._plan.config.epochs:
                self.train_epoch()
        except BaseException as error:
            page = self._explain(error) if isinstance(error, RuntimeError | MemoryError) else None
            if page is not None:
                raise OutOfMemory(page) from error
            self._reports.report_before_failure(self.at)
            raise
        best = best_words(self._plan.config.checkpoint.monitor, self._best, self._best_epoch)
        return self._saver.conclude(f"{self._plan.config.epochs} epochs trained{best}")

    def train_epoch(self) -> None:
        """Trains, evaluates and saves the epoch that is due. Raises `Stopped`."""
        self._reports.begin_epoch(self.at, self._meters)
        self._meters = {}
        began = time.perf_counter()
        if not self.at.evaluating:
            self._train_steps()
            self.at = self.at._replace(evaluating=True)
        trained = time.perf_counter()
        self._evaluate()
        evaluated = time.perf_counter()
        self._end_epoch(trained - began, evaluated - trained)

    def _train_steps(self) -> None:
        self._learner.model.train()
        sections = self._reports.sections
        with self._feeds.training(self.at.epoch, self.at.batch) as feed:
            batches = iter(feed)
            for _ in range(self.at.batch, self._plan.steps_per_epoch):
                self._heed()
                if not feed.ready:
                    self._reports.settle()
                began = time.perf_counter()
                with sections.section("data"):
                    self._wait_for(feed)
                    batch = next(batches)
                waited_s = time.perf_counter() - began
                with sections.section("trace"):
                    outcomes = self._learner.step(
                        batch.tensors, self.at, partial(self._reports.reduce_gradients, self._control.asked)
                    )
                    self._reports.note_step(outcomes, batch)
                    del outcomes
                self._keep_layers()
                at = self.at._replace(batch=self.at.batch + 1, step=self.at.step + 1)
                self._reports.run_step(at)
                self.at = at
                self._note_wait(waited_s, time.perf_counter() - began)
                self._mind()
        self._reports.report_training(self.at)
        self._mind()

    def _evaluate(self) -> None:
        self._learner.begin_evaluation()
        self._reports.begin_evaluation()
        with self._reports.sections.section("evaluate"), self._feeds.validation() as feed:
            self._wait_for(feed)
            for batch in feed:
                self._heed()
                outcomes = self._learner.evaluate(batch.tensors, self.at.step)
                self._reports.evaluation_step(outcomes, batch, self.at)
                self._mind()
                self._wait_for(feed)
            self._reports.report_evaluation(self.at)
            self._mind()

    def _end_epoch(self, train_s: float, valid_s: float) -> None:
        ended, config = self.at, self._plan.config
        verdict = self._reports.judge()
        best_before = self._best, self._best_epoch
        figure = verdict.figure(config.checkpoint.monitor)
        best = self._is_best(figure)
        if math.isnan(figure):
            self._reports.warn(f"{config.checkpoint.monitor} is no number, so epoch {ended.epoch} cannot be the best")
        # The checkpoint tells all of this, so it stands before it is saved.
        if best:
            self._best, self._best_epoch = figure, ended.epoch
        self._losses.append((self._reports.train_loss, verdict.meters["loss"].avg))
        self.at = Position(epoch=ended.epoch + 1, batch=0, step=ended.step, evaluating=False)
        last = ended.epoch == config.epochs
        asked = self._control.take(epoch_end=True)
        due = last or best or ended.epoch % config.checkpoint.every_epochs == 0
        saved = self._saver.end_epoch(asked, best=best, must=last) if due or asked else None
        if saved is None or saved.unfit:
            # Weights that were not kept, or are no numbers, are not the best ones to have.
            (self._best, self._best_epoch), best = best_before, False
        self._reports.end_epoch(ended, verdict, train_s=train_s, valid_s=valid_s, best=best)
        self._keep(ended, verdict)
        if saved is not None:
            self._saver.answer(asked, saved, self.at, last=last)

    def _keep_layers(self) -> None:
        """Writes the table of layers once the first step was traced: before it is compiled, which may take long."""
        recorder, self._layers = self._layers, None
        if recorder is None:
            return
        recorder.close()
        size = self._plan.config.batch_per_core * len(self._learner.strategy.own)
        try:
            self._keepsakes.layers(recorder.table(size))
        except OSError as error:
            self._reports.warn(f"the table of layers could not be written: {error.strerror}")

    def _keep(self, ended: Position, verdict: EvalResult) -> None:
        """Writes the user's files; training does not depend on them."""
        try:
            with self._reports.sections.section("save"):
                self._keepsakes.losses(self._losses)
                self._reports.kept(ended, self._keepsakes.pictures(ended.epoch, verdict.pictures))
        except OSError as error:
            self._reports.warn(f"the losses or pictures of epoch {ended.epoch} could not be kept: {error.strerror}")

    @property
    def _is_whole(self) -> bool:
        """Whether no gradient waits for its update: only then the state can be saved."""
        return self.at.batch % self._plan.config.optim.accumulate == 0

    def _is_best(self, figure: float) -> bool:
        """Whether the figure beats all before it; NaN never does."""
        if math.isnan(figure):
            return False
        sign = 1 if self._plan.config.checkpoint.mode == "min" else -1
        return self._best is None or sign * figure < sign * self._best

    def _wait_for(self, feed: Feed) -> None:
        """Waits for a batch. Data that do not come hold up no request and no report, but where other processes are in
        the step.

        In an evaluation too the wait is one for data: in that phase it is seen where it lasts too long.
        """
        progress = self._reports.progress
        phase, began = progress.doing.phase, time.monotonic()
        while not feed.wait(HEED_S):
            # Since it began to wait, whatever was reported and saved meanwhile.
            progress.enter("data", began)
            if self._learner.strategy.alone:
                self._reports.report_training(self.at)
                self._heed()
        progress.enter(phase)

    def _note_wait(self, waited_s: float, took_s: float) -> None:
        """Says once if most of the time goes by waiting for data. Of several processes the first one does."""
        said = self._waiting.add(waited_s, took_s)
        if said is not None and self._learner.strategy.own.start == 0:
            self._reports.warn(said)

    def _heed(self) -> None:
        """Serves the requests that wait, all with one save, once the gradients of every batch are in the weights."""
        if not self._reports.agree(self._control.asked and self._is_whole):
            return
        asked = self._control.take()
        self._reports.report_training(self.at)
        self._saver.serve(asked, self.at)

    def _mind(self) -> None:
        """Ends training where loss or gradient are not finite and the configuration says so. Raises `NotFinite`."""
        if not self._is_whole:
            return
        policy = self._plan.config.non_finite.policy
        self._saver.mind(self._reports.not_finite, policy, self.at, self._reports.report_training)

    def _state(self) -> Checkpoint:
        meters = self._reports.train_meters.state() if self.at.batch else {}
        losses = tuple(self._losses)
        state, buffers = self._learner.state(), self._learner.buffers
        return Checkpoint(self.at, state, meters, self._best, self._best_epoch, losses, buffers)

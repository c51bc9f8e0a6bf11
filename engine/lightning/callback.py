"""Follows Lightning's loop by its own hooks: runs each traced program, reports, saves, and serves requests.

A training step is traced by Lightning and run at the end of its batch, where the state is whole; that is where
requests are served, and in the same way at the end of an epoch. Must not compute anything of training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from engine.checkpoint.checkpoint_files import Checkpoint
from engine.checkpoint.position import Position
from engine.data.readers import Waiting
from engine.lightning import logged_values, tied_weights
from engine.lightning.reporting import Facts, LightningReporter
from engine.loop.artifacts import RunArtifacts
from engine.loop.checkpoint_manager import CheckpointManager, best_words
from engine.memory.layer_table import Recorder
from engine.models import batchnorm
from engine.parallel.base import Strategy
from engine.process.requests import RequestQueue
from engine.task import Plan
from engine.xla import backend
from tputui.telemetry import events as ev


class LoopCallback(Callback):
    """What our side knows of a run that Lightning trains."""

    def __init__(
        self,
        plan: Plan,
        cores: Strategy,
        reports: LightningReporter,
        control: RequestQueue,
        before: tied_weights.Ties,
        resumed: Checkpoint | None,
    ) -> None:
        """`before` are the module's ties before Lightning touched it."""
        self.at = resumed.position if resumed else Position(epoch=1, batch=0, step=0, evaluating=False)
        self.saver: CheckpointManager
        """To be set before training: its store needs the trainer."""
        self.facts: Facts
        """To be set before the first step, once the loaders are known."""
        self.keepsakes: RunArtifacts
        """To be set before training."""
        self._layers: Recorder | None = None
        self._plan = plan
        self._cores = cores
        self._reports = reports
        self._control = control
        self._before = before
        self._best = resumed.best if resumed else None
        self._best_epoch = resumed.best_epoch if resumed else 0
        self._losses = resumed.losses if resumed else ()
        self._meters = resumed.meters if resumed and resumed.position.batch else {}
        self._open = False
        self._began = self._trained = self._evaluated = 0.0
        self._waiting: Waiting | None = None
        self._stepped = self._data_s = 0.0
        self._pot: dict[str, Any] = {}
        self._valid_names: set[str] = set()
        self._valid: dict[str, ev.MeterReading] = {}
        self._evaluating: AbstractContextManager[None] | None = None
        self._buffers: frozenset[str] = frozenset()

    @property
    def evaluating(self) -> bool:
        """Whether Lightning is inside the validation split."""
        return self._evaluating is not None

    @property
    def best_words(self) -> str:
        """The best epoch, to follow another sentence; empty where there is none."""
        return best_words(self._plan.config.checkpoint.monitor, self._best, self._best_epoch)

    def take_best(self, resumed: Checkpoint) -> None:
        """Which epoch is the best so far; none where its weights are not there, and the best is chosen anew."""
        self._best, self._best_epoch = resumed.best, resumed.best_epoch

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is on the device now."""
        tied_weights.check(self._before, pl_module)
        batchnorm.correct(pl_module)
        self._buffers = frozenset(name for name, _ in pl_module.named_buffers())

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Every loader is known now."""
        self._note_lr(trainer)
        self._reports.progress.step = self.at.step
        self._reports.open(self.at, self.facts)
        self._layers = Recorder(pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the epoch's clock."""
        self._begin_epoch(trainer)
        # Lightning has set back what it keeps of logged figures, and would do so again in the first training step that
        # logs: a part of the step's program then, which would be compiled once more for it in the second epoch.
        trainer._logger_connector._current_fx = "training_step"
        self._reports.programs.run("reset")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Ties what a step draws to its number alone."""
        # An epoch that another run began has no start here.
        self._begin_epoch(trainer)
        backend.seed((self._plan.config.seed << 32) + self.at.step + 1, self._cores.device)

    def _keep_layers(self) -> None:
        """Writes the table of layers once the first step was traced."""
        recorder, self._layers = self._layers, None
        if recorder is None:
            return
        recorder.close()
        try:
            self.keepsakes.layers(recorder.table(self._plan.config.global_batch))
        except OSError as error:
            self._reports.warn(f"the table of layers could not be written: {error.strerror}")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Runs the step, and serves what was asked for."""
        self._keep_layers()
        given = outputs if isinstance(outputs, Mapping) else {"loss": outputs}
        self._reports.note_step(given.get("loss"), given.get("losses"))
        self.at = self.at._replace(batch=self.at.batch + 1, step=self.at.step + 1)
        self._note_lr(trainer)
        self._reports.run_step(self.at)
        self._note_wait(trainer)
        if self.at.batch < self.facts.steps_per_epoch:
            self._mind()
            self._heed()
        else:
            # The evaluation comes next; Lightning goes on from an epoch that is whole.
            self._reports.report_training(self.at)
            self._trained = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on time is evaluation's."""
        self._evaluating = self._reports.sections.section("evaluate")
        self._evaluating.__enter__()
        self._pot = dict(trainer.callback_metrics)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Runs the batch: what Lightning traces would grow to the end of the split."""
        last = batch_idx + 1 == self.facts.valid_steps
        self._reports.programs.run("last evaluate" if last else "evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reads what was logged, once."""
        logged = logged_values.changed(self._pot, trainer.callback_metrics)
        self._valid_names = set(logged)
        self._valid = logged_values.meters(self._reports.read_figures(logged), "valid")
        self._reports.report_evaluation(self.at, self._valid)
        if self._evaluating is not None:
            self._evaluating.__exit__(None, None, None)
            self._evaluating = None
        self._evaluated = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves and sums up; an epoch that another run ended is passed over."""
        if not self._open:
            return
        self._open = False
        train = self._train_figures(trainer)
        ended, best_before = self.at, (self._best, self._best_epoch)
        best = self._is_best(ended.epoch)
        self._losses = (*self._losses, _losses(train, self._valid))
        self.at = Position(epoch=ended.epoch + 1, batch=0, step=ended.step, evaluating=False)
        config = self._plan.config
        last = ended.epoch == config.epochs
        asked = self._control.take(epoch_end=True)
        due = last or best or ended.epoch % config.checkpoint.every_epochs == 0
        saved = self.saver.end_epoch(asked, best=best, must=last) if due or asked else None
        if best and (saved is None or saved.unfit):
            # Weights that were not kept, or are no numbers, are not the best ones to have.
            (self._best, self._best_epoch), best = best_before, False
        self._end_epoch(ended, train, best=best)
        self._keep(ended)
        if saved is not None:
            self.saver.answer(asked, saved, self.at, last=last)
        self._mind()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Reports the steps before a failure."""
        self._reports.report_before_failure(self.at)

    def _begin_epoch(self, trainer: Trainer) -> None:
        if self._open:
            return
        self._open = True
        self._began = self._trained = self._evaluated = time.perf_counter()
        self._valid = {}
        self._reports.begin_epoch(self.at, self._meters)
        self._stepped, self._data_s = self._began, 0.0
        self._meters = {}

    def _note_lr(self, trainer: Trainer) -> None:
        optimizers = trainer.optimizers
        self._reports.lr = float(optimizers[0].param_groups[0]["lr"]) if optimizers else float("nan")

    def _train_figures(self, trainer: Trainer) -> dict[str, ev.MeterReading]:
        logged = {name: value for name, value in trainer.callback_metrics.items() if name not in self._valid_names}
        ours = self._reports.train_readings()
        return {**ours, **logged_values.meters(self._reports.read_figures(logged), "train", ours)}

    def _is_best(self, epoch: int) -> bool:
        checkpoint = self._plan.config.checkpoint
        figure = logged_values.monitored(checkpoint.monitor, self._valid)
        if figure is None:
            known = ", ".join(self._valid) or "nothing"
            self._reports.warn(
                f'checkpoint.monitor: "{checkpoint.monitor}" was not logged in validation, so no epoch is the best; '
                f"logged: {known}"
            )
            return False
        sign = 1 if checkpoint.mode == "min" else -1
        if math.isnan(figure) or (self._best is not None and sign * figure >= sign * self._best):
            return False
        # The checkpoint tells it, so it stands before it is saved.
        self._best, self._best_epoch = figure, epoch
        return True

    def _end_epoch(self, ended: Position, train: dict[str, ev.MeterReading], *, best: bool) -> None:
        self._reports.end_epoch(
            ev.EpochEnded(
                t=time.time(),
                epoch=ended.epoch,
                step=ended.step,
                train=train,
                valid=self._valid,
                train_s=self._trained - self._began,
                valid_s=max(0.0, self._evaluated - self._trained),
                sections_s=self._reports.sections.totals(),
                lr=self._reports.lr,
                best=best,
            )
        )

    def _keep(self, ended: Position) -> None:
        """Writes the user's files; training does not depend on them."""
        try:
            with self._reports.sections.section("save"):
                self.keepsakes.losses(list(self._losses))
        except OSError as error:
            self._reports.warn(f"the losses of epoch {ended.epoch} could not be written: {error.strerror}")

    def _note_wait(self, trainer: Trainer) -> None:
        """Says once if most of the time goes by waiting for data."""
        if self._waiting is None:
            number = getattr(trainer.train_dataloader, "num_workers", 0)
            self._waiting = Waiting(f"the training DataLoader has num_workers = {number}; more of them read ahead")
        now, data_s = time.perf_counter(), self._reports.sections.totals()["data"]
        said = self._waiting.add(data_s - self._data_s, now - self._stepped)
        self._data_s, self._stepped = data_s, now
        if said is not None:
            self._reports.warn(said)

    def _heed(self) -> None:
        """Serves the requests that wait, all with one save."""
        if not self._control.asked:
            return
        asked = self._control.take()
        self._reports.report_training(self.at)
        self.saver.serve(asked, self.at)

    def _mind(self) -> None:
        """Ends training where the loss is not finite and the configuration says so. Raises `NotFinite`."""
        policy = self._plan.config.non_finite.policy
        self.saver.mind(self._reports.not_finite, policy, self.at, self._reports.report_training)

    def state(self) -> Checkpoint:
        """What our side keeps of the run as of now; Lightning's own state is the store's."""
        meters = self._reports.meters_state() if self.at.batch else {}
        return Checkpoint(self.at, {}, meters, self._best, self._best_epoch, self._losses, self._buffers)


def _losses(train: dict[str, ev.MeterReading], valid: dict[str, ev.MeterReading]) -> tuple[float, float]:
    nothing = float("nan")
    return train["loss"].avg if "loss" in train else nothing, valid["loss"].avg if "loss" in valid else nothing

"""`LoopCallback`: follows Lightning's loop by its hooks; runs each traced program, reports, saves, serves requests.

Lightning traces a training step, and the callback runs it at the end of its batch, where the state is complete.
Requests are served there and at the end of an epoch. Must not compute anything of training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from msgspec.structs import replace

from engine.checkpoint.checkpoint_store import CheckpointStore
from engine.checkpoint.resume import Checkpoint, Position
from engine.data.batch_reader import DataWait
from engine.data.feed import Batch
from engine.errors import Stopped
from engine.loop import network
from engine.loop.artifacts import RunArtifacts
from engine.loop.checkpoint_manager import CheckpointManager
from engine.loop.events import EventEmitter
from engine.loop.reporting import StepReporter
from engine.memory.layer_table import Recorder
from engine.parallel.base import Strategy
from engine.parallel.coordinator import Coordinator
from engine.process.requests import RequestQueue
from engine.task import Plan
from engine.xla import backend
from tputui.reporting import events as ev
from tputui.reporting import logged_meters, newly_logged, without_split

REDUCED = "as Lightning reduced it: by default the mean over batches, weighted by their examples; one value for all"
"""How a logged value was computed, in words."""
WARM_UP_RUNS = {"step": 3}
"""Runs in which a program may be compiled: Lightning's own state of logged values begins anew in each pass."""


class LoopCallback(Callback):
    """The position, state and result of a run that Lightning trains."""

    def __init__(
        self,
        plan: Plan,
        cores: Strategy,
        events: EventEmitter,
        requests: RequestQueue,
        artifacts: RunArtifacts,
        ties: network.Ties,
        resumed: Checkpoint | None,
    ) -> None:
        """`ties` are the tied parameters of the module before Lightning moves it to the device."""
        self.position = resumed.position if resumed else Position(epoch=1, batch=0, step=0, evaluating=False)
        self.planned: ev.TrainingPlanned
        """Must be set before the first step, once the loaders are known; its learning rate is not."""
        self._manager: CheckpointManager
        self._events = events
        self._reporter = LightningReporter(plan, cores, events)
        self._layers: Recorder | None = None
        """Records the layers during the first step."""
        self._plan = plan
        self._cores = cores
        self._requests = requests
        self._artifacts = artifacts
        self._ties = ties
        self._losses = resumed.losses if resumed else ()
        self._meters = resumed.meters if resumed and resumed.position.batch else {}
        self._in_epoch = False
        self._began = self._trained = self._evaluated = 0.0
        self._waiting: DataWait | None = None
        self._stepped = self._data_s = 0.0
        self._logged_before: dict[str, Any] = {}
        """What was logged before the validation split."""
        self._valid_names: set[str] = set()
        """Names that were logged in the validation split."""
        self._valid: dict[str, ev.MeterReading] = {}
        self._evaluating: AbstractContextManager[None] | None = None
        self._buffers: frozenset[str] = frozenset()

    def save_to(self, store: CheckpointStore) -> None:
        """Sets the store, which needs the Trainer. Must be called before training."""
        self._manager = CheckpointManager(self._plan.config, self._events, store, self._state)

    def restore_best(self, resumed: Checkpoint) -> None:
        """Continues with the best epoch of a checkpoint."""
        self._manager.best.restore(resumed.best, resumed.best_epoch)

    def conclude(self, trained: str) -> str:
        """As `CheckpointManager.conclude`."""
        self._events.end_training(self.position)
        return self._manager.conclude(trained)

    @property
    def is_evaluating(self) -> bool:
        """Whether Lightning is inside the validation split."""
        return self._evaluating is not None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is on the device."""
        network.check_ties(self._ties, pl_module)
        network.correct_batchnorm(pl_module)
        self._buffers = frozenset(name for name, _ in pl_module.named_buffers())

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Every loader is known."""
        self._reporter.lr = _lr(trainer)
        self._events.progress.step = self.position.step
        self._events.begin_training(self.position, replace(self.planned, lr=self._reporter.lr))
        self._layers = Recorder(pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin_epoch()
        # Lightning has just reset its logged values, and would reset them again in the first training step that logs,
        # as a part of the step's program, which would then be compiled again in the second epoch.
        trainer._logger_connector._current_fx = "training_step"
        self._events.programs.run("reset")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Makes the random numbers of a step depend on its number only."""
        # Lightning starts no epoch that another run began.
        self._begin_epoch()
        backend.seed((self._plan.config.seed << 32) + self.position.step + 1, self._cores.device)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Runs the step and serves requests."""
        if self._layers is not None:
            self._artifacts.layers(self._layers, self._plan.config.global_batch, self._events.warn)
            self._layers = None
        given = outputs if isinstance(outputs, Mapping) else {"loss": outputs}
        self._reporter.append(given.get("loss"), given.get("losses"))
        self.position = self.position._replace(batch=self.position.batch + 1, step=self.position.step + 1)
        self._reporter.lr = _lr(trainer)
        self._reporter.steps.run("step", self.position)
        self._warn_of_waiting(trainer)
        self._events.between_steps(self.position)
        if self.position.batch < self.planned.steps_per_epoch:
            self._check_finite()
            self._serve_requests()
        else:
            # The evaluation comes next; Lightning can resume only from a completed epoch then.
            self._reporter.steps.report_pending(self.position)
            self._trained = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins the section `evaluate`."""
        self._evaluating = self._events.sections.section("evaluate")
        self._evaluating.__enter__()
        self._logged_before = dict(trainer.callback_metrics)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Runs the batch, since Lightning's trace would grow to the end of the split."""
        last = batch_idx + 1 == self.planned.valid_steps
        self._events.programs.run("last evaluate" if last else "evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reads and reports the logged values."""
        logged = newly_logged(self._logged_before, trainer.callback_metrics)
        self._valid_names = set(logged)
        self._valid = logged_meters(self._reporter.read_logged(logged), "valid")
        self._reporter.report_evaluation(self.position, self._valid)
        if self._evaluating is not None:
            self._evaluating.__exit__(None, None, None)
            self._evaluating = None
        self._evaluated = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves and reports the epoch, unless another run ended it."""
        if not self._in_epoch:
            return
        self._in_epoch = False
        ended, best, train = self.position, self._manager.best, self._train_meters(trainer)
        value = self._monitored_value()
        is_best = value is not None and best.update(value, ended.epoch)
        self._losses = (*self._losses, (_average_loss(train), _average_loss(self._valid)))
        self.position = Position(epoch=ended.epoch + 1, batch=0, step=ended.step, evaluating=False)
        requests = self._events.take_traces(self._requests.take(epoch_end=True))
        saved = self._manager.end_epoch(ended.epoch, requests, is_best=is_best)
        self._events.end_epoch(
            ended,
            train,
            self._valid,
            train_s=self._trained - self._began,
            valid_s=max(0.0, self._evaluated - self._trained),
            lr=self._reporter.lr,
            best=best.epoch == ended.epoch,
        )
        self._write_losses(ended)
        if saved is not None:
            self._manager.acknowledge(requests, saved, self.position)
        self._check_finite()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Reports the steps before a failure."""
        self._reporter.steps.report_before_failure(self.position)
        if isinstance(exception, Stopped):
            self._events.end_training(self.position)

    def _begin_epoch(self) -> None:
        if self._in_epoch:
            return
        self._in_epoch = True
        self._began = self._trained = self._evaluated = time.perf_counter()
        self._valid = {}
        self._reporter.steps.begin_epoch(self._meters)
        self._events.begin_epoch(self.position)
        self._stepped, self._data_s = self._began, 0.0
        self._meters = {}

    def _train_meters(self, trainer: Trainer) -> dict[str, ev.MeterReading]:
        logged = {name: value for name, value in trainer.callback_metrics.items() if name not in self._valid_names}
        ours = self._reporter.steps.buffer.meters.readings()
        return {**ours, **logged_meters(self._reporter.read_logged(logged), "train", ours)}

    def _monitored_value(self) -> float | None:
        """The value of `checkpoint.monitor`, with or without the split in its name; None if it was not logged."""
        monitor = self._plan.config.checkpoint.monitor
        reading = self._valid.get(monitor) or self._valid.get(without_split(monitor, "valid"))
        if reading is None:
            logged = ", ".join(self._valid) or "nothing"
            self._events.warn(
                f'checkpoint.monitor: "{monitor}" was not logged in validation, so no epoch is the best; '
                f"logged: {logged}"
            )
            return None
        return reading.avg

    def _write_losses(self, ended: Position) -> None:
        """Writes the losses of the epochs; training does not depend on them."""
        try:
            with self._events.sections.section("save"):
                self._artifacts.losses(list(self._losses))
        except OSError as error:
            self._events.warn(f"the losses of epoch {ended.epoch} could not be written: {error.strerror}")

    def _warn_of_waiting(self, trainer: Trainer) -> None:
        """Warns once if most of the time is spent waiting for data."""
        if self._waiting is None:
            number = getattr(trainer.train_dataloader, "num_workers", 0)
            self._waiting = DataWait(f"the training DataLoader has num_workers = {number}; more of them read ahead")
        now, data_s = time.perf_counter(), self._events.sections.totals()["data"]
        warning = self._waiting.add(data_s - self._data_s, now - self._stepped)
        self._data_s, self._stepped = data_s, now
        if warning is not None:
            self._events.warn(warning)

    def _serve_requests(self) -> None:
        if not self._requests.is_pending:
            return
        requests = self._events.take_traces(self._requests.take())
        if requests:
            self._reporter.steps.report_pending(self.position)
            self._manager.serve_requests(requests, self.position)

    def _check_finite(self) -> None:
        """Ends training if the loss is not finite and the configuration says so. Raises `NotFinite`."""
        steps = self._reporter.steps
        self._manager.enforce_finite(steps.not_finite, self.position, steps.report_pending)

    def _state(self) -> Checkpoint:
        """Our part of the state; Lightning's own is added by the store."""
        meters = self._reporter.steps.buffer.meters.state() if self.position.batch else {}
        best = self._manager.best
        return Checkpoint(self.position, {}, meters, best.value, best.epoch, self._losses, self._buffers)


class LightningReporter:
    """Reports steps, through the `StepReporter` of our own loop, and the values that the module logged."""

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


def _lr(trainer: Trainer) -> float:
    optimizers = trainer.optimizers
    return float(optimizers[0].param_groups[0]["lr"]) if optimizers else float("nan")


def _average_loss(meters: dict[str, ev.MeterReading]) -> float:
    return meters["loss"].avg if "loss" in meters else float("nan")

"""`TputuiCallback` for Lightning's Trainer in your own script: `Trainer(callbacks=[TputuiCallback()])`.

Works with any accelerator. The callback joins the run that launched the script (`tputui run -- ...`), else it creates a
run directory under `./runs` (or `$TPUTUI_RUNS`), for `tputui attach`, `show` and `replay`. Requests to save and to stop
are served after a batch. It never ends a training: an error of its own is reported once, in the log and on the screen.
Works with `lightning` and `pytorch_lightning`: importing this module imports neither, accessing the class imports one.

Several ranks are shown if `tputui run` launched them; otherwise only rank 0 is, and requests are refused. Losses stay
on the device and are read about once a second.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tputui.batch_rows import length_of, rows_of
from tputui.integrations.callbacks import FLOAT32, NamedMetrics, StepLosses, attached_run, harmless, made_class
from tputui.reporting.run import Run
from tputui.telemetry import events as ev
from tputui.telemetry.meters import logged_meters, newly_logged

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_PRECISIONS = {"32-true": "fp32", "bf16-true": "bf16", "bf16-mixed": "bf16"}
"""Our name by Lightning's name of a precision."""


class _Hooks(StepLosses):
    """The hooks of the callback. Trainer and module are accessed by name only, so that either package works."""

    def __init__(self, runs_dir: str | None = None) -> None:
        super().__init__(runs_dir)
        self._is_training = False
        self._step = 0
        """Newest step of this training: batches after which the optimizers stepped."""
        self._losses: list[Any] = []
        """Of the batches since the newest step."""
        self._examples_open = 0
        """Examples of these batches."""
        self._lr = math.nan
        """Learning rate of the newest step."""
        self._batch_size: int | None = None
        """Examples of a complete batch; None if the loader does not have a batch size."""
        self._epoch: AbstractContextManager[None] | None = None
        self._evaluation: AbstractContextManager[None] | None = None
        self._logged_before: dict[str, Any] = {}
        """What was logged before the validation split."""
        self._valid_names: set[str] = set()
        """What was logged in validation splits; an epoch without one still has the values of the one before."""

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Opens the run before data and module are set up."""
        if stage == "fit" and not self.is_attached:
            self._open(trainer, pl_module)

    def _open(self, trainer: Any, pl_module: Any) -> None:
        task = type(pl_module).__name__
        config = {"task": task, "epochs": trainer.max_epochs}
        ranks = {"rank": trainer.global_rank, "world_size": trainer.world_size}
        self._join(task, config, f"{task}.training_step", **ranks)

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Reports the plan. An attached callback opens the run: others have by now, and a tuner comes no further."""
        if self.is_attached:
            # Two installations of tputui attach two.
            first = next(callback for callback in trainer.callbacks if isinstance(callback, type(self)))
            if first is not self:
                return
            self._open(trainer, pl_module)
        if self._run is not None:
            self._is_training = True
            self._step = _steps_before(trainer)
            self._count_from(self._run, self._step, int(trainer.current_epoch))
            if not pl_module.automatic_optimization:
                self._begin_losses(is_scaled=False)
            self._report_plan(self._run, trainer, pl_module)

    def _report_plan(self, run: Run, trainer: Any, pl_module: Any) -> None:
        train, valid = _loader(trainer.train_dataloader), _loader(trainer.val_dataloaders)
        self._batch_size = getattr(train, "batch_size", None)
        num_epochs, num_steps, total_steps = _length(trainer)
        if not num_steps:
            if not self.is_attached:
                run.warn("the number of steps is not available: the loader has no length, or the Trainer no max_epochs")
            return
        batch = self._batch_size or 0
        global_batch = batch * trainer.world_size * trainer.accumulate_grad_batches
        valid_steps = sum(trainer.num_val_batches)
        sizes = [length_of(getattr(loader, "dataset", None)) or 0 for loader in (train, valid)]
        most_valid = valid_steps * trainer.world_size * (getattr(valid, "batch_size", None) or math.inf)
        run.emit(
            ev.TrainingPlanned(
                t=time.time(),
                task=type(pl_module).__name__,
                num_epochs=num_epochs + self._epoch_shift * bool(num_epochs),
                steps_per_epoch=num_steps,
                num_steps=total_steps + self._step_shift * bool(total_steps),
                valid_steps=0 if valid_steps == math.inf else int(valid_steps),
                first_step=self._step + self._step_shift + 1,
                batch_per_core=batch,
                global_batch=global_batch,
                train_examples=min(sizes[0] or num_steps * global_batch, num_steps * global_batch),
                valid_examples=int(min(sizes[1], most_valid)) if valid_steps else sizes[1],
                num_parameters=sum(p.numel() for p in pl_module.parameters() if p.requires_grad),
                precision=_PRECISIONS.get(str(trainer.precision), str(trainer.precision)),
                lr=_lr(trainer.optimizers),
                lr_rule="the module's own",
            )
        )

    @harmless
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._run is not None:
            self._losses, self._examples_open = [], 0
            self._epoch = self._run.epoch(trainer.current_epoch + 1 + self._epoch_shift)
            self._epoch.__enter__()

    @harmless
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Notes the learning rate before the schedulers change it."""
        first = trainer.optimizers[:1]
        if self._run is not None and first and optimizer.param_groups is first[0].param_groups:
            self._lr = _lr(first)

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Reports the step if this was its last batch, and serves requests."""
        run = self._run
        if run is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is None and not pl_module.automatic_optimization:
            loss = self._loss_of_step()
        self._losses.append(loss)
        self._examples_open += self._examples(batch)
        accumulated = trainer.accumulate_grad_batches
        if (batch_idx + 1) % accumulated and not trainer.is_last_batch and batch_idx + 1 < trainer.num_training_batches:
            return
        self._step += 1
        if math.isnan(self._lr):
            self._lr = _lr(trainer.optimizers)
        run.step(self._loss(accumulated), self._examples_open, lr=self._lr, step=self._step + self._step_shift)
        self._losses, self._examples_open = [], 0
        run.save_if_asked(lambda: self._save(run, trainer))
        self._stop_if_asked(run, trainer)

    def _loss(self, accumulated: int) -> Any:
        """The mean over the batches of a step. Lightning has divided their losses by the number that it accumulates."""
        losses = [loss for loss in self._losses if loss is not None]
        if accumulated == 1 or not losses:
            return losses[0] if losses else None
        return sum(losses[1:], losses[0]) * (accumulated / len(losses))

    def _save(self, run: Run, trainer: Any) -> str:
        path = f"{run.dir}/checkpoints/step-{run.last_step}.ckpt"
        trainer.save_checkpoint(path)
        return path

    def _stop_if_asked(self, run: Run, trainer: Any) -> None:
        if run.should_stop():
            trainer.should_stop = True

    def _examples(self, batch: Any) -> int:
        """Number of examples of a batch: the rows of its first tensor, at most the batch size; the last batch of an
        epoch may have fewer."""
        rows, size = rows_of(batch), self._batch_size
        if rows is None:
            return size or 1
        return rows if size is None else min(rows, size)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the validation split. A sanity check is none."""
        if not trainer.sanity_checking:
            self._begin_evaluation(trainer)

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports what the module logged in the validation split."""
        logged, run = self._end_evaluation(trainer, "Trainer.validate"), self._run
        if self._is_training and run is not None:
            self._valid_names |= set(logged)
            run.valid({name: reading.val for name, reading in logged_meters(_floats(logged), "valid").items()})

    @harmless
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins `Trainer.test` after a training."""
        self._begin_evaluation(trainer)

    @harmless
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports what the module logged in `Trainer.test`; it belongs to no epoch."""
        self._end_evaluation(trainer, "Trainer.test")

    def _begin_evaluation(self, trainer: Any) -> None:
        if self.is_attached and self._run is None:
            self._run = attached_run()
        if self._run is not None:
            self._logged_before = dict(trainer.callback_metrics)
            self._evaluation = self._run.phase("evaluate")
            self._evaluation.__enter__()

    def _end_evaluation(self, trainer: Any, source: str) -> dict[str, Any]:
        """Ends an evaluation; returns what was logged in it. Values of one that is no part of a training are written
        with the newest step."""
        run, evaluation, self._evaluation = self._run, self._evaluation, None
        if run is None or evaluation is None:
            return {}
        evaluation.__exit__(None, None, None)
        logged = newly_logged(self._logged_before, trainer.callback_metrics)
        if not self._is_training and not trainer.global_rank:
            values = NamedMetrics(run, source)
            values.take(_floats(logged), run.last_step)
            values.write(all_values=True)
        return logged

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the epoch, with what the module logged in training."""
        run, epoch = self._run, self._epoch
        if run is None or epoch is None:
            return
        logged = {name: value for name, value in trainer.callback_metrics.items() if name not in self._valid_names}
        loss = run.loss_of_epoch()
        for name, reading in logged_meters(_floats(logged), "train", ("loss",)).items():
            if loss is None or "loss" not in name or not _is_either(reading.val, loss.val, loss.avg):
                run.meter(name, reading.val)
        self._epoch = None
        epoch.__exit__(None, None, None)
        self._stop_if_asked(run, trainer)

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Reports a failure, or Ctrl-C. In a run that tputui launched the script may catch the exception and go on."""
        run, was_training, self._is_training = self._run, self._is_training, False
        if run is None or not (was_training or self._is_own):
            return
        if run.is_launched and trainer.world_size == 1:
            run.pause(f"Trainer.fit ended by {type(exception).__name__} at step {run.last_step}")
        else:
            run.close_after(exception)

    @harmless
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        of = f" of {trainer.max_epochs}" if (trainer.max_epochs or -1) > 0 else ""
        self._is_training = False
        self._end_training(f"Trainer.fit ended after epoch {trainer.current_epoch}{of}")

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Closes the journal however training ended; another fit is another run, unless tputui launched the script."""
        self._is_training = False
        if self._run is not None and stage == "fit" and self._is_own and not self._run.is_launched:
            self._run.close("stopped", f"torn down at step {self._step}")
            self._run = None


def _steps_before(trainer: Any) -> int:
    """Steps that a Trainer has made. Its own count for loggers; `global_step` counts each of several optimizers."""
    return int(getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", trainer.global_step))


def _length(trainer: Any) -> tuple[int, int, int]:
    """Epochs, steps of each, and all steps if they are no whole epochs, else 0; 0 epochs and all steps if those of an
    epoch are not known, or training ends within one, and 0 for what is not known."""
    batches, epochs, total = trainer.num_training_batches, trainer.max_epochs or -1, trainer.max_steps
    steps = 0 if batches == math.inf else math.ceil(batches / trainer.accumulate_grad_batches)
    if steps and epochs > 0 and not 0 <= total < steps * epochs:
        return epochs, steps, 0
    if total <= 0:
        return 0, 0, 0
    # It counts the step of each optimizer.
    total = math.ceil(total / max(1, len(trainer.optimizers)))
    return (math.ceil(total / steps), steps, total if total % steps else 0) if 0 < steps < total else (0, total, 0)


def _is_either(value: float, *others: float) -> bool:
    return any(math.isclose(value, other, rel_tol=FLOAT32) for other in others)


def _floats(logged: Mapping[str, Any]) -> dict[str, float]:
    """Without what Lightning adds under a second name, as to a metric that is logged by step and by epoch."""
    names = {name for name in logged if name.removesuffix("_epoch") not in logged or not name.endswith("_epoch")}
    return {name: float(value) for name, value in logged.items() if name in names}


def _loader(loaders: Any) -> Any:
    return loaders[0] if isinstance(loaders, list | tuple) and loaders else loaders


def _lr(optimizers: Any) -> float:
    """NaN if there are no optimizers, or the learning rate is on a device."""
    lr: Any = optimizers[0].param_groups[0]["lr"] if optimizers else None
    return float(lr) if isinstance(lr, int | float) or getattr(lr, "is_cpu", False) else math.nan


if TYPE_CHECKING:

    class TputuiCallback(_Hooks):
        """Reports a Trainer's run; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiCallback` a callback of the package that is imported already, else of `lightning`."""
    package = next((package for package in _PACKAGES if package in sys.modules), _PACKAGES[0])
    return made_class(globals(), name, "TputuiCallback", lambda: importlib.import_module(package).Callback)

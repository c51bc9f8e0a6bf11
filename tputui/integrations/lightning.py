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
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tputui.integrations.callbacks import Harmless, harmless, length_of, made_class
from tputui.reporting.run import Run
from tputui.reporting.start import join
from tputui.telemetry import events as ev
from tputui.telemetry.meters import logged_meters, newly_logged

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_PRECISIONS = {"32-true": "fp32", "bf16-true": "bf16", "bf16-mixed": "bf16"}
"""Our name by Lightning's name of a precision."""


class _Hooks(Harmless):
    """The hooks of the callback. Trainer and module are accessed by name only, so that either package works."""

    def __init__(self, runs_dir: str | None = None) -> None:
        """`runs_dir` is the folder for the run directory; by default `$TPUTUI_RUNS`, else `./runs`."""
        super().__init__()
        self._runs_dir = runs_dir
        self._step = 0
        self._batch_size: int | None = None
        """Examples of a complete batch; None if the loader does not have a batch size."""
        self._epoch: AbstractContextManager[None] | None = None
        self._evaluation: AbstractContextManager[None] | None = None
        self._logged_before: dict[str, Any] = {}
        """What was logged before the validation split."""
        self._valid_names: set[str] = set()

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Opens the run before data and module are set up."""
        if stage != "fit" or self._run is not None:
            return
        task = type(pl_module).__name__
        config = {"task": task, "epochs": trainer.max_epochs}
        run = join(task, config, self._runs_dir, rank=trainer.global_rank, world_size=trainer.world_size)
        # A run without a journal: tputui launched this process and reports it already, or only rank 0 is shown.
        self._run = run if run.is_active else None

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Reports the plan."""
        if self._run is not None:
            self._step = int(trainer.fit_loop.epoch_loop.total_batch_idx) + 1
            self._report_plan(self._run, trainer, pl_module)

    def _report_plan(self, run: Run, trainer: Any, pl_module: Any) -> None:
        train, valid = _loader(trainer.train_dataloader), _loader(trainer.val_dataloaders)
        batch_size = getattr(train, "batch_size", None)
        sizes = [length_of(getattr(loader, "dataset", None)) for loader in (train, valid)]
        batches = trainer.num_training_batches
        if batch_size is None or sizes[0] is None or batches == float("inf") or trainer.max_epochs in (None, -1):
            run.warn("the number of steps is not available: the loader has no length, or the Trainer no max_epochs")
            return
        self._batch_size = batch_size
        run.emit(
            ev.TrainingPlanned(
                t=time.time(),
                task=type(pl_module).__name__,
                num_epochs=trainer.max_epochs,
                steps_per_epoch=int(batches),
                valid_steps=int(sum(trainer.num_val_batches)),
                first_step=self._step + 1,
                batch_per_core=batch_size,
                global_batch=batch_size * trainer.world_size,
                train_examples=sizes[0],
                valid_examples=sizes[1] or 0,
                num_parameters=sum(p.numel() for p in pl_module.parameters() if p.requires_grad),
                precision=_PRECISIONS.get(str(trainer.precision), str(trainer.precision)),
                lr=_lr(trainer),
                lr_rule="the module's own",
            )
        )

    @harmless
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the epoch."""
        if self._run is not None:
            self._valid_names = set()
            self._epoch = self._run.epoch(trainer.current_epoch + 1)
            self._epoch.__enter__()

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Reports the step, and serves requests."""
        run = self._run
        if run is None:
            return
        self._step += 1
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        run.step(loss, self._examples(batch), lr=_lr(trainer), step=self._step)
        run.save_if_asked(lambda: self._save(run, trainer))
        self._stop_if_asked(run, trainer)

    def _save(self, run: Run, trainer: Any) -> str:
        path = f"{run.dir}/checkpoints/step-{self._step}.ckpt"
        trainer.save_checkpoint(path)
        return path

    def _stop_if_asked(self, run: Run, trainer: Any) -> None:
        if run.should_stop():
            trainer.should_stop = True

    def _examples(self, batch: Any) -> int:
        """Number of examples of a batch: the rows of its first tensor, at most the batch size; the last batch of an
        epoch may have fewer."""
        rows, size = _rows(batch), self._batch_size
        if rows is None:
            return size or 1
        return rows if size is None else min(rows, size)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the validation split."""
        if self._run is not None and not trainer.sanity_checking:
            self._logged_before = dict(trainer.callback_metrics)
            self._evaluation = self._run.phase("evaluate")
            self._evaluation.__enter__()

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports what the module logged in the validation split."""
        run, evaluation = self._run, self._evaluation
        if run is None or evaluation is None or trainer.sanity_checking:
            return
        self._evaluation = None
        logged = newly_logged(self._logged_before, trainer.callback_metrics)
        self._valid_names |= set(logged)
        evaluation.__exit__(None, None, None)
        run.valid({name: reading.val for name, reading in logged_meters(_floats(logged), "valid").items()})

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the epoch, with what the module logged in training."""
        run, epoch = self._run, self._epoch
        if run is None or epoch is None:
            return
        logged = {name: value for name, value in trainer.callback_metrics.items() if name not in self._valid_names}
        for name, reading in logged_meters(_floats(logged), "train", ("loss",)).items():
            run.meter(name, reading.val)
        self._epoch = None
        epoch.__exit__(None, None, None)
        self._stop_if_asked(run, trainer)

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Reports a failure, or Ctrl-C."""
        if self._run is not None:
            self._run.close_after(exception)

    @harmless
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the end of training."""
        if self._run is not None:
            done = trainer.current_epoch
            self._run.close(reason=f"Trainer.fit ended after epoch {done} of {trainer.max_epochs}")

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Closes the journal however training ended; another fit is another run."""
        if self._run is not None and stage == "fit":
            self._run.close("stopped", f"torn down at step {self._step}")
            self._run = None


def _floats(logged: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logged.items()}


def _rows(batch: Any) -> int | None:
    """The first dimension of the first array in a batch, however nested; None if it contains no array."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return next((rows for rows in map(_rows, batch) if rows is not None), None)
    shape: Any = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else None


def _loader(loaders: Any) -> Any:
    return loaders[0] if isinstance(loaders, list | tuple) and loaders else loaders


def _lr(trainer: Any) -> float:
    optimizers = trainer.optimizers
    return float(optimizers[0].param_groups[0]["lr"]) if optimizers else float("nan")


if TYPE_CHECKING:

    class TputuiCallback(_Hooks):
        """Reports a Trainer's run; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiCallback` a callback of the package that is imported already, else of `lightning`."""
    package = next((package for package in _PACKAGES if package in sys.modules), _PACKAGES[0])
    return made_class(globals(), name, "TputuiCallback", lambda: importlib.import_module(package).Callback)

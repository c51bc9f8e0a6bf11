"""`TputuiCallback` for Lightning's Trainer in your own script: `Trainer(callbacks=[TputuiCallback()])`.

Works with any accelerator. The callback creates a run directory under `./runs` (or `$TPUTUI_RUNS`) for `tputui attach`,
`show` and `replay`. It never ends a training: an error of its own is reported once, in the log and on the screen. Works
with `lightning` and `pytorch_lightning`: importing this module imports neither, accessing the class imports one.

Only the process of rank 0 is reported. Losses stay on the device and are read about once a second.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tputui.integrations.callback_run import CallbackRun, Harmless, harmless
from tputui.telemetry import events as ev
from tputui.telemetry.meters import AverageMeter, logged_meters, newly_logged

REPORT_INTERVAL_S = 1.0
REDUCED_LOSS = "mean over the batches of this process, weighted by their examples"
REDUCED_LOGGED = "as Lightning reduced what the module logged; one value for all"
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_MAX_PENDING = 4096
"""Most losses that wait to be read, however fast the steps are."""
_MIN_S = 1e-6
_PRECISIONS = {"32-true": "fp32", "bf16-true": "bf16", "bf16-mixed": "bf16"}
"""Our name by Lightning's name of a precision."""


class _Hooks(Harmless):
    """The hooks of the callback. Trainer and module are accessed by name only, so that either package works."""

    def __init__(self, runs_dir: str | None = None) -> None:
        """`runs_dir` is the folder for the run directory; by default `$TPUTUI_RUNS`, else `./runs`."""
        super().__init__()
        self._runs_dir = runs_dir
        self._pending: list[tuple[Any, int]] = []
        """Losses that wait to be read, with the number of examples of their batch."""
        self._reported_at = 0.0
        self._batch_size: int | None = None
        """Examples of a complete batch; None if the loader does not have a batch size."""
        self._epoch_step = 0
        self._loss = AverageMeter()
        self._began = self._valid_began = 0.0
        self._valid_s = 0.0
        self._logged_before: dict[str, Any] = {}
        """What was logged before the validation split."""
        self._valid: dict[str, ev.MeterReading] = {}
        self._valid_names: set[str] = set()

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Opens the run before data and module are set up."""
        if stage != "fit" or self._run is not None or trainer.global_rank != 0:
            return
        what = type(pl_module).__name__
        config = {"task": what, "epochs": trainer.max_epochs}
        try:
            self._run = CallbackRun(what, runs_dir=self._runs_dir, config=config)
        except FileExistsError:
            # tputui launched this process and reports it already.
            return

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Reports topology and plan."""
        run = self._run
        if run is None:
            return
        run.step = int(trainer.fit_loop.epoch_loop.total_batch_idx) + 1
        device = str(pl_module.device.type).upper()
        run.emit(
            ev.TopologyDeclared(
                t=time.time(),
                strategy=type(trainer.strategy).__name__,
                device=device,
                device_reason=f"the Trainer's accelerator is {type(trainer.accelerator).__name__}",
                num_cores=trainer.world_size,
                num_hosts=trainer.num_nodes,
                host_index=0,
                cores=[0],
            )
        )
        run.emit(ev.MemorySampled(t=time.time(), hbm=None, hbm_reason="a callback does not read device memory"))
        if trainer.world_size > 1:
            run.warn(f"only rank 0 of {trainer.world_size} is shown")
        self._report_plan(run, trainer, pl_module)

    def _report_plan(self, run: CallbackRun, trainer: Any, pl_module: Any) -> None:
        train, valid = _loader(trainer.train_dataloader), _loader(trainer.val_dataloaders)
        batch_size = getattr(train, "batch_size", None)
        sizes = [_length(getattr(loader, "dataset", None)) for loader in (train, valid)]
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
                first_step=run.step + 1,
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
        run = self._run
        if run is None:
            return
        run.epoch = trainer.current_epoch + 1
        self._epoch_step, self._valid_s = 0, 0.0
        self._loss = AverageMeter()
        self._valid = {}
        self._began = self._reported_at = time.perf_counter()
        run.enter("executing")
        run.emit(ev.EpochStarted(t=time.time(), epoch=run.epoch, first_step=run.step + 1))

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keeps the loss on its device, and reads the pending ones about once a second."""
        run = self._run
        if run is None:
            return
        run.step += 1
        self._epoch_step += 1
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            self._pending.append((loss.detach(), self._examples(batch)))
        waited_s = time.perf_counter() - self._reported_at
        if waited_s >= REPORT_INTERVAL_S or len(self._pending) >= _MAX_PENDING:
            self._report(run, trainer)

    def _report(self, run: CallbackRun, trainer: Any) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        losses = array("f", [float(loss) for loss, _ in pending])
        sizes = [size for _, size in pending]
        now = time.perf_counter()
        step_s = max(now - self._reported_at, _MIN_S) / len(losses)
        self._reported_at = now
        for loss, size in zip(losses, sizes, strict=True):
            self._loss.add(loss * size, size)
        run.reporter.record_steps(run.step - len(losses) + 1, losses, 1)
        self._report_meters(run, "train", self._train_loss(), REDUCED_LOSS)
        run.emit(
            ev.ProgressReported(
                t=time.time(),
                epoch=run.epoch,
                epoch_step=self._epoch_step,
                step=run.step,
                step_s=step_s,
                examples_per_s=sum(sizes) / len(sizes) * trainer.world_size / step_s,
                lr=_lr(trainer),
                report_steps=len(losses),
            )
        )

    def _examples(self, batch: Any) -> int:
        """Number of examples of a batch: the rows of its first tensor, at most the batch size; the last batch of an
        epoch may have fewer."""
        rows, size = _rows(batch), self._batch_size
        if rows is None:
            return size or 1
        return rows if size is None else min(rows, size)

    def _train_loss(self) -> dict[str, ev.MeterReading]:
        return {"loss": self._loss.reading()} if self._loss.count else {}

    def _report_meters(
        self, run: CallbackRun, split: ev.Split, meters: dict[str, ev.MeterReading], reduced: str
    ) -> None:
        run.emit(
            ev.MetersReported(
                t=time.time(), epoch=run.epoch, step=run.step, split=split, meters=meters, reduced=reduced
            )
        )

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the validation split."""
        run = self._run
        if run is None or trainer.sanity_checking:
            return
        self._report(run, trainer)
        self._logged_before = dict(trainer.callback_metrics)
        self._valid_began = time.perf_counter()
        run.enter("evaluating")

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports what the module logged in the validation split."""
        run = self._run
        if run is None or trainer.sanity_checking:
            return
        logged = newly_logged(self._logged_before, trainer.callback_metrics)
        self._valid_names |= set(logged)
        self._valid = logged_meters(_floats(logged), "valid")
        self._valid_s += time.perf_counter() - self._valid_began
        self._report_meters(run, "valid", self._valid, REDUCED_LOGGED)
        run.enter("executing")
        self._reported_at = time.perf_counter()

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the epoch."""
        run = self._run
        if run is None:
            return
        self._report(run, trainer)
        took_s = time.perf_counter() - self._began
        logged = {k: v for k, v in trainer.callback_metrics.items() if k not in self._valid_names}
        ours = self._train_loss()
        run.emit(
            ev.EpochEnded(
                t=time.time(),
                epoch=run.epoch,
                step=run.step,
                train={**ours, **logged_meters(_floats(logged), "train", ours)},
                valid=self._valid,
                train_s=max(0.0, took_s - self._valid_s),
                valid_s=self._valid_s,
                sections_s={"evaluate": self._valid_s, "other": max(0.0, took_s - self._valid_s)},
                lr=_lr(trainer),
                best=False,
            )
        )

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Reports a failure, or Ctrl-C."""
        run = self._run
        if run is None:
            return
        name = type(exception).__name__
        if isinstance(exception, KeyboardInterrupt | SystemExit):
            run.end("stopped", f"ended by {name} at step {run.step}")
            return
        text = "".join(traceback.format_exception(exception))
        run.emit(
            ev.FailureRaised(
                t=time.time(),
                error=name,
                message=str(exception),
                traceback=text,
                phase=run.phase,
                step=run.step,
            )
        )
        run.end("failed", f"{name}: {exception}")

    @harmless
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the end of training."""
        if self._run is not None:
            self._run.end("done", f"Trainer.fit ended after epoch {self._run.epoch} of {trainer.max_epochs}")

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Closes the journal however training ended; another fit is another run."""
        if self._run is not None and stage == "fit":
            self._run.end("stopped", f"torn down at step {self._run.step}")
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


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _lr(trainer: Any) -> float:
    optimizers = trainer.optimizers
    return float(optimizers[0].param_groups[0]["lr"]) if optimizers else float("nan")


if TYPE_CHECKING:

    class TputuiCallback(_Hooks):
        """Reports a Trainer's run; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiCallback` a callback of the package that is imported already, else of `lightning`."""
    if name != "TputuiCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = next((package for package in _PACKAGES if package in sys.modules), _PACKAGES[0])
    base = importlib.import_module(package).Callback
    made = type("TputuiCallback", (_Hooks, base), {"__doc__": _Hooks.__doc__, "__module__": __name__})
    globals()[name] = made
    return made

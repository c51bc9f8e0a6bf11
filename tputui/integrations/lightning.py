"""`TputuiCallback` for Lightning's Trainer, in a script of your own: `Trainer(callbacks=[TputuiCallback()])`.

Any accelerator. It makes a run directory under `./runs` (or `$TPUTUI_RUNS`) that `tputui attach`, `show` and `replay`
read, and never ends a training: an error of its own is told once, in the log and on the screen. Works with `lightning`
and `pytorch_lightning`; importing this module imports neither, taking the class from it does.

It tells of the process of rank 0. Losses stay on the device and are read about once a second.
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

REPORT_INTERVAL_S = 1.0
REDUCED_LOSS = "mean over the batches of this process, weighted by their examples"
REDUCED_LOGGED = "as Lightning reduced what the module logged; told as one value"
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_HELD_MAX = 4096
"""Losses that wait to be read at most, however fast the steps."""
_LEAST_S = 1e-6
_PRECISIONS = {"32-true": "fp32", "bf16-true": "bf16", "bf16-mixed": "bf16"}
"""What Lightning calls the formats that we have a word for."""


class _Watching(Harmless):
    """The hooks. Trainer and module are looked at by name alone, so that either package will do."""

    def __init__(self, runs_dir: str | None = None) -> None:
        """`runs_dir` is where the run's directory is made; else `$TPUTUI_RUNS`, else `./runs`."""
        super().__init__()
        self._runs_dir = runs_dir
        self._held: list[tuple[Any, int]] = []
        """Losses that wait to be read, each with the examples of its batch."""
        self._reported_at = 0.0
        self._batch_size: int | None = None
        """Examples of a whole batch; None where the loader does not say."""
        self._epoch_step = 0
        self._newest = float("nan")
        self._sum = 0.0
        self._count = 0
        self._began = self._valid_began = 0.0
        self._valid_s = 0.0
        self._before: dict[str, Any] = {}
        self._valid: dict[str, ev.MeterReading] = {}
        self._valid_names: set[str] = set()

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Opens the run, before data and module are set up."""
        if stage != "fit" or self._shell is not None or trainer.global_rank != 0:
            return
        what = type(pl_module).__name__
        config = {"task": what, "epochs": trainer.max_epochs}
        try:
            self._shell = CallbackRun(what, runs_dir=self._runs_dir, config=config)
        except FileExistsError:
            # tputui launched this process and tells of it already.
            return

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Tells what is to be trained, and on what."""
        shell = self._shell
        if shell is None:
            return
        shell.step = int(trainer.fit_loop.epoch_loop.total_batch_idx) + 1
        device = str(pl_module.device.type).upper()
        shell.emit(
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
        shell.emit(ev.MemorySampled(t=time.time(), hbm=None, hbm_reason="a callback does not read device memory"))
        if trainer.world_size > 1:
            shell.warn(f"what is shown is rank 0 of {trainer.world_size}; the others are not told of")
        self._plan(shell, trainer, pl_module)

    def _plan(self, shell: CallbackRun, trainer: Any, pl_module: Any) -> None:
        train, valid = _loader(trainer.train_dataloader), _loader(trainer.val_dataloaders)
        batch_size = getattr(train, "batch_size", None)
        sizes = [_length(getattr(loader, "dataset", None)) for loader in (train, valid)]
        batches = trainer.num_training_batches
        if batch_size is None or sizes[0] is None or batches == float("inf") or trainer.max_epochs in (None, -1):
            shell.warn("how much is to be trained cannot be told: the loader or the Trainer sets no end")
            return
        self._batch_size = batch_size
        shell.emit(
            ev.TrainingPlanned(
                t=time.time(),
                task=type(pl_module).__name__,
                num_epochs=trainer.max_epochs,
                steps_per_epoch=int(batches),
                valid_steps=int(sum(trainer.num_val_batches)),
                first_step=shell.step + 1,
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
        """An epoch begins."""
        shell = self._shell
        if shell is None:
            return
        shell.epoch = trainer.current_epoch + 1
        self._epoch_step, self._sum, self._count, self._valid_s = 0, 0.0, 0, 0.0
        self._valid = {}
        self._began = self._reported_at = time.perf_counter()
        shell.enter("executing")
        shell.emit(ev.EpochStarted(t=time.time(), epoch=shell.epoch, first_step=shell.step + 1))

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keeps the loss where it is, and reads what has gathered about once a second."""
        shell = self._shell
        if shell is None:
            return
        shell.step += 1
        self._epoch_step += 1
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            self._held.append((loss.detach(), self._examples(batch)))
        waited_s = time.perf_counter() - self._reported_at
        if waited_s >= REPORT_INTERVAL_S or len(self._held) >= _HELD_MAX:
            self._report(shell, trainer)

    def _report(self, shell: CallbackRun, trainer: Any) -> None:
        held, self._held = self._held, []
        if not held:
            return
        losses = array("f", [float(loss) for loss, _ in held])
        sizes = [size for _, size in held]
        now = time.perf_counter()
        step_s = max(now - self._reported_at, _LEAST_S) / len(losses)
        self._reported_at = now
        self._newest = losses[-1]
        self._sum += sum(loss * size for loss, size in zip(losses, sizes, strict=True))
        self._count += sum(sizes)
        shell.reporter.record_steps(shell.step - len(losses) + 1, losses, 1)
        self._meters(shell, "train", self._train_loss(), REDUCED_LOSS)
        shell.emit(
            ev.ProgressReported(
                t=time.time(),
                epoch=shell.epoch,
                epoch_step=self._epoch_step,
                step=shell.step,
                step_s=step_s,
                examples_per_s=sum(sizes) / len(sizes) * trainer.world_size / step_s,
                lr=_lr(trainer),
                report_steps=len(losses),
            )
        )

    def _examples(self, batch: Any) -> int:
        """Examples of a batch: the rows of its first tensor, at most those of a whole batch; the last one of an epoch
        may hold fewer."""
        rows, whole = _rows(batch), self._batch_size
        if rows is None:
            return whole or 1
        return rows if whole is None else min(rows, whole)

    def _train_loss(self) -> dict[str, ev.MeterReading]:
        if not self._count:
            return {}
        average = self._sum / self._count
        return {"loss": ev.MeterReading(val=self._newest, avg=average, sum=self._sum, count=self._count)}

    def _meters(self, shell: CallbackRun, split: ev.Split, meters: dict[str, ev.MeterReading], reduced: str) -> None:
        shell.emit(
            ev.MetersReported(
                t=time.time(), epoch=shell.epoch, step=shell.step, split=split, meters=meters, reduced=reduced
            )
        )

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """The validation split begins."""
        shell = self._shell
        if shell is None or trainer.sanity_checking:
            return
        self._report(shell, trainer)
        self._before = dict(trainer.callback_metrics)
        self._valid_began = time.perf_counter()
        shell.enter("evaluating")

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Tells what the module logged of it."""
        shell = self._shell
        if shell is None or trainer.sanity_checking:
            return
        logged = {k: v for k, v in trainer.callback_metrics.items() if self._before.get(k) is not v}
        self._valid_names |= set(logged)
        self._valid = _readings(logged, ("val_", "val/", "valid_", "valid/"), set())
        self._valid_s += time.perf_counter() - self._valid_began
        self._meters(shell, "valid", self._valid, REDUCED_LOGGED)
        shell.enter("executing")
        self._reported_at = time.perf_counter()

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Sums the epoch up."""
        shell = self._shell
        if shell is None:
            return
        self._report(shell, trainer)
        took_s = time.perf_counter() - self._began
        logged = {k: v for k, v in trainer.callback_metrics.items() if k not in self._valid_names}
        ours = self._train_loss()
        shell.emit(
            ev.EpochEnded(
                t=time.time(),
                epoch=shell.epoch,
                step=shell.step,
                train={**ours, **_readings(logged, ("train_", "train/"), set(ours))},
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
        """Training broke, or Ctrl-C ended it."""
        shell = self._shell
        if shell is None:
            return
        name = type(exception).__name__
        if isinstance(exception, KeyboardInterrupt | SystemExit):
            shell.end("stopped", f"ended by {name} at step {shell.step}")
            return
        text = "".join(traceback.format_exception(exception))
        shell.emit(
            ev.FailureRaised(
                t=time.time(),
                error=name,
                message=str(exception),
                traceback=text,
                phase=shell.phase,
                step=shell.step,
            )
        )
        shell.end("failed", f"{name}: {exception}")

    @harmless
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Training came to its end."""
        if self._shell is not None:
            self._shell.end("done", f"Trainer.fit ended after epoch {self._shell.epoch} of {trainer.max_epochs}")

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Whatever ended it, the journal is closed; another fit is another run."""
        if self._shell is not None and stage == "fit":
            self._shell.end("stopped", f"torn down at step {self._shell.step}")
            self._shell = None


def _readings(logged: Mapping[str, Any], prefixes: tuple[str, ...], taken: set[str]) -> dict[str, ev.MeterReading]:
    """What was logged, under names without the split; a name that is taken stays as it was logged."""
    found: dict[str, ev.MeterReading] = {}
    for name, tensor in logged.items():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        short = name[len(prefix) :]
        value = float(tensor)
        chosen = name if not short or short in taken or short in found else short
        found[chosen] = ev.MeterReading(val=value, avg=value, sum=value, count=1)
    return found


def _rows(batch: Any) -> int | None:
    """The first dimension of the first array in a batch, however it is nested; None where it holds none."""
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

    class TputuiCallback(_Watching):
        """Tells of a Trainer's run; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiCallback` a callback of the package that is loaded, `lightning` where none is."""
    if name != "TputuiCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = next((package for package in _PACKAGES if package in sys.modules), _PACKAGES[0])
    base = importlib.import_module(package).Callback
    made = type("TputuiCallback", (_Watching, base), {"__doc__": _Watching.__doc__, "__module__": __name__})
    globals()[name] = made
    return made

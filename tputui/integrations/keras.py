"""`TputuiCallback` for `fit` of Keras 3, with any backend: `model.fit(..., callbacks=[TputuiCallback()])`.

The callback joins the run that launched the script (`tputui run -- ...`), else it creates a run directory under
`./runs` (or `$TPUTUI_RUNS`). The loss of a step is the running mean over its epoch, as Keras computes and prints it;
with the torch backend a callback that tputui attached has the loss itself, from hooks, and the mean as a metric. The
epoch has the last mean, and what Keras computes in validation. Requests to save and to stop are served between two
batches. It never ends a training: an error of its own is reported once. Importing this module does not import Keras,
accessing the class does.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tputui.integrations.callbacks import NamedMetrics, StepLosses, attached_run, harmless, made_class
from tputui.observers.user_frames import callers
from tputui.reporting.run import Run
from tputui.telemetry import events as ev

SOURCE = "Model.fit"
LR_INTERVAL_S = 1.0
VALID = "val_"
WAIT_S = 60.0
"""Longest wait for the batches of an epoch to end, before its evaluation."""
_LRS = ("lr", "learning_rate")
"""Values that callbacks of Keras add to the results of an epoch; they are no scores."""
_CALLERS_MAX = 12
"""Calls between a callback and `fit`."""


class _Hooks(StepLosses):
    """The hooks of the callback. What Keras passes is accessed by name only."""

    async_safe = True
    """Whether Keras may call `on_train_batch_end` in other threads, so that it does not wait for the step."""

    def __init__(self, runs_dir: str | None = None) -> None:
        super().__init__(runs_dir)
        self._is_begun = False
        """Whether the training is reported that runs now."""
        self._is_planned = False
        self._thread = 0
        """The thread that trains."""
        self._batches: dict[int, tuple[Mapping[str, Any], float]] = {}
        """Running means of batches that are not reported yet and when they ended, by their number in the epoch."""
        self._newest_batch: int | None = None
        """The one that runs; None once its loss was taken."""
        self._losses: dict[int, Any] = {}
        """Those of such batches, if hooks have them."""
        self._ended_at = -math.inf
        """When the newest reported batch ended."""
        self._ended = threading.Condition()
        """Guards the next two, and is notified when a batch ends."""
        self._num_open = 0
        """Batches that have begun and not ended."""
        self._is_async = False
        """Whether the newest batch ended in another thread than the one that trains."""
        self._next_batch = 0
        """Number of the batch to be reported next; those that end in other threads come in any order."""
        self._stride = 1
        """Batches from one report of Keras to the next one: those of a compiled loop."""
        self._step_before = 0
        """Step before the epoch."""
        self._batch_size: int | None = None
        self._last_batch_size: int | None = None
        """Examples of the last batch of an epoch, if it has fewer."""
        self._lr = math.nan
        self._lr_read_at = -math.inf
        self._iterations = 0
        """Steps of the optimizer before the epoch."""
        self._logged: NamedMetrics | None = None
        self._epoch: AbstractContextManager[None] | None = None
        self._evaluation: AbstractContextManager[None] | None = None

    @harmless
    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the run; an attached callback waits for what other callbacks open."""
        self._is_begun = self._is_planned = False
        self._thread = threading.get_ident()
        self._batch_size, self._last_batch_size = _batch_sizes()
        if not self.is_attached:
            self._open()

    def _open(self) -> None:
        model: Any = self._model  # type: ignore[attr-defined]  # of Keras; `model` would copy the state of JAX
        task = type(model).__name__
        self._join(task, {"task": task, "epochs": self._num("epochs")}, "" if self.take_step_loss else SOURCE)
        optimizer: Any = getattr(model, "optimizer", None)
        is_scaled = hasattr(optimizer, "inner_optimizer") or getattr(optimizer, "loss_scale_factor", None) is not None
        self._begin_losses(is_scaled=is_scaled)
        self._logged = NamedMetrics(self._run, SOURCE) if self._run is not None else None

    def _num(self, name: str) -> int:
        params: Any = self.params  # type: ignore[attr-defined]  # of Keras
        return int((params or {}).get(name) or 0)

    @harmless
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins the epoch, and reports the plan before the first one."""
        if not self._is_begun and self.is_attached:
            self._open()
        run = self._run
        if run is None:
            return
        if not self._is_begun:
            self._is_begun = True
            steps_before = epoch * self._num("steps")
            self._count_from(run, steps_before, epoch)
            self._step_before = steps_before + self._step_shift
            if self._num("steps"):
                self._report_plan(run, self._num("steps"), epoch)
        else:
            self._step_before = run.last_step
        model: Any = self._model  # type: ignore[attr-defined]
        self._stride = max(1, int(getattr(model, "steps_per_execution", 1)))
        self._batches, self._next_batch, self._num_open = {}, self._stride - 1, 0
        self._losses, self._newest_batch = {}, None
        self._epoch = run.epoch(epoch + 1 + self._epoch_shift)
        self._epoch.__enter__()

    def _report_plan(self, run: Run, num_steps: int, epoch: int) -> None:
        self._is_planned = True
        batch = self._batch_size or 0
        missing = batch - self._last_batch_size if self._last_batch_size else 0
        model: Any = self._model  # type: ignore[attr-defined]
        run.emit(
            ev.TrainingPlanned(
                t=time.time(),
                task=type(model).__name__,
                num_epochs=self._num("epochs") + self._epoch_shift,
                steps_per_epoch=num_steps,
                valid_steps=0,
                first_step=self._step_before + 1,
                batch_per_core=batch,
                global_batch=batch,
                train_examples=max(0, num_steps * batch - missing),
                valid_examples=0,
                num_parameters=sum(math.prod(weight.shape) for weight in model.trainable_weights),
                precision=str(getattr(model.dtype_policy, "name", "")),
                lr=self._read_lr(0),
                lr_rule="the optimizer's own",
            )
        )

    @harmless
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Reports the batches that ended in other threads, and reads the learning rate."""
        if self._run is None:
            return
        self._take_loss()
        self._newest_batch = batch
        with self._ended:
            self._num_open += 1
        self._report_batches()
        if not batch or time.monotonic() - self._lr_read_at >= LR_INTERVAL_S:
            self._lr_read_at = time.monotonic()
            self._lr = self._read_lr(batch)

    @harmless
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Takes the running means; the thread that trains reports them."""
        if self._run is not None:
            self._batches[batch] = logs or {}, time.perf_counter()
            with self._ended:
                self._num_open -= 1
                self._is_async = threading.get_ident() != self._thread
                self._ended.notify()
            if not self._is_async:
                self._take_loss()
                self._report_batches()

    def _take_loss(self) -> None:
        """Takes the loss of the batch that has run. Called by the thread that trains."""
        batch, self._newest_batch = self._newest_batch, None
        if batch is not None and (loss := self._loss_of_step()) is not None:
            self._losses[batch] = loss

    def _report_batches(self, *, all_batches: bool = False) -> None:
        """Reports the batches that have ended, in order; `all_batches`: also those after one that has not."""
        run, logged = self._run, self._logged
        if run is None or logged is None or not self._batches:
            return
        ended = sorted(self._batches) if all_batches else []
        while not all_batches and self._next_batch in self._batches:
            ended.append(self._next_batch)
            self._next_batch += self._stride
        for batch in ended:
            self._report_batch(run, logged, batch, *self._batches.pop(batch))
        run.save_if_asked(lambda: self._save(run))
        if run.should_stop():
            self._stop()

    def _report_batch(
        self, run: Run, logged: NamedMetrics, batch: int, logs: Mapping[str, Any], ended_at: float
    ) -> None:
        # The last call of a compiled loop may have fewer steps.
        in_epoch = min(batch + 1, self._num("steps") or batch + 1)
        step = self._step_before + in_epoch
        is_last = self._last_batch_size is not None and in_epoch == self._num("steps")
        # Batches that end in other threads may be noted in another order.
        self._ended_at = max(self._ended_at, ended_at)
        examples = self._last_batch_size if is_last else self._batch_size
        run.step_ended(None, examples, self._lr, self._ended_at, step=step)
        loss = self._losses.pop(batch, None)
        if self._is_exact:
            logged.leave_name("loss")
        elif (loss := logs.get("loss")) is not None:
            self._name_loss("loss", SOURCE)
        if loss is not None:
            # Of no weight in the mean over the epoch, which Keras computes.
            run.loss(step, loss, examples=0)
        logged.take({name: value for name, value in logs.items() if name != "loss" or self._is_exact}, step)

    def _save(self, run: Run) -> str:
        folder = f"{run.dir}/checkpoints"
        path = f"{folder}/step-{run.last_step}.keras"
        os.makedirs(folder, exist_ok=True)
        self.model.save(path)  # type: ignore[attr-defined]
        return path

    def _stop(self) -> None:
        model: Any = self._model  # type: ignore[attr-defined]
        model.stop_training = True

    def _read_lr(self, batch: int) -> float:
        """The learning rate of a batch of the epoch. Between the first batch and the end of an epoch, JAX has the
        variables of the optimizer: then only a schedule, computed on the CPU, is known to change."""
        with contextlib.suppress(Exception):
            keras, model = sys.modules["keras"], self._model  # type: ignore[attr-defined]
            optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
            rate: Any = getattr(optimizer, "_learning_rate", None)
            if not batch:
                self._iterations = int(keras.ops.convert_to_numpy(optimizer.iterations))
            if callable(rate):
                with keras.device("cpu"):
                    return float(keras.ops.convert_to_numpy(rate(self._iterations + batch)))
            if not batch:
                return float(keras.ops.convert_to_numpy(rate))
        return self._lr

    @harmless
    def on_test_begin(self, logs: Any = None) -> None:
        """Begins an evaluation, of an epoch or by itself."""
        if self.is_attached and not self._is_begun:
            self._run = attached_run()
        if self._run is not None:
            if self._epoch is not None and self._is_async:
                # JAX computes behind the program, which would evaluate before the steps have ended.
                with self._ended:
                    self._ended.wait_for(lambda: self._num_open <= 0, WAIT_S)
            self._take_loss()
            self._report_batches(all_batches=self._is_async)
            self._evaluation = self._run.phase("evaluate")
            self._evaluation.__enter__()

    @harmless
    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """What `Model.evaluate` computes belongs to no epoch: it is written with the newest step."""
        run, evaluation, self._evaluation = self._run, self._evaluation, None
        if run is None or evaluation is None:
            return
        evaluation.__exit__(None, None, None)
        if self._epoch is None:
            values = NamedMetrics(run, "Model.evaluate")
            values.take({f"test_{name}": value for name, value in (logs or {}).items()}, run.last_step)
            values.write(all_values=True)

    @harmless
    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        run, context = self._run, self._epoch
        if run is None or context is None:
            return
        self._take_loss()
        self._report_batches(all_batches=True)
        scores = {name: value for name, value in (logs or {}).items() if name not in _LRS}
        for name, value in scores.items():
            if not name.startswith(VALID):
                run.meter(name, value)
        valid = {name.removeprefix(VALID): value for name, value in scores.items() if name.startswith(VALID)}
        if valid:
            run.valid(valid)
        if not self._is_planned:
            self._report_plan(run, run.last_step - self._step_before, epoch)
        self._epoch = None
        context.__exit__(None, None, None)
        if run.should_stop(ends_epoch=True):
            self._stop()

    @harmless
    def on_train_end(self, logs: Any = None) -> None:
        self._is_begun = False
        run = self._run
        if run is None:
            return
        if self._logged is not None:
            self._logged.write(all_values=True)
        self._end_training(f"Model.fit ended after epoch {run.last_epoch} of {self._num('epochs') + self._epoch_shift}")


def _batch_sizes() -> tuple[int | None, int | None]:
    """Examples of a batch, and of the last one of an epoch if that has fewer, as `fit` has found in its data. Keras
    passes them to no callback."""
    for frame in callers(sys._getframe(1).f_back, _CALLERS_MAX):
        adapter = getattr(frame.f_locals.get("epoch_iterator"), "data_adapter", None)
        if adapter is not None:
            return adapter.batch_size, adapter.partial_batch_size if adapter.has_partial_batch else None
    return None, None


if TYPE_CHECKING:

    class TputuiCallback(_Hooks):
        """Reports `fit`; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiCallback` a callback of Keras."""
    return made_class(globals(), name, "TputuiCallback", lambda: importlib.import_module("keras").callbacks.Callback)

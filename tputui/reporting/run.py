"""`Run`: what a script calls to report its training. Created by `tputui.start`.

`step` and `meter` wait for no disk and fetch values from devices once a second; `valid` and the end of an epoch fetch
the rest. No call raises because of the reporting: errors are reported once. A run that reports nothing is fast.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tputui.reporting import artifacts
from tputui.reporting.device_values import host_number, num_of_spmd
from tputui.reporting.process import QueuedStep, RunProcess, StepPace
from tputui.reporting.process_exit import ScriptEnding, ending_of
from tputui.reporting.requests import ServedSave
from tputui.reporting.script_plan import ScriptPlan
from tputui.reporting.section_timer import SectionTimer
from tputui.reporting.step_recorder import StepRecorder, ThreadValues, ignore
from tputui.telemetry import events as ev
from tputui.telemetry.meters import AverageMeter

_SECTIONS = {
    **dict.fromkeys(("eval", "evaluation", "valid", "validation"), "evaluate"),
    "checkpoint": "save",
}
"""Section of the epoch by the name that a script gives, if they differ."""
_PAUSES = frozenset({"evaluate", "save", "compile"})
"""Sections whose time is not part of a step."""
NAME_CHARS_MAX = 64
QUEUED_MAX = 1024
"""Most steps that wait to be counted."""
_log = logging.getLogger("tputui")
_clock = time.perf_counter


_PlainSteps = tuple[list[QueuedStep], Any, Any, int, int | None]
"""Steps that are queued, each like the one before it: the queue; the type of a loss, a float or a list of them with one
per core; the class of a loss with one element that may be on the host; values per step, and examples."""


class Run:
    """A run as one process of a script reports it, or one thread of it if threads train a core each.

    Use it from the thread that trains.
    """

    def __init__(
        self,
        process: RunProcess | None,
        recorder: StepRecorder | None = None,
        plan: ScriptPlan | None = None,
        column: int = 0,
    ) -> None:
        """Use `tputui.start`. Without a process nothing is reported."""
        self._is_off = process is None or recorder is None
        """Whether calls do nothing: reporting is disabled, or the run is closed."""
        self._warns_of_fork = False
        """Whether the next step warns that this process was forked from that of the run."""
        self._width = 0
        """Values per step that `_record_plain` takes; 0 until they are known."""
        self._record_plain: Callable[[int, Any], None] = ignore
        self._plain: _PlainSteps | None = None
        """The steps that are queued; None until the first is known, and while values wait on devices."""
        self._counting = threading.RLock()
        self._pace = StepPace()
        self._examples: int | None = None
        """Of the newest step."""
        self._batch = 0
        """Most examples of a step; the last one of an epoch may have fewer."""
        self._lr: Any = math.nan
        self._start_lr: Any = None
        """Of the first step that had one."""
        self._epoch: EpochContext | None = None
        self._uses_epochs = False
        self._epoch_shift = 0
        """Added to the script's number of an epoch."""
        self._begun_at_step = 0
        """Step before the epoch."""
        self.counts_all_steps = True
        """Whether all steps are reported. For hooks, which may not see some."""
        self._column = column
        if process is not None and recorder is not None:
            self._process = process
            self._recorder = recorder
            self._plan = plan or ScriptPlan("")
            self._values = ThreadValues(process, recorder, column)
            self._phases = Phases(process, self._pace)
            self._pictures = artifacts.EpochPictures(process.run_dir, process.rank)
            self._saves = Saves(process, self._pace, self._phases, column)
            self._tracer = process.requests.tracer
            process.join(self._pace, partial(self.report, may_wait=True) if column == 0 else None)

    @property
    def dir(self) -> Path | None:
        """The directory of the run; None if nothing is reported."""
        process = getattr(self, "_process", None)
        return process.run_dir if process is not None else None

    @property
    def is_active(self) -> bool:
        """Whether calls report anything: not if reporting is disabled or the run is closed."""
        return not self._is_off

    def step(
        self, loss: Any = None, examples: int | None = None, *, lr: float | None = None, step: int | None = None
    ) -> None:
        """Reports a step.

        `loss`: a number, or an array or tensor with one element, or with one per core of this process, [cores]. A
        tensor on a device stays there and is fetched about once a second. `examples`: examples of this step in this
        process; without it there are no examples per second, and every step has the same weight in the meters. `lr`:
        learning rate. `step`: its number, from 1; by default one more than before. Steps between the one before and
        `step` count as steps without values.
        """
        plain = self._plain
        if plain is not None and step is None:
            # All else waits for the report: what it touches has left the caches of the CPU during a step.
            queued, kind, tensor, width, usual = plain
            if (examples is usual or (type(examples) is int and examples == usual)) and (
                lr is None or type(lr) is float
            ):
                try:
                    if type(loss) is tensor and loss.is_cpu:
                        loss = loss.item()
                    if type(loss) is kind and (kind is float or (len(loss) == width and type(loss[0]) is float)):
                        queued.append((loss if kind is float else loss[:], lr, _clock()))
                        if len(queued) >= QUEUED_MAX:
                            self._empty_queue()
                        return
                except Exception:  # noqa: BLE001, RUF100 - such as a tensor with several elements
                    pass
        self._step(loss, examples, lr, step)

    def _step(self, loss: Any, examples: int | None, lr: float | None, step: int | None) -> None:
        """Reports a step that is not queued."""
        if self._is_off:
            if self._warns_of_fork:
                self._warn_of_fork()
            return
        try:
            self._count_queued()
            pace = self._pace
            num_steps = 1
            if step is None:
                step = pace.step + 1
            else:
                step = self._process.step_number(step, pace)
                if pace.num_steps and step > pace.step:
                    num_steps = step - pace.step
            if examples is not None and type(examples) is not int:
                examples = self._process.whole("examples", examples, 0)
            pace.advance(step, num_steps, num_steps * (examples or 0))
            if examples is not None and examples != self._examples:
                self._weigh(step, examples)
            if lr is not None:
                self._lr = lr if type(lr) is float else host_number("lr", lr)
                self._start_lr = self._lr if self._start_lr is None else self._start_lr
            self._record(step, loss)
            if self._tracer.is_busy and not self._column:
                self._tracer.at_boundary(step)
        except Exception as error:  # noqa: BLE001, RUF100 - reporting must not end training
            self.warn_of(error, "run.step")

    def loss(self, step: int, loss: Any, examples: int = 1) -> None:
        """Records the loss of a step that was reported without one. For callbacks of frameworks that log a mean over
        several steps: `examples` is their number of examples, and the loss is recorded at the last of them."""
        with self._guarded("run.loss") as active:
            if active:
                self._count_queued()
                self._recorder.weigh(step, examples)
                self._values.record(step, loss)

    def meter(self, name: str, value: Any, n: int = 1, *, split: ev.Split = "train") -> None:
        """Adds a value to an AverageMeter of the epoch: the mean over `n` examples; a tensor stays on its device."""
        with self._guarded("run.meter") as active:
            if active:
                self._values.add(split, name, value, n)

    def loss_of_epoch(self) -> ev.MeterReading | None:
        """The loss of the newest step, and the mean since the epoch began; None without steps. Waits for devices."""
        with self._guarded("run.loss_of_epoch") as active:
            if active:
                self._count_queued()
                self._values.fetch()
                return self._recorder.readings("train").get("loss")
        return None

    def valid(self, metrics: Mapping[str, Any] | None = None, /, *, examples: int = 1, **values: Any) -> None:
        """Reports the results of an evaluation: `run.valid(loss=0.31, accuracy=0.9, examples=1000)`.

        They belong to the epoch that is open. Another call in the same epoch replaces the results of the same names.
        """
        with self._guarded("run.valid") as active:
            if active:
                for name, value in {**(metrics or {}), **values}.items():
                    self._recorder.meters["valid"][name] = AverageMeter()
                    self._values.add("valid", name, value, examples)
                self._count_queued()
                self._values.fetch()
                self._report_meters("valid")

    def epoch(self, number: int, *, of: int | None = None, steps: int | None = None) -> AbstractContextManager[None]:
        """A context for one epoch, with its training and its evaluation: `with run.epoch(i, of=10):`.

        `number` counts from 0 or from 1, as the first one does; views count from 1. `of`: number of epochs, and
        `steps`: steps per epoch, for the progress and the time remaining.
        """
        return EpochContext(self, number, of, steps)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A context for a part of the loop: `data`, `evaluate`, `save`, or a name of your own.

        Its time is a section of the epoch. Evaluations and saves do not count as time of steps.
        """
        return contextlib.nullcontext() if self._is_off else self._phases.context(name)

    def printed_bytes(self) -> int | None:
        """Bytes of output of the command so far; None if unknown."""
        return self._process.printed_bytes()

    def evaluated(self, t: float, printed_bytes: int | None) -> None:
        """Reports an evaluation since the unix time `t`. For hooks, which learn at its end that it was one."""
        if not self._is_off:
            self._phases.evaluation_began(t, printed_bytes)
            self._phases.evaluation_ended()

    def step_ended(
        self, loss: float | None, examples: int | None, lr: float | None, ended_at: float, *, step: int | None = None
    ) -> None:
        """Reports a step that ended at `ended_at` (`time.perf_counter`). For hooks, which report it later."""
        if (plain := self._plain) is not None and step is None:
            queued, kind, _, _, usual = plain
            if kind is float and type(loss) is float and examples == usual:
                queued.append((loss, lr, ended_at))
                if len(queued) >= QUEUED_MAX:
                    self._empty_queue()
                return
        self._step(loss, examples, lr, step)
        self._pace.date(ended_at)

    def waited_for_data(self, seconds: float) -> None:
        """Adds time in which this thread waited for batches since the last report, where no `phase("data")` is around
        it. For hooks, which learn of it later."""
        if not self._is_off:
            self._phases.waited_for_data(seconds)

    def plan(
        self,
        *,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        examples: int | None = None,
    ) -> None:
        """Replaces the plan by what is known better now; `steps`: steps per epoch, `examples`: those of the data set.
        For hooks, which learn it later."""
        if not self._is_off:
            self._plan.replace(total_steps, epochs, steps, examples)

    def take_plan(self, plan: ScriptPlan) -> None:
        """Replaces the plan by that of a script that reports from now on."""
        self._plan = plan

    def image(self, name: str, image: Any, *, example: str = "") -> None:
        """Saves a picture and shows it with the epoch.

        `image`: a PIL image, a matplotlib figure, or an array or tensor [height, width], [height, width, 3 or 4] or
        [1 or 3, height, width], as uint8 or as floats from 0 to 1. `example` groups pictures of one example.
        """
        with self._guarded("run.image") as active:
            if active:
                epoch, step = self._process.progress.epoch, self._pace.step
                kept = self._pictures.save(name, image, example, epoch, step)
                self._process.emit(ev.PicturesKept(t=time.time(), epoch=epoch, step=step, pictures=kept))

    def text(self, text: str) -> None:
        """Adds lines to the log of the run."""
        with self._guarded("run.text") as active:
            for line in str(text).splitlines()[: artifacts.LINES_MAX] if active else ():
                self._process.emit(ev.LogWritten(t=time.time(), line=line))

    def checkpoint_saved(
        self, path: str | Path, *, seconds: float = 0.0, best: bool = False, reason: str = "epoch"
    ) -> None:
        """Reports a checkpoint that the script saved, a file or a directory. `seconds`: wall time of the save."""
        with self._guarded("run.checkpoint_saved") as active:
            if active:
                self._saves.report(Path(path), seconds, best, reason)

    def checkpoint_removed(self, path: str | Path) -> None:
        """Reports that a checkpoint was removed because newer ones exist."""
        with self._guarded("run.checkpoint_removed") as active:
            if active:
                shown = artifacts.shown_path(Path(path), self._process.run_dir)
                self._process.emit(ev.CheckpointDropped(t=time.time(), path=shown))

    def save_if_asked(self, save: Callable[[], Any]) -> bool:
        """Calls `save()` if a save, or a stop with a save, was requested; returns whether it saved.

        `save` may return the path of the checkpoint. If it raises, the request is refused with the reason and training
        continues. Call it once per step, after `step`.
        """
        asked = self.saves_asked()
        with self._guarded("run.save_if_asked"):
            return bool(asked) and self._saves.serve(save, asked)
        return False

    def saves_asked(self) -> list[Any]:
        """The requests for which the script shall save now; pass them to `answer_saves` then. For callbacks of
        frameworks that save later; scripts call `save_if_asked`."""
        with self._guarded("run.saves_asked") as active:
            return self._saves.asked() if active and self._process.is_whole else []
        return []

    def answer_saves(self, asked: list[Any], path: Path | None, seconds: float) -> None:
        """Reports that a checkpoint was saved for these requests; without a path if another rank reports it."""
        with self._guarded("run.answer_saves") as active:
            if active and asked:
                self._saves.answer(asked, path, seconds)

    def should_stop(self, *, ends_epoch: bool = False) -> bool:
        """Whether the script shall leave its loop because a stop was requested. Call it once per step, after `step`,
        and after `save_if_asked`. `ends_epoch`: whether all steps of the epoch that is open are done."""
        if self._is_off or not self._process.is_whole:
            return False
        try:
            in_epoch = not ends_epoch and (self._epoch is not None or not self._uses_epochs)
            return self._process.requests.stop_due(self._pace.step, in_epoch=in_epoch)
        except Exception as error:  # noqa: BLE001, RUF100 - reporting must not end training
            self.warn_of(error, "run.should_stop")
            return False

    def close(self, outcome: ev.Outcome | None = None, reason: str = "") -> None:
        """Reports the end of training, and closes the journal: by default `stopped` if a stop was requested, else
        `done`. Later calls do nothing."""
        if self._is_off:
            return
        try:
            self._count_queued()
            self._values.fetch(all_values=True)
            if not self._process.leave():
                return
            self._recorder.flush()
            self._recorder.end_open_epoch()
            self.report()
            stopped = self._process.requests.finish(self._pace.step)
            outcome = outcome or ("stopped" if stopped else "done")
            num_steps = self._pace.num_steps
            trained = (
                f"{'' if self.counts_all_steps else 'at least '}{num_steps:,} step{'s' * (num_steps != 1)} trained"
            )
            if self._uses_epochs and not num_steps:
                trained = f"{self.last_epoch:,} epoch{'s' * (self.last_epoch != 1)}, the number of steps is not known"
            usual = trained if outcome == "done" else f"{outcome} at step {self._pace.step}"
            self._process.end(outcome, (reason or usual) + self._recorder.best.suffix)
        except Exception as error:  # noqa: BLE001, RUF100 - reporting must not end the script
            self.warn_of(error, "run.close")
        finally:
            self._is_off, self._plain = True, None

    def close_after(self, error: BaseException) -> None:
        """Reports that an exception ended training, and closes the journal. Ctrl-C stops the run."""
        self.close_with(ending_of(error))

    def close_with(self, ending: ScriptEnding) -> None:
        """Reports how training ended, and closes the journal."""
        with self._guarded("run.close") as active:
            if active and ending.failure is not None:
                self._process.fail(ending.failure)
        where = f" at step {self.last_step}" if ending.outcome == "stopped" else ""
        self.close(ending.outcome, ending.reason + where)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.close_after(error)

    def detach(self, *, warn: bool = False) -> None:
        """Makes every later call do nothing, without writing anything. For a process forked from that of the run."""
        self._warns_of_fork = warn and not self._is_off
        self._is_off, self._plain = True, None

    def emit(self, event: ev.Event) -> None:
        """Writes an event to the journal. For callbacks of frameworks."""
        if not self._is_off:
            self._process.emit(event)

    @property
    def is_of_core(self) -> bool:
        """Whether it is that of a thread that trains one of several cores of this process."""
        return not self._is_off and self._recorder.num_threads > 1

    @property
    def last_step(self) -> int:
        """Newest step; 0 before the first."""
        return self._pace.step

    @property
    def last_epoch(self) -> int:
        """Newest epoch; 0 before the first, and if the script has none."""
        return self._process.progress.epoch if self._uses_epochs else 0

    @property
    def is_launched(self) -> bool:
        """Whether tputui launched the script, so that the run lasts as long as that."""
        return not self._is_off and self._process.supervised

    def pause(self, reason: str) -> None:
        """Reports that a training has ended, though the script goes on: what it does then is not known, and it serves
        no request. For callbacks of frameworks."""
        with self._guarded("run.pause") as active:
            if active:
                self._count_queued()
                self._values.fetch(all_values=True)
                self._recorder.flush()
                self.report()
                self._process.requests.withdraw()
                self._process.progress.enter("unknown")
                self.text(reason)

    def warn(self, text: str) -> None:
        """Reports a warning, once per text. For callbacks of frameworks."""
        if not self._is_off:
            self._process.warn(text)

    def warn_of(self, error: BaseException, where: str) -> None:
        """Reports an error of the reporting itself, once per kind of error and place. For callbacks of frameworks."""
        with contextlib.suppress(Exception):
            self._process.warn_of(error, where)

    def report(self, *, may_wait: bool = False) -> None:
        """Writes plan, progress and meters. Called about once a second by the thread of the heartbeat, for which a step
        may wait for the next one."""
        process, pace = self._process, self._pace
        self._count_queued()
        self._announce_plan()
        since = pace.since_last(may_wait=may_wait)
        if since is None:
            return
        num_steps, step_s, examples, data_s, (timed_steps, steps_s) = since
        collections, collections_s = process.collections.take()
        process.requests.add_step_time(step_s)
        process.emit(
            ev.ProgressReported(
                t=time.time(),
                epoch=process.progress.epoch,
                epoch_step=pace.step - self._begun_at_step,
                step=pace.step,
                step_s=step_s,
                examples_per_s=examples * self._num_parts / step_s if examples else math.nan,
                lr=float(self._lr),
                report_steps=num_steps,
                timed_steps=timed_steps,
                steps_s=steps_s,
                waited_s=None if data_s is None else data_s * num_steps,
                collections=collections,
                collections_s=collections_s,
            )
        )
        if process.leads_host:
            # How long a step computes or waits for other hosts is known to the framework at most.
            process.emit(
                ev.HostPaceMeasured(t=time.time(), step=pace.step, steps=num_steps, step_s=step_s, data_s=data_s)
            )
        self._report_meters("train")

    def begin_epoch(self, context: EpochContext, began_at: float | None = None) -> None:
        """Begins an epoch. Called by its context; hooks learn later when it began (`time.perf_counter`)."""
        with self._guarded("run.epoch") as active:
            if not active:
                return
            self._count_queued()
            context.number = int(host_number("the number of an epoch", context.number))
            if not self._uses_epochs:
                self._uses_epochs = True
                self._epoch_shift = 1 if context.number <= 0 else 0
            self._epoch = context
            self._begun_at_step = self._pace.step
            self._phases.take_sections()
            self._pace.begin(began_at)
            if self._column:
                return
            self._plan.take_epoch(context.num_epochs, context.num_steps)
            self._recorder.begin_epoch()
            self._process.progress.epoch = context.number + self._epoch_shift
            self._process.progress.enter("executing")
            first = self._pace.step + 1
            epoch, printed = self._process.progress.epoch, self._process.printed_bytes()
            self._process.emit(ev.EpochStarted(t=time.time(), epoch=epoch, first_step=first, printed_bytes=printed))

    def end_epoch(self, took_s: float, num_epochs: int = 1) -> None:
        """Ends an epoch, or several at once. Called by its context."""
        with self._guarded("run.epoch") as active:
            if not active:
                return
            self._epoch = None
            self._count_queued()
            self._values.fetch()
            if self._column:
                self._recorder.end_epoch(None)
                return
            if self.counts_all_steps:
                self._plan.take_steps(self._pace.step - self._begun_at_step)
            sections_s = self._phases.take_sections()

            def report() -> None:
                # Other threads fetch their values as they end the epoch.
                self.report()
                self._process.emit(self._epoch_ended(took_s, sections_s, num_epochs))

            self._recorder.end_epoch(report)

    def _epoch_ended(self, took_s: float, sections_s: dict[str, float], num_epochs: int) -> ev.Event:
        valid_s = sections_s.get("evaluate", 0.0)
        valid, best = self._recorder.readings("valid"), self._recorder.best
        monitored = valid.get(best.monitor)
        return ev.EpochEnded(
            t=time.time(),
            epoch=self._process.progress.epoch,
            step=self._pace.step,
            train=self._recorder.readings("train"),
            valid=valid,
            train_s=max(0.0, took_s - valid_s),
            valid_s=valid_s,
            sections_s=sections_s,
            lr=float(self._lr),
            best=monitored is not None and best.update(monitored.avg, self._process.progress.epoch),
            num_epochs=num_epochs,
        )

    def _record(self, step: int, loss: Any) -> None:
        """Records a loss that is not plain numbers of the usual shape, or the first one."""
        if self._pace.num_steps == 1:
            self._pace.begin_first()
            if self._process.progress.doing.phase == "starting":
                self._process.progress.enter("executing")
            self._process.requests.accept_traces()
        if loss is None:
            return
        values = self._values
        num_fetches, num_waiting = values.num_fetches, values.num_waiting
        values.record(step, loss)
        if values.num_fetches != num_fetches and num_waiting > 2:
            # The next step waits for the device in place of those before.
            self._pace.times.skip()
        # The values of earlier steps come first.
        self._width = 0 if values.num_waiting or values.log is None else values.width
        self._record_plain = values.log or ignore
        if self._width and not self._column and not self._tracer.is_busy:
            tensor = getattr(sys.modules.get("torch"), "Tensor", None) if self._width == 1 else None
            kind = float if self._width == 1 else list
            self._plain = (self._pace.queued, kind, tensor, self._width, self._examples)
        else:
            self._plain = None

    def _empty_queue(self) -> None:
        with self._guarded("run.step"):
            self._count_queued()
            self._pace.drop_counted()

    def _count_queued(self) -> None:
        """Counts and records the steps that were queued. Called by the thread of the heartbeat, too."""
        with self._counting:
            first, queued = self._pace.count_queued(self._examples or 0)
            for step, (loss, lr, _) in enumerate(queued, first):
                self._record_plain(step, (loss,) if type(loss) is float else loss)
                self._lr = self._lr if lr is None else lr
            if self._tracer.is_busy:
                # A profile begins and ends between two steps.
                self._plain = None

    def _weigh(self, step: int, examples: int) -> None:
        self._examples = examples
        self._batch = max(self._batch, int(examples))
        if self._column == 0:
            self._recorder.weigh(step, max(0, int(examples)) * self._recorder.num_threads)

    @property
    def _num_parts(self) -> int:
        """Threads and processes that train as many examples as this one."""
        return self._process.world_size * self._recorder.num_threads

    def _announce_plan(self) -> None:
        columns = max(1, self._recorder.num_columns // self._recorder.num_threads)
        columns = max(columns, num_of_spmd())
        # The number of cores is known once the first loss has been fetched.
        if not self._pace.num_steps or (not self._recorder.num_columns and self._values.num_waiting):
            return
        first = self._pace.step - self._pace.num_steps + 1
        lr = float(self._lr if self._start_lr is None else self._start_lr)
        if plan := self._plan.announce(self._batch, columns, self._num_parts, first, lr):
            self._process.emit(plan)

    def _report_meters(self, split: ev.Split) -> None:
        if (
            reported := self._recorder.meters_reported(split, self._process.progress.epoch, self._pace.step)
        ) is not None:
            self._process.emit(reported)

    @contextlib.contextmanager
    def _guarded(self, where: str) -> Iterator[bool]:
        """Yields whether the run is active; errors inside are reported once and go no further."""
        try:
            yield not self._is_off
        except Exception as error:  # noqa: BLE001, RUF100 - reporting must not end training
            self.warn_of(error, where)

    def _warn_of_fork(self) -> None:
        self._warns_of_fork = False
        _log.warning("this process was forked from that of the run; it reports nothing unless it calls tputui.start()")


class EpochContext(AbstractContextManager[None]):
    """The context of one epoch. An exception inside leaves the epoch open: it was not trained."""

    def __init__(self, run: Run, number: int, num_epochs: int | None, num_steps: int | None) -> None:
        self.number = number
        """As the script counts."""
        self.num_epochs = num_epochs
        self.num_steps = num_steps
        self.num_ended = 1
        """Epochs that end with it, of hooks."""
        self._run = run
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._run.begin_epoch(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self._run.end_epoch(time.perf_counter() - self._began, self.num_ended)


class Phases:
    """The phases of one thread: sections of the epoch, of which some are not part of a step."""

    def __init__(self, process: RunProcess, pace: StepPace) -> None:
        self._process = process
        self._progress = process.progress
        self._pace = pace
        self._timer = SectionTimer(names=(), charged=self._charged)

    @contextlib.contextmanager
    def context(self, name: str) -> Iterator[None]:
        section = _SECTIONS.get(str(name), str(name)[:NAME_CHARS_MAX])
        if section == "evaluate":
            self.evaluation_began(time.time(), self._process.printed_bytes())
        before = self._progress.enter_section(section)
        outer = self._timer.enter(section)
        try:
            yield
        finally:
            self._timer.enter(outer)
            self._progress.enter(before)
            if section == "evaluate":
                self.evaluation_ended()

    def evaluation_began(self, t: float, printed_bytes: int | None) -> None:
        epoch, step = self._progress.epoch, self._pace.step
        self._process.emit(ev.EvaluationStarted(t=t, epoch=epoch, step=step, printed_bytes=printed_bytes))

    def evaluation_ended(self) -> None:
        """Reports that the script goes on."""
        self._process.emit(ev.EvaluationEnded(t=time.time(), printed_bytes=self._process.printed_bytes()))

    def waited_for_data(self, seconds: float) -> None:
        """Charges a wait that ended in the current section."""
        self._timer.charge("data", seconds)

    def take_sections(self) -> dict[str, float]:
        """Seconds by section since the last call. Sections do not overlap."""
        totals = self._timer.totals()
        self._timer.restart()
        return totals

    def _charged(self, section: str, seconds: float) -> None:
        if section == "data":
            self._pace.wait_for_data(seconds)
        elif section in _PAUSES:
            self._pace.pause(seconds)


class Saves:
    """The checkpoints of one thread."""

    def __init__(self, process: RunProcess, pace: StepPace, phases: Phases, column: int) -> None:
        self._process = process
        self._pace = pace
        self._phases = phases
        self._column = column

    def report(self, path: Path, seconds: float, best: bool, reason: str) -> tuple[str, int]:
        """Reports a checkpoint; returns its path relative to the run directory, and its bytes."""
        shown, num_bytes = artifacts.shown_path(path, self._process.run_dir), artifacts.num_bytes(path)
        self._process.emit(
            ev.CheckpointSaved(
                t=time.time(),
                path=shown,
                step=self._pace.step,
                epoch=self._process.progress.epoch,
                bytes=num_bytes,
                seconds=float(seconds),
                reason=reason,
                best=bool(best),
            )
        )
        return shown, num_bytes

    def asked(self) -> list[Any]:
        return self._process.requests.saves_due(self._pace.step, self._column)

    def serve(self, save: Callable[[], Any], asked: Sequence[Any]) -> bool:
        """Calls `save` for these requests; returns whether it did not raise."""
        began = _clock()
        try:
            with self._phases.context("save"):
                saved = save()
        except Exception as error:  # noqa: BLE001, RUF100 - a save that the user asked for must not end training
            why = f"the script could not save: {type(error).__name__}: {error}"
            self._process.requests.saved([*asked], self._column, ServedSave(self._pace.step, why_not=why))
            self._process.warn(f"the requested save failed: {type(error).__name__}: {error}; training continues")
            return False
        path = Path(saved) if isinstance(saved, str | Path) else None
        self.answer(asked, path, _clock() - began)
        return True

    def answer(self, asked: Sequence[Any], path: Path | None, seconds: float) -> None:
        """Reports that a checkpoint was saved for these requests. All ranks may have the path of one file."""
        requests = self._process.requests
        shown, num_bytes = None, None
        try:
            if path is not None and requests.reports_saves and not self._column:
                shown, num_bytes = self.report(path, seconds, best=False, reason="request")
        except FileNotFoundError:
            # One rank writes it, perhaps on another host.
            if self._process.rank == 0:
                self._process.warn(f"the requested save returned {path}, which does not exist")
        finally:
            # An open request would be served again at the next step, perhaps by this rank alone.
            requests.saved([*asked], self._column, ServedSave(self._pace.step, shown, num_bytes, seconds))

"""Observes torch_xla in a process: what it compiled, with cause and line, and what made its steps wait.

Counters are compared around every sync, which takes microseconds. When they show trouble that they cannot explain, a
window of a few steps finds the lines; see `xla_window`. In warm-up each program is inspected once.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from itertools import islice
from statistics import median
from types import FrameType
from typing import Any

from msgspec.structs import replace

from tputui.observers.sinks import INTERVAL_S, CompileReports, Sink, observes_all, process_sink
from tputui.observers.user_frames import UserLine, line_of, user_frames
from tputui.observers.xla_graph import EVERY_STEP, READ_COMPILES, RECOMPILES, Reason, Trouble
from tputui.observers.xla_programs import Place, ProgramInspector
from tputui.observers.xla_runtime import Calls, MetricTotals, XlaRuntime
from tputui.observers.xla_threads import TrainingThreads
from tputui.observers.xla_window import OTHER_THREAD, STEPS, Compilations, StepSyncs, XlaWindow
from tputui.telemetry.events import (
    ChangedInput,
    CompileCause,
    CompileObserved,
    FallbackObserved,
    SyncObserved,
    WarningRaised,
    XlaMetricsRead,
)

WARM_UP_RUNS = 2
"""Runs of a program in which it may compile: the first step creates the optimizer's state, the second uses it."""
CALLS_KEYED = 3
"""Calls of the user's code that tell programs apart: a helper that syncs may serve training and validation."""
PROGRAMS_MAX = 1_000
STEPS_ENOUGH = 4
"""Steps of a window that torch.compile cut short from which it counts."""
UNSYNCED_STEPS = 5
"""So many steps of the optimizer without a sync count as steps themselves."""
FROM_READ = "compiled before the sync, when a value was read; the line is found if that happens again"
IN_ENGINE = (
    "the program compiles after the task's code has returned; its line is found if it compiles twice "
    f"within {STEPS} steps"
)
NOT_IN_WINDOW = "it did not run in the steps that were observed"
DYNAMO = "torch.compile is in use; lines cannot be found without making it compile again"


class XlaObserver:
    """Observes the syncs of a process. Thread-safe; its public methods never raise."""

    def __init__(
        self,
        sink: Sink,
        *,
        reports_totals: bool,
        own_reads: Callable[[], int] = lambda: 0,
        late_read_compiles: int = WARM_UP_RUNS,
    ) -> None:
        """`reports_totals`: whether it emits the totals of the runtime's counters. `own_reads`: transfers from the
        device by tputui itself. `late_read_compiles`: how often values that are read after warm-up may compile before
        this counts as a recompile; the first evaluation does."""
        self._sink = sink
        self._runtime = runtime = XlaRuntime()
        self._cache_misses = 0
        self._reports_totals = reports_totals
        self._late_read_compiles = late_read_compiles
        self._lock = threading.RLock()
        self._threads = TrainingThreads(runtime)
        self._compilations = Compilations(runtime)
        self._checked_steps = 0
        """Steps until the newest check for trouble: between two checks, those of the thread that made most."""
        self._compiles = CompileReports(sink.emit)
        self._metrics, self._step_syncs = MetricTotals(runtime), StepSyncs(runtime)
        self._trouble = Trouble(runtime, own_reads)
        self._own_reads = own_reads
        self._observes_all = observes_all()
        self._runs: dict[Hashable, int] = {}
        self._described: set[Hashable] = set()
        """Syncs whose programs were inspected, by any thread."""
        self._programs = ProgramInspector(runtime)
        self._read_line: UserLine | None = None
        """The line whose reads compiled in the newest window; later such compilations count for it."""
        self._windows: list[XlaWindow] = []
        """The windows that are open, of all threads."""
        self._calls = Calls()
        self.lines_found = ""
        """What the newest window found, as `.item() at train.py:41`."""
        self._is_used = self._recorded_lines = self._has_failed = False
        self._window_reads = self._window_own = self._seen_reads = 0
        self._seen_operators: set[str] = set()
        """What the windows that were open at the same time as one that still is have seen."""
        self._recompiles = self._num_late_reads = 0
        self._due = time.monotonic() + INTERVAL_S
        self._reported: XlaMetricsRead | None = None
        """The newest totals that were emitted, without their time."""

    def begin(self, frame: FrameType | None) -> Place | None:
        """A sync of a script begins; `frame` is the call of it."""
        try:
            return self._before(self._place_of(frame))
        except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
            self._failed(error)
            return None

    def begin_program(self, name: str, *, warm_up: bool, ends_step: bool) -> Place | None:
        """A sync of the engine begins, which runs the program `name`; `ends_step`: whether a step of training or
        evaluation ends with it."""
        try:
            place = Place(name, name, UserLine(None, IN_ENGINE), self._runs.get(name, 0) + 1, warm_up)
            place.ends_step = ends_step
            return self._before(place)
        except Exception as error:  # noqa: BLE001, RUF100 - as above
            self._failed(error)
            return None

    def end(self, place: Place | None) -> None:
        """The sync returned."""
        try:
            if place is not None:
                self._after(place)
        except Exception as error:  # noqa: BLE001, RUF100 - as above
            self._failed(error)

    def follow(self, optimizer: Any) -> None:
        """Includes the weights of an optimizer in the programs that are inspected."""
        self._programs.follow(optimizer)

    def discard_compiles(self) -> None:
        """What was compiled since the last sync is no matter of the user."""
        with self._lock:
            self._compilations.claim_all()

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Called after every step of an optimizer."""
        try:
            thread = self._threads.own
            thread.optimizer_steps += 1
            self._programs.follow(optimizer)
            with self._lock:
                self._step_syncs.optimizer_stepped(self._programs.gradients)
            # A program that trains on the CPU may only have imported torch_xla.
            if thread.optimizer_steps > UNSYNCED_STEPS and (self._is_used or self._runtime.has_run()):
                place = Place("", "", UserLine(None, FROM_READ), WARM_UP_RUNS + 1, False)
                with self._lock:
                    self._take_read_compiles(place)
                    self._stepped()
        except Exception as error:  # noqa: BLE001, RUF100 - as above
            self._failed(error)

    def flush(self) -> None:
        """Emits what waits, and ends the window of the calling thread."""
        with self._lock:
            if self._threads.own.window is not None:
                self._close_window(self._threads.own.window)
            for window in self._windows:
                # Only the thread that opened it can remove its hook.
                self._emit_found(window)
            if self._is_used:
                self._take_unclaimed()
                self._report()

    def after_fork(self) -> None:
        """In a forked child, such as a worker of a data loader: removes the hook. Another thread, which does not exist
        here, may have held the lock."""
        self._lock = threading.RLock()
        window, self._windows = self._threads.own.window, []
        self._threads.own.window, self._calls = None, Calls()
        if window is not None:
            window.close()

    @property
    def is_looking(self) -> bool:
        """Whether a window is open."""
        return bool(self._windows)

    @property
    def step(self) -> int:
        """The step that runs, counted from 1."""
        return (self._sink.step or self._threads.own.steps) + 1

    def _place_of(self, frame: FrameType | None) -> Place:
        thread = self._threads.own
        frames = list(islice(user_frames(frame), CALLS_KEYED))
        # A step that only accumulates gradients differs from one that updates the weights.
        kind = min(thread.optimizer_steps, UNSYNCED_STEPS)
        key = (*((caller.f_code.co_filename, caller.f_lineno) for caller in frames), kind, threading.get_ident())
        run = self._runs.get(key, 0) + 1
        program = frames[0].f_code.co_name if frames else ""
        place = Place(key, program, line_of(frames[0] if frames else None), run, run <= WARM_UP_RUNS)
        place.frames = frames
        return place

    def _before(self, place: Place) -> Place:
        with self._lock:
            self._take_read_compiles(place)
            window = self._threads.own.window
            is_new = place.run == WARM_UP_RUNS and place.lines not in self._described
            if is_new and len(self._described) < PROGRAMS_MAX:
                self._described.add(place.lines)
        if window is not None:
            window.end_scope()
        if is_new or (window is not None and window.compares_graphs):
            # Waits for the device, which may wait for another thread: without the lock.
            place.graph = self._programs.graph_of(place)
        with self._lock:
            self._threads.begin(place)
        return place

    def _after(self, place: Place) -> None:
        thread = self._threads.own
        with self._lock:
            compiled, seconds, warm_up = self._compiled_at(place)
            has_run = self._threads.has_run(place, has_compiled=compiled > 0)
            self._threads.end()
            if not has_run:
                return
            self._is_used, self._calls.num_threads = True, len(self._threads.training())
            if place.run > 1 or len(self._runs) < PROGRAMS_MAX:
                self._runs[place.key] = place.run
            if compiled:
                place.warm_up = warm_up
                line, changed = self._programs.explain(
                    place, thread.window.sized if thread.window is not None else None
                )
                self._add(place, "sync", line, changed, count=compiled, seconds=seconds)
                if not warm_up and not changed:
                    self._trouble.compiled(RECOMPILES, f"{place.program or 'a sync'} compiled again after warm-up")
            if place.graph is not None:
                if place.run == WARM_UP_RUNS and self._programs.is_whole(place.graph):
                    self._sink.emit(self._programs.describe(place, place.graph))
                if thread.window is not None:
                    self._programs.remember(place)
            if thread.window is not None:
                thread.window.synced()
            thread.optimizer_steps = 0
            lines = tuple(frame.f_lineno for frame in place.frames)
            is_grad_enabled = sys.modules["torch"].is_grad_enabled()
            self._step_syncs.synced(lines, self._programs.gradients, is_grad_enabled=is_grad_enabled)
            if place.ends_step:
                self._stepped()

    def _compiled_at(self, place: Place) -> tuple[int, float, bool]:
        """Number and seconds of the compilations of a sync that returned, and whether they belong to warm-up."""
        if self._threads.is_alone():
            return *self._compilations.claim_all(), place.warm_up
        claimed = self._compilations.claim(self._threads.own.may_have_made)
        is_warm_up = place.warm_up or all(map(self._threads.is_in_warm_up, claimed))
        return len(claimed), sum(compilation.seconds for compilation in claimed), is_warm_up

    def _stepped(self) -> None:
        """A step of the calling thread ended."""
        thread = self._threads.own
        thread.steps += 1
        thread.unchecked_steps += 1
        now = time.perf_counter()
        if thread.window is not None:
            thread.window.steps += 1
            if thread.window.steps >= STEPS or thread.window.is_cut_short:
                self._close_window(thread.window)
                if self._observes_all and not self._threads.is_alone():
                    # Reads of a thread without a window would be taken for those of others.
                    self._open_due_window()
        else:
            if thread.ended:
                thread.step_s.append(now - thread.ended)
            self._open_due_window()
        thread.ended = time.perf_counter()
        if time.monotonic() >= self._due:
            self._report()

    def _open_due_window(self) -> None:
        """Opens a window in the calling thread if the counters show trouble, or if every step is observed."""
        thread = self._threads.own
        if thread.pending is None and not self._windows:
            self._check_for_trouble()
            if (trouble := self._trouble.take()) is not None:
                # Any of the threads may be the cause.
                thread.pending = trouble
                for peer in self._threads.training():
                    peer.pending = trouble
        is_due = self._observes_all and thread.steps > WARM_UP_RUNS and not _uses_dynamo()
        reason, thread.pending = thread.pending or (EVERY_STEP if is_due else None), None
        if reason is not None:
            self._open_window(reason)

    def _check_for_trouble(self) -> None:
        threads = self._threads.training()
        steps = self._checked_steps + max((thread.unchecked_steps for thread in threads), default=0)
        if self._trouble.check(steps):
            self._checked_steps = steps
            for thread in threads:
                thread.unchecked_steps = 0

    def _take_read_compiles(self, place: Place) -> None:
        """Reports what was compiled since the last sync: values were read before this one."""
        if self._threads.is_alone():
            compiled, seconds = self._compilations.claim_all()
        else:
            claimed = self._compilations.claim(self._threads.is_read_of_own)
            compiled, seconds = len(claimed), sum(compilation.seconds for compilation in claimed)
        window = self._threads.own.window
        if compiled:
            self._add_reads(compiled, seconds, window, warm_up=place.warm_up)
        elif window is not None and window.compiled:
            # Another thread that read nothing has claimed them.
            (self._read_line, _), window.compiled = window.compiled.popitem(), {}

    def _take_unclaimed(self) -> None:
        """Reports compilations that were made in none of the threads that train, or by the last read of one."""
        compiled, seconds = self._compilations.claim_all()
        if compiled:
            self._add_reads(compiled, seconds, None, warm_up=self._threads.own.steps <= WARM_UP_RUNS)

    def _add_reads(self, compiled: int, seconds: float, window: XlaWindow | None, *, warm_up: bool) -> None:
        if not warm_up:
            self._num_late_reads += 1
            # Each thread evaluates for the first time.
            warm_up = self._num_late_reads <= self._late_read_compiles * max(1, len(self._threads.training()))
        each_s = seconds / compiled
        if window is not None:
            lines, window.compiled = window.compiled, {}
            for line, count in lines.items():
                count = min(count, compiled)
                compiled -= count
                self._read_line = line
                self._add_read(line, warm_up, count, count * each_s)
        if compiled:
            unknown = UserLine(None, FROM_READ)
            line = unknown if warm_up else self._read_line or unknown
            self._add_read(line, warm_up, compiled, compiled * each_s)
            if not warm_up:
                self._trouble.compiled(READ_COMPILES, "programs compiled before the sync, when values were read")

    def _add_read(self, line: UserLine, warm_up: bool, count: int, seconds: float) -> None:
        if count:
            self._add(Place("", "", line, 0, warm_up), "value_read", line, None, count=count, seconds=seconds)

    def _add(
        self,
        place: Place,
        cause: CompileCause,
        line: UserLine,
        changed: list[ChangedInput] | None,
        *,
        count: int,
        seconds: float,
    ) -> None:
        self._is_used = True
        self._recompiles += 0 if place.warm_up else count
        event = CompileObserved(
            t=time.time(),
            runtime="torch_xla",
            program=place.program,
            cause=cause,
            warm_up=place.warm_up,
            count=count,
            seconds=seconds,
            step=self.step,
            user_frame=line.frame,
            line_reason=line.reason,
            changed_inputs=None if place.warm_up else changed,
            cached=self._missed_cache(),
        )
        self._compiles.add(event)

    def _missed_cache(self) -> bool | None:
        """False if the persistent cache had none of what was compiled since the last call; None if there is none: a
        program that it has is not compiled."""
        misses = self._runtime.count("PersistentCacheMiss")
        before, self._cache_misses = self._cache_misses, misses
        return False if misses > before else None

    def _open_window(self, reason: Reason) -> None:
        thread = self._threads.own
        uses_dynamo = _uses_dynamo()
        if uses_dynamo and not reason.in_graph:
            self._report_unknown(DYNAMO)
            return
        steady_s = median(thread.step_s) if thread.step_s else None
        if not self._windows:
            self._window_reads, self._window_own, self._seen_reads = self._runtime.reads(), self._own_reads(), 0
            self._seen_operators.clear()
        window = XlaWindow(self._runtime, reason, steady_s, self._calls, thread.rank, self._programs.scopes)
        if reason.in_graph and not any(opened.compares_graphs for opened in self._windows):
            self._recorded_lines = self._runtime.record_lines(True)
        thread.window = window
        self._windows.append(window)
        if not uses_dynamo:
            self._calls.num_hooked += 1
            window.open()

    def _close_window(self, window: XlaWindow) -> None:
        self._threads.own.window = None
        self._windows = [other for other in self._windows if other is not window]
        self._calls.num_hooked -= window.is_hooked
        if window.is_hooked:
            window.close()
        if window.compares_graphs and not any(opened.compares_graphs for opened in self._windows):
            self._runtime.record_lines(self._recorded_lines)
            self._programs.forget()
        self._seen_reads += window.reads
        self._seen_operators |= window.operators
        if window.is_cut_short and window.steps < STEPS_ENOUGH and window.reason is not EVERY_STEP:
            lines = window.lines_found
            self._report_unknown(f"{DYNAMO}; before it compiled: {lines}" if lines else DYNAMO)
        else:
            if not window.compares_graphs and not self._windows:
                self._report_unseen(window)
            self._emit_found(window)
        self._trouble.settle(window.reason, window.operators)
        if window.error is not None:
            self._failed(window.error)

    def _emit_found(self, window: XlaWindow) -> None:
        if window.was_emitted:
            # When the run was closed, and the process went on.
            return
        window.was_emitted = True
        for event in window.events():
            self._sink.emit(event)
        self.lines_found = window.lines_found or self.lines_found

    def _report_unseen(self, window: XlaWindow) -> None:
        """Reports what the counters showed but the windows, of which this is the last, did not see."""
        own_reads = max(window.own_reads, self._own_reads() - self._window_own)
        unseen = self._runtime.reads() - self._window_reads - own_reads - self._seen_reads
        # Windows of several threads do not begin at the same time.
        is_known = self._seen_reads > 0 and not self._threads.is_alone()
        if unseen / max(1, window.steps) > 0.5 and not window.is_cut_short and not is_known:
            self._emit_sync(unseen, OTHER_THREAD, window.steps, window.seconds)
        for name, count in self._trouble.fallbacks.items():
            if name not in self._seen_operators:
                self._emit_fallback(name, count, NOT_IN_WINDOW)

    def _report_unknown(self, reason: str) -> None:
        """Reports trouble of which no line can be found."""
        trouble = self._trouble
        if trouble.reads / trouble.steps > 0.5:
            self._emit_sync(trouble.reads, reason, trouble.steps, trouble.seconds)
        for name, count in trouble.fallbacks.items():
            self._emit_fallback(name, count, reason)

    def _emit_sync(self, count: int, reason: str, steps: int, window_s: float) -> None:
        self._sink.emit(
            SyncObserved(
                t=time.time(),
                runtime="torch_xla",
                operation="a read of a value",
                user_frame=None,
                line_reason=reason,
                count=count,
                waited_s=0.0,
                steps=max(1, steps),
                window_s=window_s,
            )
        )

    def _emit_fallback(self, name: str, count: int, reason: str) -> None:
        self._sink.emit(
            FallbackObserved(
                t=time.time(),
                runtime="torch_xla",
                operator=name,
                user_frame=None,
                line_reason=reason,
                count=count,
                transfers=None,
                seconds=None,
                steps=self._trouble.steps,
                window_s=self._trouble.seconds,
            )
        )

    def _report(self) -> None:
        self._due = time.monotonic() + INTERVAL_S
        self._compiles.flush()
        if self._reports_totals:
            read = self._metrics.read(self._recompiles, self._step_syncs.read())
            # A process that has left its run would repeat the same totals in the journal of its observers.
            if replace(read, t=0.0) != self._reported:
                self._reported = replace(read, t=0.0)
                self._sink.emit(read)

    def _failed(self, error: Exception) -> None:
        """Reports an error of the observer, once."""
        if not self._has_failed:
            self._has_failed = True
            text = f"torch_xla could not be observed: {type(error).__name__}: {error}"
            self._sink.emit(WarningRaised(t=time.time(), text=text))


def follow_optimizers(observer: XlaObserver) -> None:
    """Calls the observer after every step of any optimizer, as long as it is used."""
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    reference = weakref.ref(observer)

    def stepped(optimizer: Any, *_: object) -> None:
        if (live_observer := reference()) is not None:
            live_observer.optimizer_stepped(optimizer)
        else:
            handle.remove()

    handle = optimizers.register_optimizer_step_post_hook(stepped)


def _uses_dynamo() -> bool:
    """Whether the program has compiled a function with `torch.compile`."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters.get("frames"))


_lock = threading.Lock()
_started: list[XlaObserver] = []


def start() -> None:
    """Observes torch_xla, which is imported. Later calls do nothing."""
    with _lock:
        if _started:
            return
        observer = XlaObserver(process_sink, reports_totals=True)
        _started.append(observer)
    module: Any = sys.modules["torch_xla.torch_xla"]
    module.sync = wrapped = _observed(module.sync, observer)
    package: Any = sys.modules["torch_xla"]
    if hasattr(package, "sync"):
        package.sync = wrapped
    follow_optimizers(observer)
    process_sink.before_close(observer.flush)
    os.register_at_fork(after_in_child=observer.after_fork)


def _observed(real: Callable[..., None], observer: XlaObserver) -> Callable[..., None]:
    @functools.wraps(real)
    def sync(*args: Any, **kwargs: Any) -> None:
        place = observer.begin(sys._getframe(1))
        real(*args, **kwargs)
        observer.end(place)

    return sync

"""Observes torch_xla: compilations with the line that caused them, and single values that steps read.

Counters are compared around every sync, which takes microseconds; nothing is patched but `torch_xla.sync`. What the
counters cannot show is found in a window of a few steps with hooks; see `xla_window`.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from tputui.observers.compile_reports import CompileReports
from tputui.observers.sinks import Sink, process_sink
from tputui.observers.totals import ResettableTotal
from tputui.observers.user_frames import UserLine, line_of, user_frames
from tputui.observers.xla_runtime import SCALAR_READS, XlaRuntime
from tputui.telemetry.events import CompileCause, CompileObserved, WarningRaised, XlaMetricsRead

WARM_UP_RUNS = 2
"""Runs of a program in which it may compile: the first step creates the optimizer's state, the second uses it."""
CALLS_KEYED = 3
"""Calls of the user's code that tell programs apart: a helper that syncs may serve training and validation."""
REPORT_INTERVAL_S = 1.0
FROM_READ = "compiled before the sync, when a value was read; the line is found if it happens again"

ProgramKey = tuple[tuple[str, int], ...]


class Place(NamedTuple):
    """What a sync runs."""

    program: str
    """Its name: the one that the engine gives it, or the function that syncs."""
    line: UserLine
    warm_up: bool


class _Thread(threading.local):
    """What the observer stores for each thread that syncs."""

    def __init__(self) -> None:
        self.steps = 0
        self.optimizer_steps = 0
        self.runs: dict[tuple[ProgramKey, int], int] = {}


class XlaObserver:
    """Observes the syncs of a process. Thread-safe."""

    def __init__(self, sink: Sink, *, reports_totals: bool) -> None:
        """`reports_totals`: whether it emits the totals of the runtime's counters, which the engine does itself."""
        self._sink = sink
        self._runtime = runtime = XlaRuntime()
        self._reports_totals = reports_totals
        self._lock = threading.RLock()
        self._threads = _Thread()
        self._compiled = ResettableTotal(runtime.compiled())
        self._compile_s = ResettableTotal(runtime.compile_s())
        self._totals: dict[str, ResettableTotal] = {}
        self._compiles = CompileReports(sink.emit)
        self._graphs = runtime.graphs()
        self._recompiles = 0
        self._read_compiles = 0
        self._has_failed = False
        self._due = time.monotonic() + REPORT_INTERVAL_S

    def begin(self, frame: FrameType | None) -> Place | None:
        """A sync of the user's code begins; `frame` is the call of it."""
        try:
            return self.before_sync(self.place_of(frame))
        except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
            self._failed(error)
            return None

    def end(self, place: Place | None) -> None:
        """The sync returned."""
        try:
            if place is not None:
                self.after_sync(place)
        except Exception as error:  # noqa: BLE001, RUF100 - as above
            self._failed(error)

    def place_of(self, frame: FrameType | None) -> Place:
        """The program that a sync in the user's code runs."""
        thread = self._threads
        frames = list(_first(user_frames(frame), CALLS_KEYED))
        key = tuple((one.f_code.co_filename, one.f_lineno) for one in frames)
        # A step that only accumulates gradients differs from one that updates the weights.
        kind, thread.optimizer_steps = thread.optimizer_steps, 0
        runs = thread.runs[key, kind] = thread.runs.get((key, kind), 0) + 1
        return Place(
            frames[0].f_code.co_name if frames else "", line_of(frames[0] if frames else None), runs <= WARM_UP_RUNS
        )

    def before_sync(self, place: Place) -> Place:
        """Records what was compiled since the last sync: values were read before it."""
        with self._lock:
            compiled, seconds = self._new_compiles()
            if compiled:
                warm_up = place.warm_up
                if not warm_up:
                    # The first evaluation, and the reads after it, compile as well.
                    self._read_compiles += 1
                    warm_up = self._read_compiles <= WARM_UP_RUNS
                unknown = UserLine(None, FROM_READ)
                self._add("", "value_read", unknown, warm_up=warm_up, count=compiled, seconds=seconds)
        return place

    def after_sync(self, place: Place) -> None:
        """Records what the sync compiled, and a step if it ran anything."""
        thread = self._threads
        with self._lock:
            graphs = self._runtime.graphs()
            if graphs == self._graphs:
                return
            self._graphs = graphs
            compiled, seconds = self._new_compiles()
            if compiled:
                self._add(place.program, "sync", place.line, warm_up=place.warm_up, count=compiled, seconds=seconds)
            thread.steps += 1
            if time.monotonic() >= self._due:
                self._report()

    def optimizer_stepped(self) -> None:
        """Called after every step of an optimizer."""
        self._threads.optimizer_steps += 1

    def flush(self) -> None:
        """Emits what waits."""
        with self._lock:
            self._report()

    @property
    def step(self) -> int:
        """The step that runs, counted from 1."""
        reported = self._sink.step
        return (reported if reported is not None else self._threads.steps) + 1

    def _failed(self, error: Exception) -> None:
        """Reports an error of the observer, once."""
        if not self._has_failed:
            self._has_failed = True
            text = f"torch_xla cannot be observed any more: {type(error).__name__}: {error}"
            self._sink.emit(WarningRaised(t=time.time(), text=text))

    def _new_compiles(self) -> tuple[int, float]:
        compiled = int(self._compiled.read(self._runtime.compiled()))
        return (compiled, self._compile_s.read(self._runtime.compile_s())) if compiled else (0, 0.0)

    def _add(
        self, program: str, cause: CompileCause, line: UserLine, *, warm_up: bool, count: int, seconds: float
    ) -> None:
        self._recompiles += 0 if warm_up else count
        event = CompileObserved(
            t=time.time(),
            runtime="torch_xla",
            program=program,
            cause=cause,
            warm_up=warm_up,
            count=count,
            seconds=seconds,
            step=self.step,
            user_frame=line.frame,
            line_reason=line.reason,
            changed_inputs=None,
        )
        self._compiles.add(event)

    def _report(self) -> None:
        self._due = time.monotonic() + REPORT_INTERVAL_S
        self._compiles.flush()
        if self._reports_totals:
            self._sink.emit(self._metrics())

    def _metrics(self) -> XlaMetricsRead:
        runtime, total = self._runtime, self._total
        executes = [runtime.metric(name) for name in ("ExecuteTime", "ExecuteReplicatedTime")]
        return XlaMetricsRead(
            t=time.time(),
            compiles=int(total("compiles", runtime.metric("CompileTime")[0])),
            compile_s=total("compile_s", runtime.compile_s()),
            recompiles=self._recompiles,
            executes=int(total("executes", sum(count for count, _ in executes))),
            execute_s=total("execute_s", sum(time_ns for _, time_ns in executes) * 1e-9),
            transfers_to_device=int(total("to", runtime.metric("TransferToDeviceTime")[0])),
            transfers_from_device=int(total("from", runtime.reads()[0])),
            bytes_to_device=int(total("bytes to", runtime.metric("OutboundData")[1])),
            bytes_from_device=int(total("bytes from", runtime.metric("InboundData")[1])),
            fallbacks={
                name.removeprefix("aten::"): int(total(name, times)) for name, times in runtime.fallbacks().items()
            },
            scalar_reads=int(total("scalar reads", runtime.count(SCALAR_READS))),
        )

    def _total(self, name: str, now: float) -> float:
        counter = self._totals.setdefault(name, ResettableTotal())
        counter.read(now)
        return counter.value


def _first(frames: Any, count: int) -> Any:
    for _, frame in zip(range(count), frames, strict=False):
        yield frame


_lock = threading.Lock()
_started: list[XlaObserver] = []


def start() -> None:
    """Observes torch_xla, which is imported, in a script of the user. Later calls do nothing."""
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
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    optimizers.register_optimizer_step_post_hook(lambda *_: observer.optimizer_stepped())
    process_sink.before_close(observer.flush)


def _observed(real: Callable[..., None], observer: XlaObserver) -> Callable[..., None]:
    @functools.wraps(real)
    def sync(*args: Any, **kwargs: Any) -> None:
        place = observer.begin(sys._getframe(1))
        real(*args, **kwargs)
        observer.end(place)

    return sync

"""Where the observers of a process write their events: to the journal of the process, or to one of their own.

A process that reports to its run by itself (the engine, `tputui.start`) joins with its own sink. Any other process that
`tputui run -- COMMAND` started gets a journal `observer-RANK`, which is created when the first event is written.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from tputui.telemetry.events import CodeFrame, CompileObserved, Event, Observation, ObservationFailed, Runtime
from tputui.telemetry.rank_environment import host_index, rank_info
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

ROLE = "observer"
RANKS = 10_000
"""The second process of a rank writes the journal with this number plus its rank, and so on."""
PROCESSES_MAX = 16
"""Processes of a rank that are observed, one after another or at once."""
DISABLED_VARIABLES = ("TPUTUI_DISABLED", "TPUTUI_OBSERVE_OFF")
"""Environment variables that disable the observers, unless they are empty or `0`."""

OBSERVE_VARIABLE = "TPUTUI_OBSERVE"
"""With the value `all`, hooks that find lines of code are armed in all steps after warm-up: in a rehearsal."""


REASON_CHARS_MAX = 300
"""Characters of the reason why an observer could not attach."""


class Sink(Protocol):
    """Takes the events of observers. Thread-safe."""

    def emit(self, event: Event) -> None:
        """Queues an event to be written; never blocks or raises."""

    @property
    def step(self) -> int | None:
        """Newest step that the process reported; None if it reports no steps."""


class ObserverJournal:
    """The journal of a process that does not report by itself."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._pid = os.getpid()
        # A signal handler may emit while the thread that it interrupts holds the lock.
        self._lock = threading.RLock()
        self._reporter: Reporter | None = None
        self._is_closed = False
        at_exit(self.close)

    @property
    def step(self) -> int | None:
        """Not known: the process does not report its steps."""
        return None

    def emit(self, event: Event) -> None:
        """Queues an event; creates the journal before the first one."""
        with self._lock:
            if self._reporter is None and not self._is_closed:
                self._open()
            if self._reporter is not None:
                self._reporter.emit(event)

    def close(self) -> None:
        """Writes what is queued."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._is_closed = True
            reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.close()

    def _open(self) -> None:
        # The environment may name the rank only after the frameworks were imported.
        rank = rank_info(os.environ).rank or 0
        for number in range(rank, rank + PROCESSES_MAX * RANKS, RANKS):
            try:
                self._reporter = Reporter(self._run_dir, ROLE, number, host_index=host_index(os.environ))
                return
            except FileExistsError:
                # Of a process before a restart, or of another program that the command started.
                continue
            except (OSError, RuntimeError):  # no thread can be started any more while the interpreter ends
                break
        self._is_closed = True


def at_exit(act: Callable[[], None]) -> None:
    """Calls `act` when the process exits, before the functions that were registered earlier."""
    atexit.register(act)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        # Processes of multiprocessing leave by os._exit, which skips atexit.
        multiprocessing.Finalize(None, act, exitpriority=0)


class _ProcessSink:
    """The sink of this process; observers hold it while the sink behind it may change."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._sink: Sink | None = None
        self._knows_step = True
        self._journal: ObserverJournal | None = None
        self._flushes: list[Callable[[], None]] = []

    @property
    def step(self) -> int | None:
        sink = self._sink
        return sink.step if sink is not None and self._knows_step else None

    def emit(self, event: Event) -> None:
        # A forked child, such as a worker of a data loader, has no thread that writes.
        if self._pid != os.getpid():
            return
        sink = self._sink if self._sink is not None else self._journal
        if sink is not None:
            with contextlib.suppress(Exception):
                sink.emit(event)

    def emit_alone(self, event: Event) -> None:
        """Queues an event, unless the process reports by itself and says it, too."""
        if self._sink is None:
            self.emit(event)

    def join(self, sink: Sink, *, knows_step: bool = True) -> None:
        """Sends later events to the sink of a process that reports by itself; `knows_step`: each step as it ends."""
        if self._pid != os.getpid():
            self._pid, self._journal = os.getpid(), None
        self._sink, self._knows_step = sink, knows_step

    def leave(self, sink: Sink) -> None:
        """Stops sending events to a sink that ends."""
        if self._sink is sink:
            self._flush()
            self._sink = None

    def before_close(self, flush: Callable[[], None]) -> None:
        """Calls `flush`, which emits what waits, before the sink is closed."""
        self._flushes.append(flush)
        if len(self._flushes) == 1:
            at_exit(self._flush)

    def _flush(self) -> None:
        if self._pid == os.getpid():
            for flush in self._flushes:
                with contextlib.suppress(Exception):
                    flush()

    def open_journal(self) -> bool:
        """Sends later events to a journal in the run that launched this process; False if none did."""
        run_dir = os.environ.get(RUN_DIR_VARIABLE)
        if not run_dir or is_disabled():
            return False
        if self._journal is None:
            self._journal = ObserverJournal(Path(run_dir))
        return True


process_sink = _ProcessSink()
"""The sink of this process."""


@contextlib.contextmanager
def attaching(runtime: Runtime, package: str, *missing: Observation) -> Iterator[None]:
    """Attaches an observer to an imported package. If that raises, reports what is `missing`, and raises nothing."""
    try:
        yield
    except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
        could_not_attach(runtime, package, *missing, reason=f"{type(error).__name__}: {error}")


def could_not_attach(runtime: Runtime, package: str, *missing: Observation, reason: str) -> None:
    """Reports that an observer does not know the version of its package, so that some things are not recorded."""
    process_sink.emit(
        ObservationFailed(
            t=time.time(),
            runtime=runtime,
            package=package,
            version=str(getattr(sys.modules.get(package), "__version__", "")),
            missing=list(missing),
            reason=reason.partition("\n")[0][:REASON_CHARS_MAX],
        )
    )


def observes_all() -> bool:
    """Whether hooks are armed in all steps, not only when counters show trouble."""
    return os.environ.get(OBSERVE_VARIABLE, "") == "all"


def is_disabled() -> bool:
    """Whether the user disabled the observers."""
    return any(os.environ.get(name, "") not in ("", "0") for name in DISABLED_VARIABLES)


class ResettableTotal:
    """A running total of a counter that any code may reset: a decrease is a reset, not a negative count."""

    def __init__(self, newest: float = 0.0) -> None:
        """`newest` is the value of the counter from which the total counts."""
        self.value = 0.0
        self._newest = newest

    def read(self, now: float) -> float:
        """Takes the current value of the counter; returns the increase since the last call."""
        added = now - self._newest if now >= self._newest else now
        self._newest = now
        self.value += added
        return added


INTERVAL_S = 1.0
FIRST_EMITTED = 8
"""Events of a kind that are emitted at once."""
KINDS_MAX = 256
"""Later kinds are not combined."""
_Kind = tuple[str, str, bool, CodeFrame | None]


class CompileReports:
    """Emits `CompileObserved` events. Not thread-safe."""

    def __init__(self, emit: Callable[[CompileObserved], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._last: dict[_Kind, float] = {}
        self._counts: Counter[_Kind] = Counter()
        self._waiting: dict[_Kind, CompileObserved] = {}

    def add(self, event: CompileObserved) -> None:
        """Emits the event, or adds it to the next one of its kind. Those that name inputs are never combined."""
        kind = (event.program, event.cause, event.warm_up, event.user_frame)
        now = self._clock()
        last = self._last.get(kind)
        self._counts[kind] += 1
        if event.changed_inputs or self._counts[kind] <= FIRST_EMITTED or last is None or now - last >= INTERVAL_S:
            if last is not None or len(self._last) < KINDS_MAX:
                self._last[kind] = now
            waiting = self._waiting.pop(kind, None)
            if waiting is not None and event.changed_inputs:
                self._emit(waiting)
                waiting = None
            self._emit(_combined(waiting, event))
        else:
            self._waiting[kind] = _combined(self._waiting.get(kind), event)

    def flush(self) -> None:
        """Emits what waits."""
        waiting, self._waiting = self._waiting, {}
        for event in waiting.values():
            self._emit(event)


def _combined(earlier: CompileObserved | None, event: CompileObserved) -> CompileObserved:
    if earlier is None:
        return event
    parts = [observed.seconds for observed in (earlier, event) if observed.seconds is not None]
    return msgspec.structs.replace(event, count=earlier.count + event.count, seconds=sum(parts) if parts else None)

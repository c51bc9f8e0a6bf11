"""The threads of a process that train, one per core under `torch_xla.launch`, and which of them a compilation is of."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

from tputui.observers.xla_graph import Reason
from tputui.observers.xla_programs import Place
from tputui.observers.xla_runtime import XlaRuntime
from tputui.observers.xla_window import Compilation

if TYPE_CHECKING:
    from tputui.observers.xla_window import XlaWindow

LINES_MAX = 1_000


class TrainingThread:
    """What the observer stores for each thread that trains. `steps` are its own: every thread makes all steps."""

    def __init__(self) -> None:
        self.has_run = False
        """Whether it ran a program."""
        self.rank: int | None = None
        self.steps = 0
        self.unchecked_steps = 0
        """Those since the counters were checked for trouble."""
        self.optimizer_steps = 0
        self.ended = 0.0
        self.step_s: deque[float] = deque(maxlen=16)
        """Wall time of the newest steps outside of windows."""
        self.window: XlaWindow | None = None
        self.pending: Reason | None = None
        """Why it will open a window at the end of its step."""
        self.syncing: Place | None = None
        """The sync that runs."""
        self.since = time.time()
        """Unix time at which its newest sync began or ended."""
        self.graphs = 0
        """Graphs of the process when its newest sync ended; with other threads, when its sync began."""
        self.is_overlapped = False
        """Whether the sync of another thread ran at the same time."""

    def may_have_made(self, compilation: Compilation) -> bool:
        """Whether the compilation happened within its newest sync, or since then."""
        return compilation.is_within(self.since, time.time())


class TrainingThreads:
    """The threads of a process. All methods but `own` need the observer's lock."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._local = threading.local()
        self._graphs = runtime.graphs()
        self._all: weakref.WeakSet[TrainingThread] = weakref.WeakSet()
        self._ran: set[Hashable] = set()
        self._empty: set[Hashable] = set()
        """Lines whose sync certainly ran a program once, and those whose sync certainly had nothing to run."""

    @property
    def own(self) -> TrainingThread:
        """The calling thread."""
        thread: TrainingThread | None = getattr(self._local, "thread", None)
        if thread is None:
            thread = self._local.thread = TrainingThread()
            thread.graphs = self._graphs
            self._all.add(thread)
        return thread

    def training(self) -> list[TrainingThread]:
        """The threads that have run a program."""
        return [thread for thread in (self.own, *self._others()) if thread.has_run]

    def is_alone(self) -> bool:
        """Whether no other thread trains or syncs: the counters of the process are then those of the calling thread."""
        return not any(thread.has_run or thread.syncing is not None for thread in self._others())

    def begin(self, place: Place) -> None:
        """The calling thread begins a sync."""
        own, others = self.own, self._syncing_others()
        if not self.is_alone():
            own.graphs = self._runtime.graphs()
        own.since, own.syncing = time.time(), place
        own.is_overlapped = bool(others)
        for other in others:
            other.is_overlapped = True

    def has_run(self, place: Place, *, has_compiled: bool) -> bool:
        """Whether the sync of the calling thread, which returned, ran a program. Called once per sync.

        If others ran at the same time, what the same line did before decides.
        """
        own, lines, before = self.own, place.lines, self.own.graphs
        own.graphs = self._runtime.graphs()
        if own.graphs == before:
            _add(self._empty, lines)
            return False
        if has_compiled or not own.is_overlapped:
            _add(self._ran, lines)
        elif lines in self._empty and lines not in self._ran:
            return False
        if not own.has_run:
            own.has_run, own.rank = True, self._runtime.rank()
        return True

    def end(self) -> None:
        """The sync of the calling thread is over."""
        own = self.own
        own.since, own.syncing = time.time(), None

    def is_read_of_own(self, compilation: Compilation) -> bool:
        """Whether a compilation happened in the calling thread, which is in no sync: in no sync of another one."""
        return self.own.may_have_made(compilation) and not any(
            other.may_have_made(compilation) for other in self._syncing_others()
        )

    def is_in_warm_up(self, compilation: Compilation) -> bool:
        """Whether it may be a compilation of another thread, which is slower and still warms up."""
        return any(
            other.syncing is not None and other.syncing.warm_up and other.may_have_made(compilation)
            for other in self._syncing_others()
        )

    def _syncing_others(self) -> list[TrainingThread]:
        return [thread for thread in self._others() if thread.syncing is not None]

    def _others(self) -> list[TrainingThread]:
        own = self.own
        # Six times in each step, and most programs have one thread: iterating over a weak set takes 5 us.
        return [thread for thread in self._all if thread is not own] if len(self._all) > 1 else []


def _add(lines: set[Hashable], line: Hashable) -> None:
    if len(lines) < LINES_MAX:
        lines.add(line)

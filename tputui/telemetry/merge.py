"""Reads all journals of a run together.

`Merge` finds the journals of a directory as they appear and returns their events up to a given time, in order of time:
without a time it follows a running run, with one it replays a recorded run.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from tputui.telemetry import rundir
from tputui.telemetry.codec import NumberedEvent
from tputui.telemetry.compressed import CompressedTail
from tputui.telemetry.events import T_MAX, Event, JournalOpened, run_time
from tputui.telemetry.host_clocks import HostClocks, WriterClock
from tputui.telemetry.journal import READ_BYTES, START, Bookmark, Damage, JournalPosition, Tail

_CHUNK_LEAST = 1 << 13
"""Least bytes that are read of a journal at once: some reports of a host."""
DISCOVERY_S, DISCOVERY_MOST_S = 0.5, 8.0
"""Seconds after which an unchanged directory is listed again; twice as many each time, up to the second value."""


class JournalEvent(NamedTuple):
    """An event with its number and the name of the process that wrote it."""

    writer: str
    seq: int
    event: Event


class Reached(NamedTuple):
    """What was read of a journal before a position in it."""

    newest_t: float | None = None
    """Newest run time."""
    set_back_s: float = 0.0
    """Seconds by which the clock was set back."""
    last_seq: int = -1
    """Number of the last event."""
    host_index: int | None = None
    """Index of the host of the writer; None if its head was not read."""


class _Timed(NamedTuple):
    """An event with the newest run time up to it, so that the times of a journal ascend."""

    t: float
    event: JournalEvent


_TIME = itemgetter(0)


class JournalTail(Protocol):
    """A journal, plain or sealed."""

    name: str

    def read(self, max_bytes: int = READ_BYTES) -> list[NumberedEvent]: ...
    def regions(self, *, final: bool) -> list[Damage]: ...
    def close(self) -> None: ...
    @property
    def position(self) -> JournalPosition: ...
    @property
    def has_more(self) -> bool: ...
    @property
    def is_repaired(self) -> bool: ...
    @property
    def offset(self) -> int: ...
    @property
    def bookmark(self) -> Bookmark: ...
    def go_to(self, bookmark: Bookmark) -> None: ...


class _Cursor:
    """A journal with the events that were read but not returned yet."""

    def __init__(self, writer: str, tail: JournalTail, clocks: HostClocks) -> None:
        self.writer = writer
        self.tail = tail
        self.waiting: deque[_Timed] = deque()
        self.reached = Reached()
        self.is_restarted = False
        """Whether it is read again from its start, since the clock of its host was measured, or damage was repaired."""
        self._clocks = clocks
        self._clock = WriterClock(clocks)

    def go_to(self, bookmark: Bookmark, reached: Reached) -> None:
        """Continues at a bookmark."""
        self.tail.go_to(bookmark)
        self.waiting.clear()
        self.reached = reached
        self._clock = WriterClock(self._clocks, reached.host_index)

    def is_behind(self, until: float) -> bool:
        """Whether `take` has something to do. One system call if no event is waiting, as in most of many journals."""
        if self.waiting:
            return not self.waiting[0].t > until
        return self.tail.has_more

    def take(self, until: float, max_bytes: int) -> list[_Timed]:
        """Returns the events up to `until`, reading at most `max_bytes` more."""
        waiting = self.waiting
        if not waiting:
            waiting.extend(self._read(max_bytes))
        if until == math.inf:
            taken = list(waiting)
            waiting.clear()
            return taken
        taken = []
        while waiting and not waiting[0].t > until:
            taken.append(waiting.popleft())
        return taken

    def _read(self, max_bytes: int) -> Iterator[_Timed]:
        """Reads a chunk; `reached` is updated at its end."""
        corrected = None if self.tail.is_repaired else self._clock.corrected(self.tail.read(max_bytes))
        if corrected is None:
            self.is_restarted = True
            self.go_to(START, Reached())
            corrected = self._clock.corrected(self.tail.read(max_bytes)) or []
        newest_t, set_back_s, last_seq, _ = self.reached
        # A sealed journal is read on from the start of a frame, of which some events may have been read before.
        fresh = [numbered for numbered in corrected if numbered.seq > last_seq]
        for numbered in fresh:
            last_seq, event = numbered.seq, numbered.event
            t = event.t
            if set_back_s or newest_t is None or not newest_t <= t <= T_MAX:
                t, set_back_s = run_time(t, newest_t, set_back_s)
            if newest_t is None or t > newest_t:
                newest_t = t if math.isfinite(t) else newest_t
            yield _Timed(-math.inf if newest_t is None else newest_t, JournalEvent(self.writer, last_seq, event))
        self.reached = Reached(newest_t, set_back_s, last_seq, self._clock.host_index)


class Merge:
    """Reads the events of all journals of a run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._clocks = HostClocks(run_dir)
        self._cursors: dict[str, _Cursor] = {}
        self._unopened: dict[str, Damage] = {}
        self._restarted: set[str] = set()
        self._look_at = -math.inf
        """Monotonic time of the next listing."""
        self._pause_s = DISCOVERY_S
        self._changed = 0

    def poll(self, until: float = math.inf, budget_s: float = 0.05) -> tuple[list[JournalEvent], bool]:
        """Events up to the time `until`, and whether there is certainly nothing more for now.

        Stops after about `budget_s`, so that a long run opens piece by piece. Within a call the events are in order
        of time.
        """
        deadline = time.monotonic() + budget_s
        self._discover()
        events: list[JournalEvent] = []
        while True:
            behind = [cursor for cursor in self._cursors.values() if cursor.is_behind(until)]
            # The deadline is checked between rounds, so a round over hundreds of journals reads less of each.
            chunk = max(READ_BYTES // max(len(behind), 1), _CHUNK_LEAST)
            rounds = [cursor.take(until, chunk) for cursor in behind]
            again = {cursor.writer for cursor in behind if cursor.is_restarted}
            if again - self._restarted:
                events = [event for event in events if event.writer not in again]
                self._restarted |= again
            # Stable: events of one journal stay in their order.
            events += [event for _, event in sorted(chain.from_iterable(rounds), key=_TIME)]
            if not behind or time.monotonic() >= deadline:
                return events, not behind

    def take_restarted(self) -> set[str]:
        """The writers whose events of the last `poll` begin again with the first one; those before do not count.

        Their clocks were measured since, so that their times have changed.
        """
        restarted, self._restarted = self._restarted, set()
        for writer in restarted:
            self._cursors[writer].is_restarted = False
        return restarted

    def bookmark(self, writer: str, least_offset: int = 0) -> Bookmark | None:
        """A bookmark after the events of a writer returned so far.

        None if some that were read are not returned yet, or if it is before `least_offset`.
        """
        cursor = self._cursors[writer]
        return None if cursor.waiting or cursor.tail.offset < least_offset else cursor.tail.bookmark

    def go_to(self, bookmarks: Mapping[str, Bookmark], reached: Mapping[str, Reached]) -> set[str]:
        """Continues each writer's journal at a bookmark, whatever was returned before.

        `reached` describes what was read before each bookmark that is not the start. Returns the writers that were
        moved: a bookmark of another file is ignored, since the journal may have been sealed. Raises `OSError` if the
        directory cannot be read.
        """
        self._discover()
        moved: set[str] = set()
        for writer, cursor in self._cursors.items():
            bookmark = bookmarks.get(writer)
            if bookmark is not None and bookmark.journal in ("", cursor.tail.name):
                cursor.go_to(bookmark, reached.get(writer, Reached()))
                moved.add(writer)
        return moved

    def damage(self, *, final: bool) -> list[Damage]:
        """Damaged regions found so far. `final`: no writer is alive, so incomplete lines are damage as well."""
        regions = [region for cursor in self._cursors.values() for region in cursor.tail.regions(final=final)]
        return regions + list(self._unopened.values())

    def close(self) -> None:
        """Closes every journal."""
        for cursor in self._cursors.values():
            cursor.tail.close()
        self._cursors.clear()
        self._look_at = -math.inf

    def _discover(self) -> None:
        now = time.monotonic()
        # The new journal of a short-lived process must be found before its run counts as read. Modification times of
        # directories are coarse, so an unchanged directory is listed again some times, and then now and then.
        changed = self._run_dir.stat().st_mtime_ns
        if changed != self._changed:
            self._changed, self._pause_s = changed, DISCOVERY_S
        elif now < self._look_at:
            return
        else:
            self._pause_s = min(2 * self._pause_s, DISCOVERY_MOST_S)
        self._look_at = now + self._pause_s
        for writer, path in rundir.journal_paths(self._run_dir):
            if writer not in self._cursors:
                self._open(writer, path)

    def _open(self, writer: str, path: Path) -> None:
        """Opens a journal. One that cannot be opened is reported as damage and does not affect others."""
        try:
            tail = open_tail(path)
        except FileNotFoundError:
            if path.is_symlink():
                self._unopened[writer] = Damage(path.name, 0, 0, "it cannot be opened: the link leads nowhere", None)
                return
            if path.name.endswith(rundir.SEALED_SUFFIX):
                return  # the run's directory is being removed
            # It was sealed in between: the sealed journal exists before the plain one is removed.
            self._open(writer, path.with_name(f"{writer}{rundir.SEALED_SUFFIX}"))
        except OSError as error:
            self._unopened[writer] = Damage(path.name, 0, 0, f"it cannot be opened: {error.strerror}", None)
        else:
            self._cursors[writer] = _Cursor(writer, tail, self._clocks)
            self._unopened.pop(writer, None)


def open_tail(path: Path, keep: Callable[[bytes], object] | None = None) -> JournalTail:
    """Opens a journal, plain or sealed. Calls `keep` with the bytes of everything valid. Raises `OSError`."""
    return CompressedTail(path, keep) if path.name.endswith(rundir.SEALED_SUFFIX) else Tail(path, keep)


def head_of(path: Path) -> JournalOpened | None:
    """The head of a journal; None if it cannot be read. Raises `OSError`."""
    with contextlib.closing(open_tail(path)) as tail:
        first = next((numbered.event for numbered in events_of(tail)), None)
    return first if isinstance(first, JournalOpened) else None


def events_of(tail: JournalTail) -> Iterator[NumberedEvent]:
    """The valid events of a journal up to its size at the start of the call. Raises `OSError`."""
    offset, size = tail.position
    while offset < size:
        yield from tail.read()
        offset = tail.position.offset

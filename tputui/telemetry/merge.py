"""Reads all journals of a run together, with the times of its hosts corrected to the clock of the first one.

`Merge` finds the journals of a directory as they appear and returns their events up to a given time, in order of time:
without a time it follows a running run, with one it replays a recorded run.

The supervisor of a host records now and then how far its clock is ahead (`ClockMeasured`). A measurement holds for the
events from `DELAY_S` after it, and the first one also for all before. The delay makes the result the same for every
reader: by then the measurement is in the file, whatever a reader reads first. Without a measurement times stay as they
are. A corrected time never goes back at a measurement: if the clock was set forward since the one before, times wait
until they are right again. Journals are untrusted input, so the measurements that are stored are bounded.
"""

from __future__ import annotations

import contextlib
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tputui.telemetry import logged_values, rundir
from tputui.telemetry.codec import Damage, NumberedEvent
from tputui.telemetry.compressed import CompressedTail
from tputui.telemetry.events import T_MAX, ClockMeasured, Event, JournalOpened, ValuesLogged, is_time, run_time
from tputui.telemetry.journal import READ_BYTES, START, SUFFIX, Bookmark, JournalPosition, LineSearch, Tail
from tputui.telemetry.rundir import SEALED_SUFFIX

DELAY_S = 10.0
MEASUREMENTS_MAX = 4_096
"""Measurements of a host that are stored; one is made every few minutes."""


class HostClock:
    def __init__(self, run_dir: Path, host_index: int) -> None:
        self._search = LineSearch(run_dir / f"supervisor-{host_index}{SUFFIX}", ClockMeasured)
        self._sealed = run_dir / f"supervisor-{host_index}{SEALED_SUFFIX}"
        self._is_read = False
        """Whether the sealed journal was read."""
        self._from_t: list[float] = []
        """Unix times on this clock from which the measurements hold, ascending."""
        self._ahead_s: list[float] = []
        self._least_t: list[float] = []
        """Corrected times that were reached before the measurements held."""

    @property
    def is_known(self) -> bool:
        return bool(self._ahead_s)

    def corrected(self, t: float) -> float:
        """A unix time of this clock as the clock of the first host has it."""
        if not self._ahead_s:
            return t
        index = max(0, bisect_right(self._from_t, t) - 1)
        return max(t - self._ahead_s[index], self._least_t[index])

    def refresh(self, until: float = math.inf) -> None:
        """Reads the measurements that were added since, if some may hold up to the time `until` on this clock; none if
        the journal cannot be read."""
        newest_t = self._search.newest_t
        if self._ahead_s and newest_t is not None and until < newest_t + DELAY_S:
            return
        try:
            events = self._search.fresh()
        except OSError:
            self._read_sealed()
            return
        for event in events:
            self._add(event)

    def _read_sealed(self) -> None:
        if self._is_read or self._search.is_begun:
            return
        self._is_read = True
        try:
            tail = CompressedTail(self._sealed)
        except OSError:
            return
        try:
            while events := tail.read():
                for numbered in events:
                    self._add(numbered.event)
        finally:
            tail.close()

    def _add(self, event: Event) -> None:
        if not isinstance(event, ClockMeasured) or not is_time(event.t) or not is_time(event.t - event.offset_s):
            return
        from_t = event.t + DELAY_S
        if len(self._ahead_s) == MEASUREMENTS_MAX or (self._from_t and from_t <= self._from_t[-1]):
            return
        self._least_t.append(self.corrected(from_t) if self._ahead_s else -math.inf)
        self._from_t.append(from_t)
        self._ahead_s.append(event.offset_s)


class HostClocks:
    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._clocks: dict[int, HostClock] = {}

    def of_host(self, host_index: int) -> HostClock | None:
        """The clock of a host; None for the first one, to which the others are corrected."""
        if host_index <= 0:
            return None
        return self._clocks.setdefault(host_index, HostClock(self._run_dir, host_index))


class WriterClock:
    """Corrects the times of the events of one journal, as they are read."""

    def __init__(self, clocks: HostClocks, host_index: int | None = None) -> None:
        """`host_index`: index of the host of the writer, if it is known already; else its head names it."""
        self._clocks = clocks
        self.host_index = host_index
        self._clock = clocks.of_host(host_index) if host_index is not None else None
        self._is_begun = False
        """Whether events were returned that no measurement had corrected."""

    @property
    def is_settled(self) -> bool:
        """Whether the times that were returned stay as they are: of the first host, or corrected."""
        return self.host_index is not None and (self._clock is None or self._clock.is_known)

    def corrected(self, events: list[NumberedEvent]) -> list[NumberedEvent] | None:
        """The next events of the journal with corrected times.

        None if the clock was measured since the first of them were returned: read the journal again from its start,
        with a new `WriterClock`.
        """
        if self.host_index is None:
            self._look_for_head(events)
        clock = self._clock
        if clock is None or not events:
            return events
        clock.refresh(max(events[0].event.t, events[-1].event.t))
        if not clock.is_known:
            self._is_begun = True
            return events
        if self._is_begun:
            return None
        return [
            NumberedEvent(seq, _with_times(event, clock.corrected), journal_id) for seq, event, journal_id in events
        ]

    def _look_for_head(self, events: list[NumberedEvent]) -> None:
        head = next((numbered.event for numbered in events if isinstance(numbered.event, JournalOpened)), None)
        if head is not None:
            self.host_index = head.host_index
            self._clock = self._clocks.of_host(head.host_index)


def _with_times(event: Event, correct: Callable[[float], float]) -> Event:
    """The event with corrected times: its own, and those of the values that it contains."""
    if isinstance(event, ValuesLogged):
        event = logged_values.with_times(event, correct)
    return msgspec.structs.replace(event, t=correct(event.t))


def corrected_range(clocks: HostClocks, host_index: int, start: float, end: float) -> tuple[float, float]:
    """First and last unix time of a journal, corrected."""
    clock = clocks.of_host(host_index)
    if clock is None:
        return start, end
    clock.refresh()
    start, end = clock.corrected(start), clock.corrected(end)
    return start, max(start, end) if math.isfinite(end) else start


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
    host_index: int | None = None
    """Index of the host of the writer; None if its head was not read."""


_Timed = tuple[float, JournalEvent]
"""An event with the newest run time up to it, so that the times of a journal ascend."""


_TIME = itemgetter(0)


class JournalTail(Protocol):
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
        self.tail.go_to(bookmark)
        self.waiting.clear()
        self.reached = reached
        self._clock = WriterClock(self._clocks, reached.host_index)

    def is_behind(self, until: float) -> bool:
        """Whether `take` has something to do. One system call if no event is waiting, as in most of many journals."""
        if self.waiting:
            return not self.waiting[0][0] > until
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
        while waiting and not waiting[0][0] > until:
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
            yield -math.inf if newest_t is None else newest_t, JournalEvent(self.writer, last_seq, event)
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


def writers_of(run_dir: Path) -> dict[str, rundir.ProcessId | None]:
    """The writer of each journal by name; None if its first event cannot be read."""
    writers: dict[str, rundir.ProcessId | None] = {}
    for name, path in rundir.journal_paths(run_dir):
        try:
            head = head_of(path)
        except FileNotFoundError:
            head = None  # a link that leads nowhere, or a journal that was compressed since
        writers[name] = rundir.process_of(head) if head else None
    return writers


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

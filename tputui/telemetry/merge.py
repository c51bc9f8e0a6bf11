"""Reads all journals of a run together.

`Merge` finds the journals of a directory as they appear and returns their events up to a given time, in order of time:
without a time it follows a running run, with one it replays a recorded run.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tputui.telemetry import rundir
from tputui.telemetry.clock import T_MAX, run_time
from tputui.telemetry.codec import Record
from tputui.telemetry.compressed import CompressedTail
from tputui.telemetry.events import Event, JournalOpened
from tputui.telemetry.journal import READ_BYTES, Bookmark, Damage, JournalPosition, Tail

DISCOVERY_INTERVAL_S = 0.5


class JournalEvent(NamedTuple):
    """A record with the name of the process that wrote it."""

    writer: str
    seq: int
    event: Event


class Reached(NamedTuple):
    """What was read of a journal before a place in it."""

    newest_t: float | None = None
    """Newest time in the run."""
    set_back_s: float = 0.0
    """By how much the clock was set back."""
    last_seq: int = -1
    """Number of the last record."""


class _Timed(NamedTuple):
    """A fact with its time in the run."""

    t: float
    fact: JournalEvent


class RecordTail(Protocol):
    """A journal, plain or sealed."""

    name: str

    def read(self, max_bytes: int = READ_BYTES) -> list[Record]: ...
    def regions(self, *, final: bool) -> list[Damage]: ...
    def close(self) -> None: ...
    @property
    def position(self) -> JournalPosition: ...
    @property
    def bookmark(self) -> Bookmark: ...
    def go_to(self, place: Bookmark) -> None: ...


class _Cursor:
    """A tail with the records that were read and not handed out."""

    def __init__(self, writer: str, tail: RecordTail) -> None:
        self.writer = writer
        self.tail = tail
        self.waiting: deque[_Timed] = deque()
        self.reached = Reached()

    @property
    def caught_up(self) -> bool:
        """Whether what comes next is known, or there is nothing more."""
        offset, size = self.tail.position
        return bool(self.waiting) or offset >= size

    def take(self, until: float) -> Iterator[_Timed]:
        """Hands out the records up to `until`, reading at most one more chunk."""
        if not self.waiting:
            # In a sealed journal reading goes on where a frame begins, some of which may have been read before.
            last_seq = self.reached.last_seq
            self.waiting.extend(self._timed(record) for record in self.tail.read() if record.seq > last_seq)
        while self.waiting and not self.waiting[0].t > until:
            yield self.waiting.popleft()

    def _timed(self, record: Record) -> _Timed:
        newest_t, set_back_s, _ = self.reached
        t = record.event.t
        if set_back_s or newest_t is None or not newest_t <= t <= T_MAX:
            t, set_back_s = run_time(t, newest_t, set_back_s)
        if newest_t is None or t > newest_t:
            newest_t = t if math.isfinite(t) else newest_t
        self.reached = Reached(newest_t, set_back_s, record.seq)
        return _Timed(t, JournalEvent(self.writer, record.seq, record.event))


class Merge:
    """The facts of a run's journals."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._cursors: dict[str, _Cursor] = {}
        self._unopened: dict[str, Damage] = {}
        self._looked_at = -math.inf
        self._changed = 0

    def poll(self, until: float = math.inf, budget_s: float = 0.05) -> tuple[list[JournalEvent], bool]:
        """Facts up to the time `until`, and whether there is certainly nothing more for now.

        Stops after about `budget_s`, so that a long run opens piece by piece. Within a call the facts are in order
        of time.
        """
        deadline = time.monotonic() + budget_s
        self._discover()
        facts: list[JournalEvent] = []
        while True:
            rounds = [list(cursor.take(until)) for cursor in self._cursors.values()]
            facts.extend(timed.fact for timed in heapq.merge(*rounds, key=lambda timed: timed.t))
            quiet = not any(rounds) and all(cursor.caught_up for cursor in self._cursors.values())
            if quiet or time.monotonic() >= deadline:
                return facts, quiet

    def bookmarks(self) -> dict[str, Bookmark]:
        """By writer: the place in its journal up to which records were handed out; not of one that holds some back."""
        return {name: cursor.tail.bookmark for name, cursor in self._cursors.items() if not cursor.waiting}

    def go_to(self, places: Mapping[str, Bookmark], reached: Mapping[str, Reached]) -> set[str]:
        """Hands out each writer's records from a place on, whatever was handed out before.

        `reached` tells what was read before each place that is not the start.
        Returns the writers for which that was done: a place of another file than the one that is read, which may
        have been sealed since, is none. Raises `OSError` where the directory cannot be read.
        """
        self._discover()
        moved: set[str] = set()
        for writer, cursor in self._cursors.items():
            place = places.get(writer)
            if place is not None and place.journal in ("", cursor.tail.name):
                cursor.tail.go_to(place)
                cursor.waiting.clear()
                cursor.reached = reached.get(writer, Reached())
                moved.add(writer)
        return moved

    def damage(self, *, final: bool) -> list[Damage]:
        """Damaged regions met so far. `final` says that no writer lives, so that half lines are damage too."""
        regions = [region for cursor in self._cursors.values() for region in cursor.tail.regions(final=final)]
        return regions + list(self._unopened.values())

    def close(self) -> None:
        """Closes every journal."""
        for cursor in self._cursors.values():
            cursor.tail.close()
        self._cursors.clear()
        self._looked_at = -math.inf

    def _discover(self) -> None:
        now = time.monotonic()
        # A journal that a short-lived process has just made must be found before its run counts as read; times of
        # directories are coarse, so an unchanged one is looked through now and then as well.
        changed = self._run_dir.stat().st_mtime_ns
        if changed == self._changed and now - self._looked_at < DISCOVERY_INTERVAL_S:
            return
        self._looked_at, self._changed = now, changed
        for writer, path in rundir.journal_paths(self._run_dir):
            if writer not in self._cursors:
                self._open(writer, path)

    def _open(self, writer: str, path: Path) -> None:
        """Opens a journal that was found. One that cannot be opened is told, and costs no other."""
        try:
            tail = open_tail(path)
        except FileNotFoundError:
            if path.is_symlink():
                self._unopened[writer] = Damage(path.name, 0, 0, "it cannot be opened: the link leads nowhere", None)
                return
            if path.name.endswith(rundir.SEALED_SUFFIX):
                return  # the run's directory is being removed
            # Sealed between the look and the opening: the sealed one stands beside before the plain one goes.
            self._open(writer, path.with_name(f"{writer}{rundir.SEALED_SUFFIX}"))
        except OSError as error:
            self._unopened[writer] = Damage(path.name, 0, 0, f"it cannot be opened: {error.strerror}", None)
        else:
            self._cursors[writer] = _Cursor(writer, tail)
            self._unopened.pop(writer, None)


def open_tail(path: Path, keep: Callable[[bytes], object] | None = None) -> RecordTail:
    """Opens a journal, plain or sealed; `keep` is given what it is read from. Raises `OSError`."""
    return CompressedTail(path, keep) if path.name.endswith(rundir.SEALED_SUFFIX) else Tail(path, keep)


def head_of(path: Path) -> JournalOpened | None:
    """The head of a journal; None where it cannot be told. Raises `OSError`."""
    with contextlib.closing(open_tail(path)) as tail:
        first = next((record.event for record in records_of(tail)), None)
    return first if isinstance(first, JournalOpened) else None


def records_of(tail: RecordTail) -> Iterator[Record]:
    """The sound records of a journal, as far as it went when this began. Raises `OSError`."""
    offset, size = tail.position
    while offset < size:
        yield from tail.read()
        offset = tail.position.offset

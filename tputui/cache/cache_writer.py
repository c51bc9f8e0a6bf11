"""Keeps places on disk while a run goes on: reads its journals behind their writers, as a viewer does.

It may fall behind and never holds anybody up: it works for a moment and then rests for many times as long. What it
keeps is bounded in number and in bytes; of a longer run places stand wider apart, and the newest one is always there.
Where a journal is damaged it keeps no more of it: what a reader is told of damage is told by reading it. Whatever fails
here costs time when the run is opened and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tputui.cache import cache_file
from tputui.cache.cache_file import CacheRefused
from tputui.cache.state_codec import NotCacheable
from tputui.state.process_state import ProcessState
from tputui.telemetry import rundir
from tputui.telemetry.journal import SUFFIX, Bookmark, Tail

SPACING_BYTES = 2 << 20
"""Journal read between two places of a writer, at least: about 20 ms of work for a reader ..."""
SPACING_SHARE = 4
"""... and so many times what a place takes on disk."""
LEAST_BYTES = SPACING_BYTES // 2
"""At the end of a run a last place is kept if so much was read since the one before."""
OF_A_WRITER_MAX = 16
BYTES_MAX = 6 << 20
"""Of all places together."""
CPU_SHARE = 0.02
"""Of a core, at most."""
LOOK_S = 1.0
"""Between two looks at journals that have not grown much."""
FINISH_S = 5.0
"""Reading on at the end of a run, at most."""
_READ_BYTES = 256 << 10
"""Read at once: a few milliseconds of work. Journals that have grown by less are left until they have grown more."""
_AFTER_TROUBLE_S = 60.0


class Frame(NamedTuple):
    """Where a frame of a sealed journal begins; or its end, as if one began there."""

    offset: int
    first_seq: int


class _Kept(NamedTuple):
    """A place on disk."""

    last_seq: int
    offset: int
    size: int


class _Followed:
    """A journal with what it adds up to so far."""

    def __init__(self, path: Path, writer: str) -> None:
        self.tail = Tail(path)
        self.state = ProcessState(writer)
        self.kept: list[_Kept] = []

    @property
    def unread(self) -> int:
        """Bytes."""
        offset, size = self.tail.position
        return size - offset

    @property
    def is_damaged(self) -> bool:
        """Whether anything was met that its writer did not write."""
        mark = self.tail.bookmark
        return bool(mark.damage) or mark.bad_start is not None

    @property
    def since(self) -> int:
        """Bytes read since the last place."""
        return self.tail.bookmark.offset - (self.kept[-1].offset if self.kept else 0)


class CacheWriter:
    """Keeps places of the journals of one host. Not for use from two threads at once."""

    def __init__(
        self,
        run_dir: Path,
        owns: Callable[[str], bool] = lambda writer: True,
        *,
        spacing_bytes: int = SPACING_BYTES,
        spacing_share: int = SPACING_SHARE,
        cpu_share: float = CPU_SHARE,
    ) -> None:
        """`owns` tells by a writer's name whether its journal is read here."""
        self.trouble: str | None = None
        """Why the last place could not be kept."""
        self._run_dir = run_dir
        self._owns = owns
        self._spacing_bytes = spacing_bytes
        self._spacing_share = spacing_share
        self._read_bytes = min(_READ_BYTES, spacing_bytes)
        self._cpu_share = cpu_share
        self._followed: dict[str, _Followed] = {}
        self._left: set[str] = set()
        """Writers whose journals are not read any more."""
        self._due = time.monotonic()

    def look(self) -> None:
        """Reads on a little, where it has rested long enough. Never raises what a disk does."""
        if time.monotonic() < self._due:
            return
        began = time.thread_time()
        rest_s = LOOK_S
        try:
            self._discover()
            behind = max(self._followed.values(), key=lambda one: one.unread, default=None)
            if behind is not None and behind.unread >= self._read_bytes:
                self._read(behind)
                rest_s = 0.0
        except OSError as error:
            self.trouble, rest_s = f"{error.strerror or error}", _AFTER_TROUBLE_S
        self._due = time.monotonic() + max(rest_s, (time.thread_time() - began) / self._cpu_share)

    def finish(self, budget_s: float = FINISH_S) -> None:
        """Reads to the end for as long as it may, and keeps a last place of each journal. Nothing is read after it."""
        deadline = time.monotonic() + budget_s
        try:
            self._discover()
            for one in list(self._followed.values()):
                while not one.is_damaged and one.unread and time.monotonic() < deadline:
                    self._read(one)
                if not one.is_damaged and one.since >= min(LEAST_BYTES, self._spacing_bytes):
                    self._keep(one)
        except OSError as error:
            self.trouble = f"{error.strerror or error}"
        finally:
            for one in self._followed.values():
                one.tail.close()
            self._left.update(self._followed)

    def sealed(self, writer: str, journal: str, frames: Sequence[Frame]) -> None:
        """Has the places of a writer read on in its sealed journal, whose frames are given in order."""
        followed = self._followed.get(writer)
        for kept in followed.kept if followed else ():
            path = cache_file.path_of(self._run_dir, writer, kept.last_seq)
            # The last frame that begins with a record in the state, or with the one after: what stands in both is
            # passed over by its number.
            frame = next(frame for frame in reversed(frames) if frame.first_seq <= kept.last_seq + 1)
            try:
                if frame.offset:
                    cache_file.reseat(self._run_dir, path, Bookmark(journal, *frame))
                else:
                    path.unlink(missing_ok=True)
            except (CacheRefused, OSError) as error:
                self.trouble = str(error)

    def _discover(self) -> None:
        for writer, path in rundir.journal_paths(self._run_dir):
            known = writer in self._followed or writer in self._left
            if not known and path.name.endswith(SUFFIX) and self._owns(writer):
                self._followed[writer] = _Followed(path, writer)

    def _read(self, one: _Followed) -> None:
        for record in one.tail.read(self._read_bytes):
            one.state.apply(record.seq, record.event)
        if one.is_damaged:
            one.tail.close()
            del self._followed[one.state.name]
            self._left.add(one.state.name)
        elif one.since >= max(self._spacing_bytes, self._spacing_share * (one.kept[-1].size if one.kept else 0)):
            self._keep(one)

    def _keep(self, one: _Followed) -> None:
        mark = one.tail.bookmark
        if mark.next_seq != one.state.last_seq + 1 or one.state.newest_t is None:
            return
        try:
            size = cache_file.write(self._run_dir, mark, one.state)
        except NotCacheable as error:
            self.trouble = str(error)
            return
        self.trouble = None
        one.kept.append(_Kept(one.state.last_seq, mark.offset, size))
        while len(one.kept) > OF_A_WRITER_MAX or (self._num_bytes() > BYTES_MAX and len(one.kept) > 1):
            self._drop(one)

    def _num_bytes(self) -> int:
        return sum(kept.size for one in self._followed.values() for kept in one.kept)

    def _drop(self, one: _Followed) -> None:
        """Removes the place, not the newest one, whose neighbours are closest together without it."""
        offsets = [0, *(kept.offset for kept in one.kept)]
        number = min(range(len(one.kept) - 1), key=lambda place: offsets[place + 2] - offsets[place])
        dropped = one.kept.pop(number)
        cache_file.path_of(self._run_dir, one.state.name, dropped.last_seq).unlink(missing_ok=True)

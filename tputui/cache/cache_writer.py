"""Writes cache files while a run continues: follows the journals like a viewer.

It works for a moment and then rests many times as long, so it may fall behind but never blocks the run. Number and
bytes of the files are bounded: in a longer run they are further apart, and the newest one always exists. After damage
in a journal it writes no more files of it, so that readers see the damage themselves. A failure here only makes
opening the run slower.

The supervisor of a host writes those of its journals, and the process that mirrors a run those of the copies.
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
from tputui.telemetry.journal import SUFFIX, Bookmark
from tputui.telemetry.merge import HostClocks, WriterClock, open_tail

SPACING_BYTES = 2 << 20
"""Least bytes of journal between two cache files of a process: about 20 ms of work for a reader ..."""
SPACING_SHARE = 4
"""... and this many times the size of the file."""
LEAST_BYTES = SPACING_BYTES // 2
"""Bytes since the newest file after which the end of a run is cached too."""
OF_A_WRITER_MAX = 16
BYTES_MAX = 6 << 20
"""Of all files together."""
CPU_SHARE = 0.02
"""Largest share of a CPU core."""
LOOK_S = 1.0
"""Seconds between two polls of journals that have not grown much."""
COPIES_MAX = 32
"""Journals of a mirror that are followed: a state takes memory, and readers list at most 512 files."""
FINISH_S = 5.0
"""Most seconds of reading at the end of a run."""
_READ_BYTES = 256 << 10
"""Bytes per read: a few milliseconds of work. Journals that have grown by less wait until they have grown more."""
_AFTER_TROUBLE_S = 60.0


class SealedFrame(NamedTuple):
    """Start of a frame in a sealed journal, or the end of the journal."""

    offset: int
    first_seq: int


class _Kept(NamedTuple):
    """A cache file that was written."""

    last_seq: int
    offset: int
    size: int


class _Followed:
    """A journal and the state after the events read so far."""

    def __init__(self, path: Path, writer: str, clocks: HostClocks) -> None:
        self.path = path
        self.tail = open_tail(path)
        self.inode = path.stat().st_ino
        self.clock = WriterClock(clocks)
        self.state = ProcessState(writer)
        self.kept: list[_Kept] = []
        self.retry_from = 0
        """Offset before which no state is encoded again: one was too large, and encoding it takes long."""

    def go_to(self, bookmark: Bookmark, state: ProcessState, clocks: HostClocks) -> None:
        """Continues after a cached state."""
        self.tail.go_to(bookmark)
        self.state = state
        self.clock = WriterClock(clocks, state.opened.host_index if state.opened else None)

    @property
    def unread(self) -> int:
        """Bytes not read yet."""
        offset, size = self.tail.position
        return size - offset

    @property
    def is_damaged(self) -> bool:
        mark = self.tail.bookmark
        return bool(mark.damage) or mark.bad_start is not None

    @property
    def is_replaced(self) -> bool:
        """Whether there is another file at its path, or none."""
        try:
            return self.path.stat().st_ino != self.inode
        except FileNotFoundError:
            return True

    @property
    def since(self) -> int:
        """Bytes read since the newest cache file."""
        return self.tail.bookmark.offset - (self.kept[-1].offset if self.kept else 0)


class CacheWriter:
    """Writes the cache files of one host's journals, or those of a mirror. Not thread-safe."""

    def __init__(
        self,
        run_dir: Path,
        owns: Callable[[str], bool] = lambda writer: True,
        *,
        spacing_bytes: int = SPACING_BYTES,
        spacing_share: int = SPACING_SHARE,
        cpu_share: float = CPU_SHARE,
        of_copies: bool = False,
    ) -> None:
        """`owns`: whether the journal of a process, by its name, is read here.

        `of_copies`: the journals are those of a mirror. They may be sealed or replaced by others, and the files that an
        earlier process wrote are continued if they fit.
        """
        self.error: str | None = None
        """Why the newest cache file could not be written; None if it was."""
        self._run_dir = run_dir
        self._clocks = HostClocks(run_dir)
        self._owns = owns
        self._spacing_bytes = spacing_bytes
        self._spacing_share = spacing_share
        self._read_bytes = min(_READ_BYTES, spacing_bytes)
        self._cpu_share = cpu_share
        self._of_copies = of_copies
        self._followed: dict[str, _Followed] = {}
        self._left: set[str] = set()
        """Processes whose journals are not read any more."""
        self._due = time.monotonic()

    def poll(self) -> float:
        """Reads on for a moment, if it has rested long enough; returns the seconds to rest. Stores an `OSError` in
        `error`."""
        if (early_s := self._due - time.monotonic()) > 0:
            return early_s
        began = time.thread_time()
        rest_s = LOOK_S
        try:
            self._discover()
            behind = max(self._followed.values(), key=lambda followed: followed.unread, default=None)
            if behind is not None and behind.unread >= self._read_bytes:
                self._read(behind)
                rest_s = 0.0
        except OSError as error:
            self.error, rest_s = f"{error.strerror or error}", _AFTER_TROUBLE_S
        rest_s = max(rest_s, (time.thread_time() - began) * (1 / self._cpu_share - 1))
        self._due = time.monotonic() + rest_s
        return rest_s

    def finish(self, budget_s: float = FINISH_S) -> None:
        """Reads to the end for at most `budget_s` and writes a last file for each journal. Call nothing but
        `retarget_to_sealed` afterwards."""
        deadline = time.monotonic() + budget_s
        try:
            self._discover()
            for followed in list(self._followed.values()):
                writer = followed.state.name
                while not followed.is_damaged and followed.unread and time.monotonic() < deadline:
                    self._read(followed)
                    followed = self._followed.get(writer, followed)
                if not followed.is_damaged and followed.since >= min(LEAST_BYTES, self._spacing_bytes):
                    self._keep(followed)
        except OSError as error:
            self.error = f"{error.strerror or error}"
        finally:
            for followed in self._followed.values():
                followed.tail.close()
            self._left.update(self._followed)

    def retarget_to_sealed(self, writer: str, journal: str, frames: Sequence[SealedFrame]) -> None:
        """Points the cache files of a process to its sealed journal. `frames` are in order."""
        followed = self._followed.get(writer)
        for kept in followed.kept if followed else ():
            path = cache_file.path_of(self._run_dir, writer, kept.last_seq)
            # The last frame that begins with an event in the state, or with the one after; events in both are
            # skipped by their number.
            frame = next(frame for frame in reversed(frames) if frame.first_seq <= kept.last_seq + 1)
            try:
                if frame.offset:
                    cache_file.retarget(self._run_dir, path, Bookmark(journal, *frame))
                else:
                    path.unlink(missing_ok=True)
            except (CacheRefused, OSError) as error:
                self.error = str(error)

    def _discover(self) -> None:
        if self._of_copies:
            self._drop_replaced()
        for writer, path in rundir.journal_paths(self._run_dir):
            is_known = writer in self._followed or writer in self._left
            if not is_known and self._owns(writer) and self._is_wanted(path):
                self._followed[writer] = followed = _Followed(path, writer, self._clocks)
                if self._of_copies:
                    self._continue(followed)

    def _is_wanted(self, path: Path) -> bool:
        if not self._of_copies:
            return path.name.endswith(SUFFIX)
        return len(self._followed) < COPIES_MAX and path.stat().st_size >= self._spacing_bytes

    def _drop_replaced(self) -> None:
        for writer, followed in list(self._followed.items()):
            if followed.is_replaced:
                self._remove_files(followed)
                followed.tail.close()
                del self._followed[writer]

    def _continue(self, followed: _Followed) -> None:
        """Continues after the newest file that fits; removes those that do not."""
        for path in reversed(cache_file.listed(self._run_dir, followed.state.name)):
            try:
                head = cache_file.read_head(path)
                if head.journal != followed.tail.name:
                    raise CacheRefused("it belongs to another form of the journal")
                cache_file.check_fit(self._run_dir, head)
                if not followed.kept:
                    state, _ = cache_file.read_state(path, head)
                    followed.go_to(head.bookmark, state, self._clocks)
                followed.kept.insert(0, _Kept(head.last_seq, head.offset, path.stat().st_size))
            except CacheRefused:
                path.unlink(missing_ok=True)

    def _read(self, followed: _Followed) -> None:
        corrected = followed.clock.corrected(followed.tail.read(self._read_bytes))
        if corrected is None:
            self._begin_again(followed)
            return
        for numbered in corrected:
            followed.state.apply(numbered.seq, numbered.event)
        if followed.is_damaged:
            followed.tail.close()
            del self._followed[followed.state.name]
            self._left.add(followed.state.name)
        elif followed.since >= max(
            self._spacing_bytes, self._spacing_share * (followed.kept[-1].size if followed.kept else 0)
        ):
            self._keep(followed)

    def _begin_again(self, followed: _Followed) -> None:
        """Reads a journal from its start, since the times of its events have changed: its clock was measured."""
        writer = followed.state.name
        self._remove_files(followed)
        followed.tail.close()
        self._followed[writer] = _Followed(followed.path, writer, self._clocks)

    def _remove_files(self, followed: _Followed) -> None:
        for kept in followed.kept:
            cache_file.path_of(self._run_dir, followed.state.name, kept.last_seq).unlink(missing_ok=True)

    def _keep(self, followed: _Followed) -> None:
        mark = followed.tail.bookmark
        if self._of_copies and not followed.clock.is_settled:
            return  # A later process would not know that the times in the state are uncorrected.
        if (
            mark.next_seq != followed.state.last_seq + 1
            or followed.state.newest_t is None
            or mark.offset < followed.retry_from
        ):
            return
        try:
            size = cache_file.write(self._run_dir, mark, followed.state)
        except NotCacheable as error:
            self.error, followed.retry_from = str(error), 2 * mark.offset
            return
        self.error = None
        followed.kept.append(_Kept(followed.state.last_seq, mark.offset, size))
        while len(followed.kept) > OF_A_WRITER_MAX or (self._num_bytes() > BYTES_MAX and len(followed.kept) > 1):
            self._drop(followed)

    def _num_bytes(self) -> int:
        return sum(kept.size for followed in self._followed.values() for kept in followed.kept)

    def _drop(self, followed: _Followed) -> None:
        """Removes the file, other than the newest, whose neighbours are closest together."""
        offsets = [0, *(kept.offset for kept in followed.kept)]
        number = min(range(len(followed.kept) - 1), key=lambda index: offsets[index + 2] - offsets[index])
        dropped = followed.kept.pop(number)
        cache_file.path_of(self._run_dir, followed.state.name, dropped.last_seq).unlink(missing_ok=True)

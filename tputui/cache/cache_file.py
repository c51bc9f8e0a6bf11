"""One cached state as a file: the state of a process after part of its journal, and the offset at which to continue.

    RUN/places/PROCESS-NUMBER.place     NUMBER is the sequence number of the last event in the state

The first line is the head, as JSON; then follows the state as `tputui.cache.state_codec` encodes it. The journals are
authoritative: a file that is damaged, written by another version, or does not match its journal is refused with the
reason, which costs only time. Cache files are untrusted input: size and head are checked before the rest is read.

Opening a run trusts a cache file that matches its journal. `CacheVerifier`, for `tputui check`, also finds forged
states: it reduces every event once more and compares the states byte by byte.

Heads are read once, at the first lookup; a state only when it is used. A file that was refused is not tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from tputui import __version__
from tputui.cache import state_codec
from tputui.state.process_state import ProcessState
from tputui.telemetry import files
from tputui.telemetry.events import INT_MAX, Event
from tputui.telemetry.files import read_at, reading
from tputui.telemetry.journal import SUFFIX as JOURNAL_SUFFIX
from tputui.telemetry.journal import Bookmark
from tputui.telemetry.rundir import CACHE_DIR, SEALED_SUFFIX

FORMAT = 18
"""Version of the file format. Files of another version of tputui are refused as well."""
SUFFIX = ".place"
FILE_BYTES_MAX = 4 << 20
"""Largest file that is read or written."""
HEAD_BYTES_MAX = 1 << 10
LISTED_MAX = 512
"""Most files that are listed; a supervisor writes fewer."""
BEFORE_BYTES = 4_096
"""Bytes of the journal before the offset that the head has a checksum of."""

_NAME = re.compile(r"(?P<writer>[A-Za-z0-9][A-Za-z0-9._-]{0,127})-(?P<seq>[0-9]{16})\.place")
_LAST_NUMBER = re.compile(rb',"q":([0-9]{1,16}),"c":"[0-9a-f]{8}"}\n+\Z')
_Count = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Crc = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]


class CacheRefused(ValueError):
    """A cache file that cannot be used; the text is the reason."""


class Outdated(CacheRefused):
    """A sound cache file of another version of tputui, or of a journal that was sealed since."""


class _FormatVersion(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    version: str


_VersionT = TypeVar("_VersionT", bound=_FormatVersion)


class Head(_FormatVersion, frozen=True, kw_only=True):
    """The first line of a cache file."""

    writer: str
    journal: str
    """File name of the journal."""
    offset: Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
    """Offset in the journal at which to continue, in bytes."""
    next_seq: _Count
    """Number of the event at the offset. In a sealed journal a frame begins there, whose first events may be in the
    state."""
    last_seq: _Count
    """Number of the last event in the state."""
    newest_t: float
    """Newest unix time of the events in the state."""
    journal_id: str | None
    """Journal id of the events in the state; events with another id are not read after them."""
    before: _Crc
    """CRC-32 of the last `BEFORE_BYTES` bytes of the journal before the offset, or of all of them."""
    bytes: _Count
    """Size of the encoded state."""
    crc: _Crc
    """CRC-32 of the encoded state."""

    @property
    def bookmark(self) -> Bookmark:
        """The position at which to continue."""
        return Bookmark(self.journal, self.offset, self.next_seq, journal_id=self.journal_id)


def listed(run_dir: Path, writer: str | None = None) -> list[Path]:
    """The cache files of a run, or of one process, by name; none if the directory is missing or a symbolic link."""
    folder = run_dir / CACHE_DIR
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            return []
        with os.scandir(folder) as entries:
            for entry in entries:
                name = _NAME.fullmatch(entry.name)
                if name and writer in (None, name["writer"]) and entry.is_file(follow_symlinks=False):
                    paths.append(Path(entry.path))
                if len(paths) == LISTED_MAX:
                    break
    return sorted(paths)


def read_head(path: Path) -> Head:
    """Reads the head of a cache file. Raises `CacheRefused` and `OSError`."""
    with reading(path) as fd:
        line, newline, _ = os.pread(fd, HEAD_BYTES_MAX, 0).partition(b"\n")
        size = os.fstat(fd).st_size
    version = _decoded(line, _FormatVersion)
    if (version.format, version.version) != (FORMAT, __version__):
        raise Outdated(f"tputui {version.version[:40]} wrote it; this is {__version__}")
    head = _decoded(line, Head)
    name = _NAME.fullmatch(path.name)
    if name is None or (name["writer"], int(name["seq"])) != (head.writer, head.last_seq):
        raise CacheRefused("its name does not match its head")
    if head.journal not in (head.writer + JOURNAL_SUFFIX, head.writer + SEALED_SUFFIX):
        raise CacheRefused("its head names a journal of another process")
    if head.next_seq > head.last_seq + 1 or not newline:
        raise CacheRefused("its head contradicts itself")
    if size != len(line) + 1 + head.bytes or size > FILE_BYTES_MAX:
        raise CacheRefused("its size does not match its head, or is too large")
    return head


def read_state(path: Path, head: Head) -> tuple[ProcessState, bytes]:
    """Reads a state, and the bytes that encode it. Raises `CacheRefused` and `OSError`."""
    content = read_at(path, 0, FILE_BYTES_MAX).partition(b"\n")[2]
    if len(content) != head.bytes or zlib.crc32(content) != head.crc:
        raise CacheRefused("its checksum does not match")
    try:
        state = state_codec.decode(head.writer, content)
    except state_codec.NotCacheable as error:
        raise CacheRefused(str(error)) from None
    if (state.last_seq, state.newest_t) != (head.last_seq, head.newest_t):
        raise CacheRefused("its head and its state contradict each other")
    return state, content


def check_fit(run_dir: Path, head: Head) -> None:
    """Raises `CacheRefused` if the journal before the offset has changed since the file was written."""
    try:
        before = _before(run_dir / head.journal, head.offset)
    except FileNotFoundError:
        if (run_dir / (head.writer + SEALED_SUFFIX)).is_file():
            raise Outdated("its journal was sealed since") from None
        raise CacheRefused(f"{head.journal} is missing") from None
    except OSError as error:
        raise CacheRefused(f"{head.journal} cannot be read: {error.strerror}") from None
    if before is None:
        raise CacheRefused(f"{head.journal} is shorter than it was")
    number = _LAST_NUMBER.search(before[-64:])
    plain = head.journal.endswith(JOURNAL_SUFFIX)
    follows = not plain or (number is not None and int(number[1]) == head.last_seq == head.next_seq - 1)
    if zlib.crc32(before) != head.before or not follows:
        raise CacheRefused(f"{head.journal} has changed")


def write(run_dir: Path, bookmark: Bookmark, state: ProcessState) -> int:
    """Writes a cache file atomically; returns its size in bytes.

    `bookmark` is after the last event of `state`, and nothing before it is damaged. Raises `NotCacheable` if the state
    cannot be encoded, and `OSError`.
    """
    content = state_codec.encode(state)
    before = _before(run_dir / bookmark.journal, bookmark.offset)
    if before is None or state.newest_t is None:
        raise state_codec.NotCacheable("its journal is shorter than it was, or has no time")
    head = Head(
        format=FORMAT,
        version=__version__,
        writer=state.name,
        journal=bookmark.journal,
        offset=bookmark.offset,
        next_seq=bookmark.next_seq,
        last_seq=state.last_seq,
        newest_t=state.newest_t,
        journal_id=bookmark.journal_id,
        before=zlib.crc32(before),
        bytes=len(content),
        crc=zlib.crc32(content),
    )
    return _write(path_of(run_dir, state.name, state.last_seq), head, content)


def retarget(run_dir: Path, path: Path, bookmark: Bookmark) -> None:
    """Points a cache file to another form of the same journal. Raises `CacheRefused` and `OSError`."""
    head = read_head(path)
    _, content = read_state(path, head)
    before = _before(run_dir / bookmark.journal, bookmark.offset)
    if before is None:
        raise CacheRefused(f"{bookmark.journal} is shorter than that")
    moved = msgspec.structs.replace(
        head, journal=bookmark.journal, offset=bookmark.offset, next_seq=bookmark.next_seq, before=zlib.crc32(before)
    )
    _write(path, moved, content)


def path_of(run_dir: Path, writer: str, last_seq: int) -> Path:
    """Path of the cache file after event `last_seq` of a process."""
    return run_dir / CACHE_DIR / f"{writer}-{last_seq:016d}{SUFFIX}"


def _decoded(line: bytes, kind: type[_VersionT]) -> _VersionT:
    try:
        return msgspec.json.decode(line, type=kind)
    except (ValueError, RecursionError) as error:
        raise CacheRefused(f"its head cannot be read: {error}") from None


def _write(path: Path, head: Head, content: bytes) -> int:
    whole = msgspec.json.encode(head) + b"\n" + content
    if len(whole) > FILE_BYTES_MAX or len(whole) - len(content) > HEAD_BYTES_MAX:
        raise state_codec.NotCacheable(f"it would take {len(whole)} bytes")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # Not synced: losing a cache file in a power cut costs only time, and waiting for the disk would block the caller.
    files.write(path, lambda file: file.write(whole), sync=False)
    return len(whole)


def _before(journal: Path, offset: int) -> bytes | None:
    """The last bytes of a journal before an offset; None if the journal is shorter."""
    size = min(BEFORE_BYTES, offset)
    content = read_at(journal, offset - size, size)
    return content if len(content) == size else None


class CacheFinding(NamedTuple):
    """The result for one cache file."""

    name: str
    """File, relative to the run's directory."""
    bytes: int
    why_not: str
    """Why it cannot be used; empty if it agrees with its journal."""
    is_outdated: bool
    """Whether the only reason is another version of tputui, or that its journal was sealed since."""


class CacheVerifier:
    """Reduces every event of a run, in order for each process."""

    def __init__(self, run_dir: Path) -> None:
        self._findings: list[CacheFinding] = []
        self._waiting: dict[str, dict[int, tuple[Path, bytes]]] = {}
        """By process and number of event: the valid cache files whose events have not been reduced yet, and digests of
        their states; all states together may not fit into memory."""
        self._states: dict[str, ProcessState] = {}
        for path in listed(run_dir):
            self._look(run_dir, path)

    def take(self, writer: str, seq: int, event: Event) -> None:
        waiting = self._waiting.get(writer)
        if not waiting:
            return
        state = self._states.setdefault(writer, ProcessState(writer))
        state.apply(seq, event)
        pending = waiting.pop(seq, None)
        if pending is not None:
            self._compare(*pending, state)

    def findings(self) -> list[CacheFinding]:
        """The results by file name, after all events were applied."""
        for waiting in self._waiting.values():
            for path, _ in waiting.values():
                self._report(path, "the journal has no event with its number")
            waiting.clear()
        return sorted(self._findings)

    def _look(self, run_dir: Path, path: Path) -> None:
        try:
            head = read_head(path)
            check_fit(run_dir, head)
            _, content = read_state(path, head)
        except Outdated as error:
            self._report(path, str(error), is_outdated=True)
        except CacheRefused as error:
            self._report(path, str(error))
        except FileNotFoundError:
            # The supervisor of a running run has removed it since.
            return
        except OSError as error:
            self._report(path, f"it cannot be read: {error.strerror}")
        else:
            self._waiting.setdefault(head.writer, {})[head.last_seq] = (path, _digest(content))

    def _compare(self, path: Path, digest: bytes, state: ProcessState) -> None:
        try:
            same = _digest(state_codec.encode(state)) == digest
        except state_codec.NotCacheable:
            same = False
        self._report(path, "" if same else "it differs from its journal")

    def _report(self, path: Path, why_not: str, *, is_outdated: bool = False) -> None:
        size = path.stat().st_size if path.is_file() else 0
        self._findings.append(CacheFinding(f"{CACHE_DIR}/{path.name}", size, why_not, is_outdated))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class CachedState(NamedTuple):
    """The state of a process after the events before a bookmark. Fork it before applying events."""

    bookmark: Bookmark
    state: ProcessState
    newest_t: float
    """Newest unix time of those events."""


class StateCache:
    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._kept: dict[str, list[tuple[Head, Path]]] | None = None
        """Readable files by process, in order of their events."""

    def before(self, t: float, beyond: Mapping[str, int]) -> dict[str, CachedState]:
        """The newest cached state of each process whose events are not newer than the unix time `t`.

        A process is left out unless that state contains events after the number in `beyond`.
        """
        if self._kept is None:
            self._kept = _heads(self._run_dir)
        states: dict[str, CachedState] = {}
        for writer, kept in self._kept.items():
            cached_state = self._newest(kept, t, beyond.get(writer, -1))
            if cached_state is not None:
                states[writer] = cached_state
        return states

    def _newest(self, kept: list[tuple[Head, Path]], t: float, beyond: int) -> CachedState | None:
        for head, path in reversed(kept.copy()):
            if head.newest_t > t:
                continue
            if head.last_seq <= beyond:
                return None
            try:
                check_fit(self._run_dir, head)
                state, _ = read_state(path, head)
            except (CacheRefused, OSError):
                kept.remove((head, path))
                continue
            return CachedState(head.bookmark, state, head.newest_t)
        return None


def _heads(run_dir: Path) -> dict[str, list[tuple[Head, Path]]]:
    by_writer: dict[str, list[tuple[Head, Path]]] = {}
    for path in listed(run_dir):
        with contextlib.suppress(CacheRefused, OSError):
            head = read_head(path)
            by_writer.setdefault(head.writer, []).append((head, path))
    return {writer: sorted(kept, key=lambda file: file[0].last_seq) for writer, kept in by_writer.items()}

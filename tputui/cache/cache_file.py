"""A place as a file: what a journal adds up to, as far as it had been read, and where to read on.

    RUN/places/WRITER-NUMBER.place     NUMBER is that of the last record that was taken in

One line of JSON, the head, then the state as `tputui.cache.state_codec` writes it. The journals are the truth: a file
that is damaged, written by another version, or does not fit its journal is refused with the reason, and only time is
lost. Cache files are untrusted input: their size, head and claims are checked before the rest is read.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from tputui import __version__
from tputui.cache import state_codec
from tputui.state.process_state import ProcessState
from tputui.telemetry.events import INT_MAX
from tputui.telemetry.journal import SUFFIX as JOURNAL_SUFFIX
from tputui.telemetry.journal import Bookmark
from tputui.telemetry.rundir import CACHE_DIR, SEALED_SUFFIX
from tputui.telemetry.safe_open import open_plain

FORMAT = 4
"""Version of the head and of what follows it. What a state means changes with the version of tputui as well."""
SUFFIX = ".place"
PLACE_BYTES_MAX = 4 << 20
"""A longer file is no place, and a greater state is not kept."""
HEAD_BYTES_MAX = 1 << 10
LISTED_MAX = 512
"""Files that are looked at; a supervisor keeps fewer."""
BEFORE_BYTES = 4_096
"""Bytes of the journal right before a place that its checksum is of."""

_NAME = re.compile(r"(?P<writer>[A-Za-z0-9][A-Za-z0-9._-]{0,127})-(?P<seq>[0-9]{16})\.place")
_LAST_NUMBER = re.compile(rb',"q":([0-9]{1,16}),"c":"[0-9a-f]{8}"}\n+\Z')
_Count = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Crc = Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]


class CacheRefused(ValueError):
    """A file that is no place to go on from; the text says why."""


class Outdated(CacheRefused):
    """One that another version of tputui wrote, or whose journal was sealed since; nothing is wrong with it."""


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    version: str


_VersionT = TypeVar("_VersionT", bound=_Version)


class Head(_Version, frozen=True, kw_only=True):
    """What stands before the state."""

    writer: str
    journal: str
    """File name of the journal."""
    offset: Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
    """Where to read on in it, in bytes."""
    next_seq: _Count
    """Number of the record that stands there. In a sealed journal, where a frame begins, it may be in the state."""
    last_seq: _Count
    """Number of the last record in the state."""
    newest_t: float
    """No record in the state is newer, in unix time."""
    journal_id: str | None
    """Id of the records in the state; a record with another one is not read after them."""
    before: _Crc
    """CRC-32 of the last bytes of the journal before the offset, `BEFORE_BYTES` of them or as many as there are."""
    bytes: _Count
    """Size of the state."""
    crc: _Crc
    """CRC-32 of the state."""


def listed(run_dir: Path) -> list[Path]:
    """The places of a run, by name. Of a directory that is none, or leads elsewhere, there are none."""
    folder = run_dir / CACHE_DIR
    found: list[Path] = []
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            return []
        with os.scandir(folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
                if len(found) == LISTED_MAX:
                    break
    return sorted(found)


def read_head(path: Path) -> Head:
    """The head of a place. Raises `CacheRefused`, and `OSError`."""
    fd = open_plain(path)
    try:
        line, newline, _ = os.pread(fd, HEAD_BYTES_MAX, 0).partition(b"\n")
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    version = _decoded(line, _Version)
    if (version.format, version.version) != (FORMAT, __version__):
        raise Outdated(f"tputui {version.version[:40]} wrote it, and this is {__version__}")
    head = _decoded(line, Head)
    name = _NAME.fullmatch(path.name)
    if name is None or (name["writer"], int(name["seq"])) != (head.writer, head.last_seq):
        raise CacheRefused("it is called like another one")
    if head.journal not in (head.writer + JOURNAL_SUFFIX, head.writer + SEALED_SUFFIX):
        raise CacheRefused("it is of a journal that its writer does not have")
    if head.next_seq > head.last_seq + 1 or not newline:
        raise CacheRefused("its head contradicts itself")
    if size != len(line) + 1 + head.bytes or size > PLACE_BYTES_MAX:
        raise CacheRefused("it is not as long as it says, or longer than it may be")
    return head


def read_state(path: Path, head: Head) -> tuple[ProcessState, bytes]:
    """The state of a place, and the bytes that it stands in. Raises `CacheRefused`, and `OSError`."""
    fd = open_plain(path)
    try:
        content = os.pread(fd, PLACE_BYTES_MAX, 0).partition(b"\n")[2]
    finally:
        os.close(fd)
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
    """Raises `CacheRefused` where the journal does not stand as it stood when the place was kept."""
    try:
        before = _before(run_dir / head.journal, head.offset)
    except FileNotFoundError:
        if (run_dir / (head.writer + SEALED_SUFFIX)).is_file():
            raise Outdated("its journal was sealed since") from None
        raise CacheRefused(f"{head.journal} is not there") from None
    except OSError as error:
        raise CacheRefused(f"{head.journal} cannot be read: {error.strerror}") from None
    if before is None:
        raise CacheRefused(f"{head.journal} is shorter than it was")
    number = _LAST_NUMBER.search(before[-64:])
    plain = head.journal.endswith(JOURNAL_SUFFIX)
    follows = not plain or (number is not None and int(number[1]) == head.last_seq == head.next_seq - 1)
    if zlib.crc32(before) != head.before or not follows:
        raise CacheRefused(f"{head.journal} is another one than it was")


def write(run_dir: Path, bookmark: Bookmark, state: ProcessState) -> int:
    """Keeps a place, whole or not at all; returns the size of its file in bytes.

    `bookmark` is after the last record of `state`, and nothing before it is damaged. Raises `NotCacheable` if
    the state cannot be encoded, and `OSError`.
    """
    content = state_codec.encode(state)
    before = _before(run_dir / bookmark.journal, bookmark.offset)
    if before is None or state.newest_t is None:
        raise state_codec.NotCacheable("its journal is shorter than it was, or tells no time")
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


def reseat(run_dir: Path, path: Path, bookmark: Bookmark) -> None:
    """Has a place read on elsewhere, in another form of the same journal. Raises `CacheRefused`, and `OSError`."""
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
    """Where the place after a record of a writer is kept."""
    return run_dir / CACHE_DIR / f"{writer}-{last_seq:016d}{SUFFIX}"


def _decoded(line: bytes, kind: type[_VersionT]) -> _VersionT:
    try:
        return msgspec.json.decode(line, type=kind)
    except (ValueError, RecursionError) as error:
        raise CacheRefused(f"its head cannot be read: {error}") from None


def _write(path: Path, head: Head, content: bytes) -> int:
    whole = msgspec.json.encode(head) + b"\n" + content
    if len(whole) > PLACE_BYTES_MAX or len(whole) - len(content) > HEAD_BYTES_MAX:
        raise state_codec.NotCacheable(f"it would take {len(whole)} bytes")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    # Not synced: of a place that a power cut takes nothing is lost but time, and waiting for the disk would hold up
    # whoever keeps places.
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(whole)
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return len(whole)


def _before(journal: Path, offset: int) -> bytes | None:
    """The last bytes of a journal before an offset; None where it is shorter than that."""
    fd = open_plain(journal)
    try:
        size = min(BEFORE_BYTES, offset)
        content = os.pread(fd, size, offset - size)
    finally:
        os.close(fd)
    return content if len(content) == size else None

"""The files of a run as a host streams them: its journals, and the small files that views read beside them.

Bytes are sent as they are, so the viewer's copy is equal to the journal. Events are encoded anew where the bytes
cannot be the same: a journal that was sealed after the viewer got a part of it, and with `--summary`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from tputui.remote.protocol import DATA_BYTES, MARK_BYTES, SIDE_FILE_BYTES_MAX, Data, File, Follow, Form, is_side_file
from tputui.telemetry import float_blocks
from tputui.telemetry.codec import NumberedEvent, encode
from tputui.telemetry.compressed import CompressedTail
from tputui.telemetry.events import StepsRecorded
from tputui.telemetry.files import read_at, read_small, reading
from tputui.telemetry.journal import LINE_BYTES_MAX, SUFFIX, Tail
from tputui.telemetry.rundir import MANIFEST, REQUESTS, SEALED_SUFFIX

READS_MAX = 16
"""Parts of a journal that are read at once for events that the viewer does not have, so that it hears in between."""
WHOLE_MAX = 100
"""Reports with NaN or infinite values that are sent whole with `--summary`, so that the first ones are located."""
_LINE_END = re.compile(rb'(?:,"j":"([0-9a-f]{8})")?,"q":([0-9]{1,16}),"c":"[0-9a-f]{8}"}\n\Z')
_LINE_END_BYTES = 64


def marks_of(path: Path, size: int) -> tuple[int, int]:
    """What identifies the first `size` bytes of a file: CRC-32 of their first and their last `MARK_BYTES` bytes.

    Raises `OSError`, also if the file is shorter.
    """
    with reading(path) as fd:
        if os.fstat(fd).st_size < size:
            raise OSError(f"{path} is shorter than {size} bytes")
        length = min(size, MARK_BYTES)
        return zlib.crc32(os.pread(fd, length, 0)), zlib.crc32(os.pread(fd, length, size - length))


def next_event(lines: bytes) -> tuple[int, str]:
    """The number of the event after some bytes that end with a line, and the id of their journal; 0 and "" if the last
    line is no event."""
    match = _LINE_END.search(lines[-_LINE_END_BYTES:])
    return (int(match[2]) + 1, (match[1] or b"").decode()) if match else (0, "")


class JournalSource(Protocol):
    path: Path

    def read(self) -> Data | None:
        """The next part; None if there is nothing more for now. Raises `OSError`."""

    def close(self) -> None:
        """Closes the journal."""


def open_source(run_dir: Path, follow: Follow, *, summary: bool) -> JournalSource:
    """Chooses how a journal is sent to a viewer. Raises `OSError`."""
    plain, sealed = run_dir / f"{follow.writer}{SUFFIX}", run_dir / f"{follow.writer}{SEALED_SUFFIX}"
    if summary:
        is_known = follow.form == "plain" and follow.size > 0
        path = plain if plain.exists() else sealed
        return EventSource(path, follow.writer, follow if is_known else None, summary=True)
    if plain.exists():
        offset = follow.size if follow.form == "plain" and _is_prefix(plain, follow) else 0
        return ByteSource(plain, follow.writer, "plain", offset)
    if follow.form == "plain" and follow.size > 0 and _id_of(sealed) == follow.journal_id:
        return EventSource(sealed, follow.writer, follow, summary=False)
    offset = follow.size if follow.form == "sealed" and _is_prefix(sealed, follow) else 0
    return ByteSource(sealed, follow.writer, "sealed", offset)


class ByteSource:
    def __init__(self, path: Path, writer: str, form: Form, offset: int) -> None:
        """`offset`: bytes that the viewer has. Raises `OSError`."""
        self.path = path
        self._offset = offset
        self._writer = writer
        self._form: Form = form
        self._seen = (-1, -1)
        """Inode and size of the file when it was read to its end."""
        self._tail = read_at(path, max(0, offset - _LINE_END_BYTES), min(offset, _LINE_END_BYTES))
        """The last bytes that the viewer has; a file that has others there is another one."""
        self._is_new = True

    def read(self) -> Data | None:
        """The next bytes. A plain journal is sent in whole lines."""
        status = os.stat(self.path)
        inode_and_size = (status.st_ino, status.st_size)
        if inode_and_size == self._seen:
            return None
        if read_at(self.path, self._offset - len(self._tail), len(self._tail)) != self._tail:
            self._offset, self._tail, self._is_new = 0, b"", True
        data = self._next(status.st_size)
        offset = self._offset
        self._offset += len(data)
        self._tail = (self._tail + data)[-_LINE_END_BYTES:]
        at_end = self._offset >= status.st_size or not data
        if at_end:
            self._seen = inode_and_size
        if not data and not self._is_new:
            return None
        self._is_new = False
        return Data(writer=self._writer, form=self._form, offset=offset, data=data, end=at_end)

    def close(self) -> None:
        """Nothing is open between two reads: a run of a pod has more journals than a process may open."""

    def _next(self, size: int) -> bytes:
        data = read_at(self.path, self._offset, min(DATA_BYTES, max(0, size - self._offset)))
        if self._form != "plain":
            return data
        end = data.rfind(b"\n") + 1
        if not end and len(data) == DATA_BYTES:
            data = read_at(self.path, self._offset, LINE_BYTES_MAX)
            # A longer line is damage, and is sent as such.
            end = data.rfind(b"\n") + 1 or (len(data) if len(data) == LINE_BYTES_MAX else 0)
        return data[:end]


class EventSource:
    """Sends the events after a number, encoded anew; with `summary` only the last step of each report."""

    def __init__(self, path: Path, writer: str, copy: Follow | None, *, summary: bool) -> None:
        """`copy`: the viewer's copy, which must be of the same journal, else it begins anew."""
        self.path = path
        self._writer = writer
        self._summary = summary
        self._tail = _tail_of(path)
        self._next_seq = 0
        self._offset = 0
        self._is_new = True
        self._whole_left = WHOLE_MAX
        if copy is not None and _id_of(path) == copy.journal_id:
            self._next_seq, self._offset = copy.next_seq, copy.size
            if isinstance(self._tail, CompressedTail):
                self._skip_frames(self._tail)

    def read(self) -> Data | None:
        """The next events as lines."""
        lines = bytearray()
        for _ in range(READS_MAX):
            events = self._tail.read(DATA_BYTES)
            position = self._tail.position
            for numbered in events:
                if numbered.seq >= self._next_seq:
                    self._next_seq = numbered.seq + 1
                    lines += self._line(numbered)
            if lines or (not events and position.offset >= position.size):
                break
        at_end = position.offset >= position.size
        if not lines and not self._is_new and at_end:
            return None
        offset, self._is_new = self._offset, False
        self._offset += len(lines)
        return Data(
            writer=self._writer,
            form="plain",
            offset=offset,
            data=bytes(lines),
            end=at_end,
        )

    def close(self) -> None:
        self._tail.close()

    def _line(self, numbered: NumberedEvent) -> bytes:
        event = numbered.event
        if self._summary and isinstance(event, StepsRecorded) and event.n > 1:
            if event.bad and self._whole_left:
                self._whole_left -= 1
            else:
                event = last_step(event)
        return encode(event, numbered.seq, numbered.journal_id)

    def _skip_frames(self, tail: CompressedTail) -> None:
        """Continues at the last frame of a sealed journal if the viewer has everything before it."""
        start = tail.bookmark
        tail.to_last_frame()
        last_frame = tail.bookmark
        events = tail.read()
        tail.go_to(last_frame if events and events[0].seq <= self._next_seq else start)


def last_step(event: StepsRecorded) -> StepsRecorded:
    """The last step of a report as an event of its own."""
    try:
        row = float_blocks.unpack_bytes(event.block, event.n * event.cores)[-4 * event.cores :]
    except float_blocks.BlockError:
        return event
    mean, least, greatest, bad = float_blocks.summarise(float_blocks.unpack(float_blocks.pack_plain(row), event.cores))
    return msgspec.structs.replace(
        event,
        first=event.first + event.n - 1,
        n=1,
        mean=mean,
        min=least,
        max=greatest,
        bad=bad,
        block=float_blocks.pack_plain(row),
    )


def _tail_of(path: Path) -> Tail | CompressedTail:
    return CompressedTail(path) if path.name.endswith(SEALED_SUFFIX) else Tail(path)


def _id_of(path: Path) -> str | None:
    """The id of a journal; None if it has no event."""
    with contextlib.closing(_tail_of(path)) as tail:
        return next((numbered.journal_id for numbered in tail.read()), None)


def _is_prefix(path: Path, follow: Follow) -> bool:
    """Whether the viewer's copy is the beginning of a file."""
    try:
        return follow.size > 0 and marks_of(path, follow.size) == (follow.head_crc, follow.tail_crc)
    except OSError:
        return False


LOOK_S = 1.0
"""Seconds between two looks at the files."""
FOLDER_LOOK_S = 10.0
"""Seconds after which a folder is listed although its modification time is the same."""
TOP_FILES = (MANIFEST, "labels.json", "model.json", "code.json")
PICTURES = "pictures"
PICTURE_BYTES_MAX = 2 << 20
PICTURES_BYTES_MAX = 32 << 20
"""Bytes of pictures that a viewer gets over one connection, newest epochs first."""
FILES_MAX = 4_096
"""Files of a folder, in its order, that are looked at."""
ROUND_BYTES = 256 << 10


class SideFiles:
    """Finds files that are new or changed."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._sent: dict[str, tuple[int, int, int]] = {}
        """Files that the viewer has: inode, size and modification time."""
        self._folders: dict[str, tuple[int, float]] = {}
        """When each folder was modified as it was listed, and when that was."""
        self._pending: list[str] = []
        self._looked_at = -LOOK_S
        self._pictures_left = PICTURES_BYTES_MAX

    @property
    def is_busy(self) -> bool:
        """Whether more files are to be sent."""
        return bool(self._pending)

    def skip(self, path: str) -> None:
        """Does not send a file that the viewer wrote."""
        self._sent[path] = (0, 0, 0)

    def read(self) -> list[File]:
        """Files that are new or changed, about `ROUND_BYTES` of them."""
        now = time.monotonic()
        if not self._pending and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._pending = [path for path in self._paths(now) if self._is_changed(path)]
        files: list[File] = []
        size = 0
        while self._pending and size < ROUND_BYTES:
            file = self._file(self._pending.pop(0))
            if file is not None:
                files.append(file)
                size += len(file.content)
        return files

    def _paths(self, now: float) -> Iterator[str]:
        yield from TOP_FILES
        yield from self._listed(REQUESTS, now)
        if self._pictures_left <= 0 or not self._has_changed(PICTURES, now):
            return
        for folder in sorted(self._names(PICTURES), reverse=True):
            if folder.startswith("rank-"):
                for below in sorted(self._names(f"{PICTURES}/{folder}"), reverse=True):
                    yield from self._listed(f"{PICTURES}/{folder}/{below}", now)
            else:
                yield from self._listed(f"{PICTURES}/{folder}", now)

    def _listed(self, folder: str, now: float) -> Iterator[str]:
        if self._has_changed(folder, now):
            yield from (f"{folder}/{name}" for name in sorted(self._names(folder)))

    def _names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._run_dir / folder) as entries:
                return [entry.name for entry, _ in zip(entries, range(FILES_MAX), strict=False)]
        except OSError:
            return []

    def _has_changed(self, folder: str, now: float) -> bool:
        try:
            modified = (self._run_dir / folder).stat().st_mtime_ns
        except OSError:
            return False
        seen, listed = self._folders.get(folder, (0, 0.0))
        if modified == seen and now - listed < FOLDER_LOOK_S:
            return False
        self._folders[folder] = (modified, now)
        return True

    def _is_changed(self, path: str) -> bool:
        if not is_side_file(path):
            return False
        is_fixed = "/" in path
        if is_fixed and path in self._sent:
            return False
        try:
            status = (self._run_dir / path).stat()
        except OSError:
            return False
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._sent.get(path) == mark:
            return False
        self._sent[path] = mark
        return True

    def _file(self, path: str) -> File | None:
        is_picture = path.startswith(PICTURES)
        limit = min(PICTURE_BYTES_MAX, self._pictures_left) if is_picture else SIDE_FILE_BYTES_MAX
        try:
            content = read_small(self._run_dir / path, limit)
        except OSError:
            return None
        if is_picture:
            self._pictures_left -= len(content)
        return File(path=path, content=content)

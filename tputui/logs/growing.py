"""Reads files that other programs still write: new bytes, and what was damaged and is whole now.

Foreign logs are untrusted input: only regular files are opened, reads and lines are bounded, and a file is closed
between reads, so that a log directory with thousands of files needs no file descriptors.

A file system such as NFS may show the size of a file before all of its bytes, which are zeros until then. So zeros at
the end of a file are not written yet, and damage inside it is read again once the file has changed.
"""

from __future__ import annotations

import operator
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Generic, TypeVar

from tputui.logs.damage_notes import DamageNotes, Region
from tputui.logs.rows import LoggedValue, LogReader
from tputui.telemetry.files import next_data, read_at, reading

CHUNK_BYTES = 1 << 20
"""Bytes read per call: a few thousand to a few ten thousand values."""
FILES_MAX = 10_000
"""Files of a log directory that are read, at most; one folder may exceed it."""
FOLDERS_MAX = 100_000
REGIONS_MAX = 1_000
"""Damaged parts of a file that are read again when it changes; later ones are not."""
ZEROS_BYTES_MAX = 64 << 20
"""A longer run of zeros at the end of a file is damage."""
SETTLED_S = 1.0
"""A file that changed less than so many seconds ago may change again without another time of change."""
_LOOK_S, _LOOK_TIMES = 5e-3, 20.0
"""After damaged parts were read for longer than the first, in CPU seconds, the next time is so many times later."""

T = TypeVar("T")


class GrowingFile:
    """A file, or a part of it, that is read from its beginning, and later what was appended."""

    def __init__(self, path: Path, start: int = 0, end: int | None = None) -> None:
        """`end`: the offset after the part, in bytes."""
        self.path = path
        self.start, self.end = start, end
        self.offset = start
        self.zeros_from: int | None = None
        """Offset of the zeros at the end of the file, as far as they were found by the last `read`."""
        self._shown = (-1, 0)
        """Start and end of the zeros at the end that were returned last: a complete record may end with zeros."""
        self._zeros_state: tuple[int, ...] | None = None
        """State of the file at which there was nothing but zeros to read."""

    def read(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next bytes; empty if there are none yet. Raises `OSError`."""
        status = os.stat(self.path)
        size = status.st_size if self.end is None else min(status.st_size, self.end)
        if size <= self.offset or (self._zeros_state is not None and self._zeros_state == state_of(status)):
            return b""
        content = read_at(self.path, self.offset, min(max_bytes, size - self.offset))
        self.zeros_from = self._zeros_state = None
        if content.endswith(b"\0") and self.end is None:
            content = self._new_of(content, size)
            if not content and is_settled(status):
                self._zeros_state = state_of(status)
        self.offset += len(content)
        return content

    def keep(self, rest: bytes) -> bytes:
        """The bytes of a chunk that were not used yet, without zeros at the end of the file; they are read again."""
        if self.zeros_from is None:
            return rest
        num_zeros = min(len(rest), max(0, self.offset - self.zeros_from))
        self.offset -= num_zeros
        return rest[: len(rest) - num_zeros]

    def is_unwritten(self, end: int) -> bool:
        """Whether some bytes before an offset are zeros at the end of the file."""
        return self.zeros_from is not None and end > self.zeros_from

    @property
    def is_read(self) -> bool:
        """Whether everything that was written so far was read."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return True
        return size <= self.offset or self.zeros_from == self.offset

    @property
    def unwritten(self) -> str:
        """A sentence if the file ends with zeros that were not read; empty otherwise."""
        try:
            num_zeros = os.stat(self.path).st_size - self.offset
        except OSError:
            return ""
        if self.zeros_from != self.offset or num_zeros <= 0:
            return ""
        return (
            f"{self.path}: the last {num_zeros:,} bytes are zeros, as if they were not written yet, and were not read"
        )

    def _new_of(self, content: bytes, size: int) -> bytes:
        """A chunk that ends with zeros; empty if nothing but zeros follows, and as many were returned before."""
        end, written = self.offset + len(content), content.rstrip(b"\0")
        if not _is_zero(self.path, end, size):
            return content
        self.zeros_from = self.offset + len(written)
        before, self._shown = self._shown, (self.zeros_from, end)
        return content if written or self._shown != before else b""


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def is_settled(status: os.stat_result) -> bool:
    """Whether a later change of the file will change its times, which are coarse."""
    return abs(time.time() - status.st_ctime) > SETTLED_S


def _is_zero(path: Path, start: int, end: int) -> bool:
    """Whether all bytes of a part of a file are zeros; it is not read to its end if it is long."""
    if end - start > ZEROS_BYTES_MAX:
        return False
    while start < end:
        with reading(path) as fd:
            start = next_data(fd, start)
            content = os.pread(fd, max(0, min(CHUNK_BYTES, end - start)), start)
        if content.strip(b"\0"):
            return False
        if not content:
            break
        start += len(content)
    return True


class GrowingReader(ABC, Generic[T]):
    """Base of the readers of files of records, whose damaged parts are read again when the file has changed."""

    def __init__(self, file: GrowingFile, notes: DamageNotes) -> None:
        self._file = file
        self._notes = notes
        self._damaged: list[Region] = []
        self._due: list[Region] = []
        """Damaged parts that are to be read again now."""
        self._part: GrowingReader[T] | None = None
        """Reads one of them."""
        self._looked_at: tuple[int, ...] | None = None
        """State of the file when its damaged parts were read last."""
        self._has_looked = False
        """Whether that was since `read_chunk` last returned None."""
        self._look_began_s = 0.0
        self._look_due = 0.0

    def read_chunk(self) -> list[T] | None:
        """What the next chunk contains, or a part that was damaged and is whole now; None if there is nothing new.

        Raises `OSError`.
        """
        while True:
            if self._part is not None:
                content = self._part.read_chunk()
                if content is not None:
                    return content
                self._end_part(self._part)
            elif self._due:
                region = self._due.pop(0)
                self._notes.forget(region)
                self._part = self._part_of(GrowingFile(region.path, region.start, region.end))
            elif chunk := self._file.read(self._chunk_bytes):
                return self._take(chunk)
            elif not self._look_again():
                return None

    def read(self) -> list[T]:
        """The content of the next chunks of which one has any; empty if there is nothing new. Raises `OSError`."""
        while (content := self.read_chunk()) is not None:
            if content:
                return content
        return []

    def close(self) -> None:
        """Nothing to close: the file is closed between reads."""

    @property
    @abstractmethod
    def _chunk_bytes(self) -> int:
        """Bytes of the next read."""

    @property
    @abstractmethod
    def _unused_from(self) -> int:
        """Offset of the first byte that is not part of a record that was read, or of damage that was noted."""

    @property
    @abstractmethod
    def _is_lost(self) -> bool:
        """Whether everything from `_unused_from` on is damaged, as far as it was read."""

    @abstractmethod
    def _take(self, chunk: bytes) -> list[T]:
        """Takes the next bytes of the file; returns what is complete."""

    @abstractmethod
    def _go_to(self, offset: int) -> None:
        """Forgets what is incomplete, and continues at an offset, in bytes."""

    @abstractmethod
    def _part_of(self, file: GrowingFile) -> GrowingReader[T]:
        """A reader of a part of the file."""

    def _note(self, start: int, end: int, sentence: str) -> None:
        if len(self._damaged) >= REGIONS_MAX:
            self._notes.add(sentence)
            return
        region = Region(self._file.path, start, end)
        self._damaged.append(region)
        self._notes.add(sentence, region)
        self._looked_at = None

    def _note_skipped(self, start: int, end: int) -> None:
        self._note(start, end, f"{self._file.path}: {end - start:,} damaged bytes at byte {start:,} were skipped")

    def _forget_damage(self) -> None:
        """Forgets the damaged parts of a file that was replaced."""
        self._damaged, self._due, self._part = [], [], None

    def _end_part(self, part: GrowingReader[T]) -> None:
        end, self._part = part._file.end or 0, None
        if part._unused_from < end:
            part._note_skipped(part._unused_from, end)
        self._damaged += part._damaged

    def _look_again(self) -> bool:
        """Begins to read damaged parts again if the file has changed since they were read; False if it has not."""
        if self._has_looked:
            cpu_s, self._has_looked = time.thread_time() - self._look_began_s, False
            self._look_due = time.monotonic() + _LOOK_TIMES * cpu_s if cpu_s > _LOOK_S else 0.0
            return False
        if not (self._damaged or self._is_lost) or self._file.end is not None or time.monotonic() < self._look_due:
            return False
        status = os.stat(self._file.path)
        if state_of(status) == self._looked_at:
            return False
        self._looked_at = state_of(status) if is_settled(status) else None
        self._has_looked, self._look_began_s = True, time.thread_time()
        self._due, self._damaged = self._damaged, []
        if self._is_lost:
            self._go_to(self._unused_from)
        return True


def files_under(root: Path, is_wanted: Callable[[str], bool]) -> Iterator[Path]:
    """Files whose name is wanted, by folder, then by name, up to a number. Links to folders are not followed."""
    num_files = 0
    for number, (folder, subfolders, names) in enumerate(os.walk(root)):
        subfolders.sort()
        wanted = [Path(folder, name) for name in sorted(names) if is_wanted(name)]
        yield from wanted
        num_files += len(wanted)
        if num_files >= FILES_MAX or number >= FOLDERS_MAX:
            return


def incomplete_record(file: GrowingFile, rest: bytes) -> str:
    """A sentence about the bytes at the end of a file that are not a complete record; empty if there are none."""
    if sentence := file.unwritten:
        return sentence
    return f"{file.path}: the last record is incomplete ({len(rest):,} bytes) and was not read" if rest else ""


class RecordReader(GrowingReader[LoggedValue]):
    """Base of the readers of binary logs. What follows a damaged record is lost until another record is found."""

    def __init__(self, path: Path, part: GrowingFile | None = None, notes: DamageNotes | None = None) -> None:
        """With `part`, only this part of the file is read."""
        super().__init__(part or GrowingFile(path), notes if notes is not None else DamageNotes())
        self._path = path
        self._buffer = b""
        """The bytes that are not used yet."""
        self._lost_from: int | None = None
        """Offset of the damage, while no later record was found."""

    @property
    def lost(self) -> str:
        """A sentence if everything after some offset was unreadable so far; empty otherwise."""
        return "" if self._lost_from is None else f"{self._path}: damaged from byte {self._lost_from:,} on"

    @property
    def damage(self) -> list[str]:
        return [*self._notes.sentences, *filter(None, [self.lost])]

    @property
    def incomplete(self) -> str:
        return "" if self._lost_from is not None else incomplete_record(self._file, self._incomplete_bytes)

    @property
    def _incomplete_bytes(self) -> bytes:
        return self._buffer

    @property
    def _chunk_bytes(self) -> int:
        return max(CHUNK_BYTES, len(self._buffer))

    @property
    def _unused_from(self) -> int:
        return self._file.offset - len(self._buffer) if self._lost_from is None else self._lost_from

    @property
    def _is_lost(self) -> bool:
        return self._lost_from is not None

    def _go_to(self, offset: int) -> None:
        self._file.offset, self._buffer, self._lost_from = offset, b"", None

    def _begin_lost(self, offset: int) -> None:
        """Everything is damaged from an offset on, as far as it was read."""
        self._lost_from, self._looked_at = offset, None

    def _end_lost(self, offset: int) -> None:
        """A record begins at an offset."""
        if self._lost_from is not None:
            self._note_skipped(self._lost_from, offset)
            self._lost_from = None


LINE_BYTES_MAX = 1 << 20
"""A longer line is skipped, and reported."""
_HEAD_BYTES_MAX = 1 << 16


class LineReader(GrowingReader[bytes]):
    """The complete lines of a growing text file.

    Some writers rewrite their file: Lightning's `CSVLogger` when a metric is new, `DataFrame.to_csv` every time. A file
    that shrank or begins differently is read again; if `continues(old, new)` holds for its first two lines, then lines
    that were already returned are not returned again. The first line of a rewritten file always is. A line with zero
    bytes is damaged: an empty line is returned, and later the lines that its bytes turn out to be.
    """

    def __init__(
        self,
        file: GrowingFile,
        notes: DamageNotes,
        continues: Callable[[list[bytes], list[bytes]], bool] = operator.eq,
        *,
        needs_header: bool = False,
        num_lines: int = 0,
    ) -> None:
        """`continues` as above; `needs_header`: no line can be used before the first one is whole; `num_lines` are
        before the part of the file that is read."""
        super().__init__(file, notes)
        self.first_number = 0
        """Number of the first line that the last `read` returned, from 1."""
        self.restarted = False
        """Whether the first line that the last `read` returned is the first line of the file."""
        self._continues = continues
        self._needs_header = needs_header
        self._waits_for_header = False
        self._rest = b""
        self._skipping = False
        self._long_from: int | None = None
        """Offset of the line that is being skipped, if it is too long."""
        self._first: list[bytes] = []
        self._num_lines = num_lines
        self._num_before = num_lines
        self._num_known = 0
        """Lines of a rewritten file that were returned before it was rewritten."""
        self._batch: list[bytes] = []
        """The lines that were read last, as they are in the file."""
        self._offsets: list[int] = []
        """Their offsets, without their ends, if they are known; the first one is always."""
        self._numbers: dict[int, int] = {}
        """Numbers of damaged lines by offset."""

    def read(self) -> list[bytes]:
        """Complete lines without their ends, as many as one chunk holds. Raises `OSError`."""
        self.restarted = self._waits_for_header = False
        if self._first and self._rewritten() and not self._start_again():
            return []
        while (lines := self.read_chunk()) is not None and not self._waits_for_header:
            if lines:
                if isinstance(self._part, LineReader):
                    self.first_number, self.restarted = self._part.first_number, False
                return lines
        return []

    def note_line(self, number: int, problem: str) -> None:
        """Notes that a line of the last `read` is damaged."""
        if isinstance(self._part, LineReader):
            self._part.note_line(number, problem)
            return
        place = number - self.first_number
        if len(self._offsets) == 1:
            self._offsets = list(accumulate(map(len, self._batch), initial=self._offsets[0]))
        start = self._offsets[place] + place
        self._numbers[start] = number
        self._note(start, start + len(self._batch[place]) + 1, f"{self._file.path}:{number}: {problem}")

    def take_rest(self) -> bytes:
        """The last line, which has no end yet, if there is one; what completes it later is not returned."""
        rest, self._rest = self._rest, b""
        self._skipping = self._skipping or bool(rest)
        return rest

    @property
    def incomplete(self) -> str:
        """A sentence if the last line has no end, so that it was not returned; empty otherwise."""
        if self._waits_for_header:
            return f"{self._file.path}: zero bytes in the first line, as if it was not written yet; nothing was read"
        if not self._rest.strip():
            return self._file.unwritten
        return f"{self._file.path}: the last line ({len(self._rest):,} bytes) has no newline and was not read"

    @property
    def rest(self) -> bytes:
        """The last line, which has no end yet."""
        return self._rest

    @property
    def _chunk_bytes(self) -> int:
        return CHUNK_BYTES

    @property
    def _unused_from(self) -> int:
        return self._file.offset - len(self._rest) if self._long_from is None else self._long_from

    @property
    def _is_lost(self) -> bool:
        return False

    def _go_to(self, offset: int) -> None:
        self._file.offset = offset
        self._rest, self._skipping, self._long_from = b"", False, None

    def _part_of(self, file: GrowingFile) -> LineReader:
        return LineReader(file, self._notes, self._continues, num_lines=self._numbers.pop(file.start, 1) - 1)

    def _end_part(self, part: GrowingReader[bytes]) -> None:
        super()._end_part(part)
        assert isinstance(part, LineReader)
        self._numbers |= part._numbers
        # The damaged line may have been several.
        self._num_lines += max(0, part._num_lines - part._num_before - 1)
        if part._file.start == 0:
            self._first = part._first

    def _rewritten(self) -> bool:
        if os.stat(self._file.path).st_size < self._file.offset:
            return True
        head = self._first[0][:_HEAD_BYTES_MAX]
        now = read_at(self._file.path, 0, len(head)) if head else b""
        # Bytes that are written in place of zeros do not count.
        return now != head and (len(now) < len(head) or any(a != b for a, b in zip(head, now, strict=True) if a))

    def _start_again(self) -> bool:
        """Returns to the beginning of the file; False while its first lines are not complete."""
        size = len(self._first)
        first = read_at(self._file.path, 0, 2 * LINE_BYTES_MAX).split(b"\n")[:-1][:size]
        if len(first) < size:
            return False
        self._num_known = max(self._num_lines, self._num_known) if self._continues(self._first, first) else 0
        self._num_lines, self._first = 0, []
        self._forget_damage()
        self._go_to(0)
        return True

    def _take(self, chunk: bytes) -> list[bytes]:
        content, before = self._rest + chunk, self._num_lines
        self._offsets = [self._file.offset - len(content)]
        lines = content.split(b"\n")
        self._rest = self._file.keep(lines.pop())
        self._batch = lines.copy()
        if before == 0 and self._needs_header and lines and b"\0" in lines[0]:
            self._waits_for_header = True
            self._go_to(0)
            return []
        self._num_lines += len(lines)
        self.first_number = before + 1
        self.restarted = before == 0 and bool(lines)
        self._first += lines[: 2 - len(self._first)] if len(self._first) < 2 else []
        if self._skipping and lines:
            self._end_skipped(lines)
        if b"\0" in content:
            self._without_zeros(lines)
        self._skip_long_rest()
        if before >= self._num_known:
            return lines
        # Blank lines keep the numbers of the others.
        num_repeated = min(self._num_known - before, len(lines))
        kept = 1 if before == 0 else 0
        return lines[:kept] + [b""] * (num_repeated - kept) + lines[num_repeated:]

    def _without_zeros(self, lines: list[bytes]) -> None:
        for place, line in enumerate(lines):
            if b"\0" in line:
                self.note_line(self.first_number + place, f"{line.count(0):,} zero bytes in a line, which was skipped")
                lines[place] = b""

    def _skip_long_rest(self) -> None:
        if len(self._rest) <= LINE_BYTES_MAX:
            return
        if not self._skipping:
            self._long_from = start = self._file.offset - len(self._rest)
            self._numbers[start] = self._num_lines + 1
            self._notes.add(self._too_long(start), Region(self._file.path, start, start))
        self._rest, self._skipping = b"", True

    def _end_skipped(self, lines: list[bytes]) -> None:
        start, self._long_from = self._long_from, None
        if start is not None:
            self._notes.forget(Region(self._file.path, start, start))
            self._note(start, self._offsets[0] + len(lines[0]) + 1, self._too_long(start))
        elif b"\0" in lines[0]:
            # What follows the part of the line that was taken may be further lines.
            self._skipping = False
            return
        lines[0], self._skipping = b"", False

    def _too_long(self, start: int) -> str:
        number = self._numbers[start]
        return f"{self._file.path}:{number}: the line exceeds {LINE_BYTES_MAX:,} bytes and was skipped"


class LineLog(LogReader):
    """Base of the readers of text logs, which consist of lines and have no configuration."""

    def __init__(
        self,
        path: Path,
        continues: Callable[[list[bytes], list[bytes]], bool] = operator.eq,
        *,
        needs_header: bool = False,
    ) -> None:
        """`continues` and `needs_header` as in `LineReader`."""
        self._path = path
        self._notes = DamageNotes()
        self._lines = LineReader(GrowingFile(path), self._notes, continues, needs_header=needs_header)

    def read(self) -> list[LoggedValue]:
        while lines := self._lines.read():
            if values := self._values_of(lines):
                return values
        return []

    @abstractmethod
    def _values_of(self, lines: list[bytes]) -> list[LoggedValue]:
        """The values of the complete lines that `_lines` has read."""

    @property
    def damage(self) -> list[str]:
        return self._notes.sentences

    @property
    def incomplete(self) -> str:
        return self._lines.incomplete

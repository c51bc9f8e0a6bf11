"""Complete lines of text files that other programs still write."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from tputui.logs.damage_notes import DamageNotes, Region
from tputui.logs.growing import CHUNK_BYTES, GrowingFile, GrowingReader, read_at

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
        continues: Callable[[list[bytes], list[bytes]], bool],
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
        known = min(self._num_known - before, len(lines))
        kept = 1 if before == 0 else 0
        return lines[:kept] + [b""] * (known - kept) + lines[known:]

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


class LineLog:
    """Base of the readers of text logs, which consist of lines and have no configuration."""

    def __init__(
        self, path: Path, continues: Callable[[list[bytes], list[bytes]], bool], *, needs_header: bool = False
    ) -> None:
        """`continues` and `needs_header` as in `LineReader`."""
        self._path = path
        self._notes = DamageNotes()
        self._lines = LineReader(GrowingFile(path), self._notes, continues, needs_header=needs_header)

    @property
    def damage(self) -> list[str]:
        """Lines that could not be read."""
        return self._notes.sentences

    @property
    def incomplete(self) -> str:
        """A sentence if the last line has no end."""
        return self._lines.incomplete

    @property
    def config(self) -> dict[str, Any]:
        """Empty: every line is metrics."""
        return {}

    def close(self) -> None:
        """Nothing to close: the file is closed between reads."""

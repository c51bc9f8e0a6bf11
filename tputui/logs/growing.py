"""Reads files that other programs still write: new bytes, complete lines, and notes about damage.

Foreign logs are untrusted input: only regular files are opened, reads and lines are bounded, and a file is closed
between reads, so that a log directory with thousands of files needs no file descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tputui.telemetry.safe_open import open_plain

CHUNK_BYTES = 1 << 20
"""Bytes read per call: a few thousand to a few ten thousand values."""
LINE_BYTES_MAX = 1 << 20
"""A longer line is skipped, and reported."""
FILES_MAX = 10_000
"""Files of a log directory that are read, at most; one folder may exceed it."""
FOLDERS_MAX = 100_000
NOTES_MAX = 100
"""Damage beyond this many places is only counted."""
_HEAD_BYTES_MAX = 1 << 16


class DamageNotes:
    """Sentences about unreadable parts, bounded in number."""

    def __init__(self) -> None:
        self._sentences: list[str] = []
        self._num_more = 0

    def add(self, sentence: str) -> None:
        """Notes one unreadable part."""
        if len(self._sentences) < NOTES_MAX:
            self._sentences.append(sentence)
        else:
            self._num_more += 1

    @property
    def sentences(self) -> list[str]:
        """The sentences so far, the last one with the number of parts that are not named."""
        return [*self._sentences, f"{self._num_more} more unreadable parts"] if self._num_more else [*self._sentences]


class GrowingFile:
    """A file that is read from its beginning, and later what was appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def read(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next bytes; empty if there are none yet. Raises `OSError`."""
        if os.stat(self.path).st_size <= self.offset:
            return b""
        content = read_at(self.path, self.offset, max_bytes)
        self.offset += len(content)
        return content


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


def read_at(path: Path, offset: int, max_bytes: int) -> bytes:
    """Bytes of a regular file from an offset on. Raises `OSError`."""
    fd = open_plain(path)
    try:
        return os.pread(fd, max_bytes, offset)
    finally:
        os.close(fd)


def incomplete_record(path: Path, rest: bytes) -> str:
    """A sentence about the bytes of a record that is not complete; empty if there are none."""
    return f"{path}: the last record is incomplete ({len(rest):,} bytes) and was not read" if rest else ""


class LineReader:
    """The complete lines of a growing text file.

    Some writers rewrite their file: Lightning's `CSVLogger` when a metric is new, `DataFrame.to_csv` every time. A file
    that shrank or begins differently is read again; if `continues(old, new)` holds for its first two lines, then lines
    that were already returned are not returned again. The first line of a rewritten file always is.
    """

    def __init__(self, path: Path, notes: DamageNotes, continues: Callable[[list[bytes], list[bytes]], bool]) -> None:
        self.file = GrowingFile(path)
        self.first_number = 0
        """Number of the first line that the last `read` returned, from 1."""
        self.restarted = False
        """Whether the first line that the last `read` returned is the first line of the file."""
        self._notes = notes
        self._continues = continues
        self._rest = b""
        self._skipping = False
        self._first: list[bytes] = []
        self._num_lines = 0
        self._num_known = 0
        """Lines of a rewritten file that were returned before it was rewritten."""

    def read(self) -> list[bytes]:
        """Complete lines without their ends, as many as one chunk holds. Raises `OSError`."""
        self.restarted = False
        if self._first and self._rewritten() and not self._start_again():
            return []
        while True:
            chunk = self.file.read()
            lines = self._complete(chunk)
            if lines or not chunk:
                return lines

    def take_rest(self) -> bytes:
        """The last line, which has no end yet, if there is one; what completes it later is not returned."""
        rest, self._rest = self._rest, b""
        self._skipping = self._skipping or bool(rest)
        return rest

    @property
    def incomplete(self) -> str:
        """A sentence if the last line has no end, so that it was not returned; empty otherwise."""
        if not self._rest.strip():
            return ""
        return f"{self.file.path}: the last line ({len(self._rest):,} bytes) has no newline and was not read"

    @property
    def rest(self) -> bytes:
        """The last line, which has no end yet."""
        return self._rest

    def _rewritten(self) -> bool:
        if os.stat(self.file.path).st_size < self.file.offset:
            return True
        head = self._first[0][:_HEAD_BYTES_MAX]
        return bool(head) and read_at(self.file.path, 0, len(head)) != head

    def _start_again(self) -> bool:
        """Returns to the beginning of the file; False while its first lines are not complete."""
        size = len(self._first)
        first = read_at(self.file.path, 0, 2 * LINE_BYTES_MAX).split(b"\n")[:-1][:size]
        if len(first) < size:
            return False
        known = max(self._num_lines, self._num_known) if self._continues(self._first, first) else 0
        self.file.offset = self._num_lines = 0
        self._num_known = known
        self._rest, self._skipping, self._first = b"", False, []
        return True

    def _complete(self, chunk: bytes) -> list[bytes]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if self._skipping and lines:
            lines[0], self._skipping = b"", False
        if len(self._rest) > LINE_BYTES_MAX:
            if not self._skipping:
                number = self._num_lines + len(lines) + 1
                self._notes.add(f"{self.file.path}:{number}: the line exceeds {LINE_BYTES_MAX:,} bytes and was skipped")
            self._rest, self._skipping = b"", True
        before, self._num_lines = self._num_lines, self._num_lines + len(lines)
        if len(self._first) < 2:
            self._first += lines[: 2 - len(self._first)]
        self.restarted = before == 0 and bool(lines)
        self.first_number = before + 1
        if before >= self._num_known:
            return lines
        # Blank lines keep the numbers of the others.
        known = min(self._num_known - before, len(lines))
        kept = 1 if before == 0 else 0
        return lines[:kept] + [b""] * (known - kept) + lines[known:]


class LineLog:
    """Base of the readers of text logs, which consist of lines and have no configuration."""

    def __init__(self, path: Path, continues: Callable[[list[bytes], list[bytes]], bool]) -> None:
        """`continues` as in `LineReader`."""
        self._path = path
        self._notes = DamageNotes()
        self._lines = LineReader(path, self._notes, continues)

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

"""What the training process printed, as lines for the journal.

Reads the log file as it grows. The file keeps every byte; the journal gets lines that a person can read: undecodable
bytes replaced, a progress bar reduced to what it last showed, long lines and floods of lines cut and said so.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

LINE_CHARS_MAX = 2_000
LINES_MAX = 200
"""Lines handed out a call; training that prints more is not to fill the journal."""
READ_BYTES = 1 << 20
RECENT_LINES = 8
_PARTIAL_BYTES_MAX = 1 << 16


class LogTail:
    """Reads the lines of a log file from its present end on."""

    def __init__(self, path: Path) -> None:
        """Creates the file where there is none. Raises `OSError`."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._name = path.name
        self._offset = os.fstat(self._fd).st_size
        self._partial = b""
        self.recent: deque[str] = deque(maxlen=RECENT_LINES)
        """The newest lines that are not blank, for the reason of a failure."""

    def read(self, *, final: bool = False) -> list[str]:
        """Lines printed since the last call. `final` takes a last line without its end, too.

        Where the process prints faster than this reads, what lies between is left out and counted in bytes.
        """
        lines: list[str] = []
        skipped = self._skip_flood()
        if skipped:
            lines.append(f"... {skipped} bytes are left out here; {self._name} has them")
        chunk = os.pread(self._fd, READ_BYTES, self._offset)
        self._offset += len(chunk)
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        if final or len(self._partial) > _PARTIAL_BYTES_MAX:
            whole, self._partial = ([*whole, self._partial] if self._partial else whole), b""
        readable = [text for line in whole if (text := readable_line(line))]
        self.recent.extend(readable)
        lines += readable[:LINES_MAX]
        if len(readable) > LINES_MAX:
            lines.append(f"... {len(readable) - LINES_MAX} lines are left out here; {self._name} has them")
        return lines

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    def _skip_flood(self) -> int:
        """Jumps to the last part of what is unread where that is more than one read takes."""
        behind = os.fstat(self._fd).st_size - self._offset
        if behind <= READ_BYTES:
            return 0
        skipped = behind - READ_BYTES + len(self._partial)
        self._offset += behind - READ_BYTES
        self._partial = b""
        return skipped


def readable_line(line: bytes) -> str:
    """A line of output as text: what stands after the last carriage return, bounded, trailing blanks cut."""
    shown = [part for part in line.rstrip(b"\r").split(b"\r") if part.strip()]
    text = shown[-1].decode("utf-8", "replace").rstrip() if shown else ""
    return text if len(text) <= LINE_CHARS_MAX else text[:LINE_CHARS_MAX] + " ..."

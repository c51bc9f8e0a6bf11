"""Reads the log file of the training processes: as it grows, and its end after a failure.

The file keeps every byte. The journal gets readable lines: undecodable bytes replaced, colours removed, a progress bar
reduced to its last state, long lines and floods of lines cut with a note. The parser of metrics gets every state of a
bar, also of one whose line has not ended yet.
"""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry.safe_open import open_plain

LINE_CHARS_MAX = 2_000
LINES_MAX = 200
"""Lines returned by a call, so that training that prints more does not fill the journal."""
UPDATES_MAX = 2_000
"""Lines that a call leaves for the parser of metrics; of more, the last ones."""
READ_BYTES = 1 << 20
RECENT_LINES = 8
_PARTIAL_BYTES_MAX = 1 << 16
LAST_BYTES = 256 << 10
OUTPUT_BYTES_MAX = 4 << 20
"""Most of the output that is searched for the traceback of a failure."""
LAST_LINES = 20
STACK_LINES_MAX = 200
_ESCAPES = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)")
"""Colours, movements of the cursor and titles of the window."""
_STACK_HEAD = "Fatal Python error: "


class LogTail:
    """Reads the lines that are appended to a log file from now on."""

    def __init__(self, path: Path) -> None:
        """Creates the file if it does not exist. Raises `OSError`."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._name = path.name
        self._offset = os.fstat(self._fd).st_size
        self._partial = b""
        self._num_taken = 0
        """Bytes of the incomplete line that were in `updates` before."""
        self.updates: list[str] = []
        """The newest output for a parser of metrics: whole lines, with carriage returns between the states of a bar."""
        self.recent: deque[str] = deque(maxlen=RECENT_LINES)
        """The newest non-blank lines."""

    def read(self, *, final: bool = False) -> list[str]:
        """The lines printed since the last call. With `final` also a last line without a newline.

        If the process prints faster than this reads, the bytes in between are skipped and counted.
        """
        lines: list[str] = []
        skipped = self._skip_flood()
        if skipped:
            lines.append(f"... {skipped} bytes omitted; see {self._name}")
        chunk = os.pread(self._fd, READ_BYTES, self._offset)
        self._offset += len(chunk)
        before = len(self._partial)
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        if final or len(self._partial) > _PARTIAL_BYTES_MAX:
            whole, self._partial = ([*whole, self._partial] if self._partial else whole), b""
        self._take_updates(whole, is_idle=bool(before) and not chunk)
        readable = [text for line in whole if (text := readable_line(line))]
        self.recent.extend(readable)
        lines += readable[:LINES_MAX]
        if len(readable) > LINES_MAX:
            lines.append(f"... {len(readable) - LINES_MAX} lines omitted; see {self._name}")
        return lines

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    def _take_updates(self, whole: list[bytes], *, is_idle: bool) -> None:
        """Takes the lines, and of an incomplete line the states of a bar; the last state if nothing more is printed.

        A bar begins each state with a carriage return, so the last one is complete only after a while.
        """
        fresh = [line[self._num_taken if number == 0 else 0 :] for number, line in enumerate(whole)]
        start = self._num_taken = 0 if whole else self._num_taken
        end = len(self._partial) if is_idle and b"\r" in self._partial else self._partial.rfind(b"\r")
        if end > start:
            self._num_taken = end
            fresh.append(self._partial[start:end])
        self.updates = [line.decode("utf-8", "replace") for line in fresh[-UPDATES_MAX:] if line.strip()]

    def _skip_flood(self) -> int:
        """If more than one read is pending, jumps to the last part of it; returns the number of skipped bytes."""
        behind = os.fstat(self._fd).st_size - self._offset
        if behind <= READ_BYTES:
            return 0
        skipped = behind - READ_BYTES + len(self._partial)
        self._offset += behind - READ_BYTES
        self._partial, self._num_taken = b"", 0
        return skipped


def readable_line(line: bytes) -> str:
    """A line of output as text: the part after the last carriage return, cut to `LINE_CHARS_MAX`, right-stripped."""
    shown = [part for part in line.rstrip(b"\r").split(b"\r") if part.strip()]
    text = _ESCAPES.sub("", shown[-1].decode("utf-8", "replace")).rstrip() if shown else ""
    return text if len(text) <= LINE_CHARS_MAX else text[:LINE_CHARS_MAX] + " ..."


class LastOutput(NamedTuple):
    """The end of a log file."""

    lines: list[str]
    """The last lines, oldest first, without the stack."""
    stack: str
    """The stack that the interpreter printed when native code ended the process; empty if there is none."""

    @property
    def head(self) -> list[str]:
        """The first line of the stack, which names the error; empty without a stack."""
        return self.stack.splitlines()[:1]


def read_last(log: Path, traceback: str = "") -> LastOutput:
    """Reads the end of a log file, however long the file is. Lines of `traceback` are left out."""
    lines = _last_lines(log)
    head = next((index for index, line in enumerate(lines) if line.startswith(_STACK_HEAD)), len(lines))
    known = {line.strip() for line in traceback.splitlines()}
    printed = [line for line in lines[:head] if line.strip() not in known]
    return LastOutput(printed[-LAST_LINES:], "\n".join(lines[head : head + STACK_LINES_MAX]))


def last_raw_lines(log: Path, size_max: int = OUTPUT_BYTES_MAX) -> list[str]:
    """The last lines of a log file with their indentation; empty if it cannot be read."""
    return _last_lines(log, size_max)


def _last_lines(log: Path, size_max: int = LAST_BYTES) -> list[str]:
    try:
        fd = open_plain(log)
    except OSError:
        return []
    try:
        size = os.fstat(fd).st_size
        chunk = os.pread(fd, size_max, max(0, size - size_max))
    except OSError:
        return []
    finally:
        os.close(fd)
    return [line for raw in chunk.split(b"\n") if (line := readable_line(raw))]

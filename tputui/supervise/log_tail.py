"""Reads the log file of the training processes: as it grows, and its end after a failure.

The file keeps every byte. The journal gets readable lines: undecodable bytes replaced, colours removed, a progress bar
reduced to its last state, long lines and floods of lines cut with a note. Private keys are masked before anything is
cut, since one takes several lines. The parser of metrics gets every state of a bar, also of one whose line has not
ended yet.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from tputui.supervise.native_aborts import interpreter_stack
from tputui.telemetry.files import reading
from tputui.telemetry.redaction import KeyMasker, masked_lines

LINE_CHARS_MAX = 2_000
LINES_MAX = 200
"""Lines returned by a call, so that training that prints more does not fill the journal."""
UPDATES_MAX = 2_000
"""Lines of a part that are left for the parser of metrics; of more, the first and the last ones."""
READ_BYTES = 1 << 20
_PARTIAL_BYTES_MAX = 1 << 16
LAST_BYTES = 256 << 10
OUTPUT_BYTES_MAX = 4 << 20
"""Most of the output that is searched for the traceback of a failure."""
LAST_LINES = 20
_ESCAPES = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)")
"""Colours, movements of the cursor and titles of the window."""


class Printed(NamedTuple):
    """A part of the output for a parser of metrics."""

    text: str
    """A whole line, or states of a bar whose line has not ended, with carriage returns between them."""
    end: int | None = None
    """Byte of the log file at which it ends; None if unknown."""


class LogTail:
    """Reads the lines that are appended to a log file from now on."""

    def __init__(self, path: Path) -> None:
        """Creates the file if it does not exist. Raises `OSError`."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._name = path.name
        self._offset = os.fstat(self._fd).st_size
        self._partial = b""
        self._keys = KeyMasker()
        self._num_taken = 0
        """Bytes of the incomplete line that were in `updates` before."""
        self.updates: list[Printed] = []
        """The newest output for a parser of metrics."""
        self.is_cut = False
        """Whether output was left out of `updates` in the last call, because there was too much."""

    def read(self, *, final: bool = False) -> list[str]:
        """The lines printed since the last call. With `final` also a last line without a newline.

        If the process prints faster than this reads, the bytes between the first and the last part are skipped and
        counted.
        """
        self.updates, self.is_cut = [], False
        behind = os.fstat(self._fd).st_size - self._offset
        if behind <= READ_BYTES:
            return self._take(LINES_MAX, final=final)
        lines = self._take(LINES_MAX // 2, final=False)
        if (skipped := behind - 2 * READ_BYTES) > 0:
            lines.append(f"... {skipped + len(self._partial)} bytes omitted; see {self._name}")
            self._offset += skipped
            self._partial, self._num_taken = b"", 0
            self.is_cut = True
        return lines + self._take(LINES_MAX // 2, final=final)

    def close(self) -> None:
        os.close(self._fd)

    def _take(self, most: int, *, final: bool) -> list[str]:
        """Reads one part; returns its readable lines, at most `most`, with the number of the others."""
        chunk = os.pread(self._fd, READ_BYTES, self._offset)
        before = len(self._partial)
        at = self._offset - before
        self._offset += len(chunk)
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        if final or len(self._partial) > _PARTIAL_BYTES_MAX:
            whole, self._partial = ([*whole, self._partial] if self._partial else whole), b""
        self._take_updates(whole, at, is_idle=bool(before) and not chunk)
        readable = self._keys.masked([text for line in whole if (text := readable_line(line))])
        if len(readable) <= most:
            return readable
        return [*readable[:most], f"... {len(readable) - most} lines omitted; see {self._name}"]

    def _take_updates(self, whole: list[bytes], at: int, *, is_idle: bool) -> None:
        """Takes the lines, the first of which begins at byte `at`, and of an incomplete line the states of a bar; the
        last state if nothing more is printed.

        A bar begins each state with a carriage return, so the last one is complete only after a while.
        """
        fresh = []
        for number, line in enumerate(whole):
            fresh.append((line[self._num_taken if number == 0 else 0 :], at + len(line)))
            at += len(line) + 1
        start = self._num_taken = 0 if whole else self._num_taken
        end = len(self._partial) if is_idle and b"\r" in self._partial else self._partial.rfind(b"\r")
        if end > start:
            self._num_taken = end
            fresh.append((self._partial[start:end], at + end))
        if len(fresh) > UPDATES_MAX:
            self.is_cut = True
            fresh = fresh[: UPDATES_MAX // 2] + fresh[-UPDATES_MAX // 2 :]
        self.updates += [Printed(line.decode("utf-8", "replace"), end) for line, end in fresh if line.strip()]


def readable_line(line: bytes) -> str:
    """A line of output as text: the part after the last carriage return, cut to `LINE_CHARS_MAX`, right-stripped."""
    text = _last_state(line)
    return text if len(text) <= LINE_CHARS_MAX else text[:LINE_CHARS_MAX] + " ..."


def _both_ends(line: bytes) -> str:
    """Like `readable_line`, but of a long line also its end, where a traceback may begin."""
    text = _last_state(line)
    half = LINE_CHARS_MAX // 2
    return text if len(text) <= LINE_CHARS_MAX else f"{text[:half]} ... {text[-half:]}"


def _last_state(line: bytes) -> str:
    shown = [part for part in line.rstrip(b"\r").split(b"\r") if part.strip()]
    return _ESCAPES.sub("", shown[-1].decode("utf-8", "replace")).rstrip() if shown else ""


class LastOutput(NamedTuple):
    lines: list[str]
    """The last lines, oldest first, without the stack."""
    stack: str
    """The stack that the interpreter printed when native code ended the process; empty if there is none."""

    @property
    def head(self) -> list[str]:
        """The first line of the stack, which names the error; empty without a stack."""
        return self.stack.splitlines()[:1]


def read_last(log: Path, traceback: str = "") -> LastOutput:
    """Reads the end of a log file, however long the file is, with secrets masked. Lines of `traceback` are left out."""
    lines = _last_lines(log)
    head, stack = interpreter_stack(lines)
    traceback_lines = {line.strip() for line in traceback.splitlines()}
    printed = [line for line in lines[:head] if line.strip() not in traceback_lines]
    return LastOutput(printed[-LAST_LINES:], "\n".join(stack))


def last_raw_lines(log: Path, size_max: int = OUTPUT_BYTES_MAX, *, start: int = 0, end: int | None = None) -> list[str]:
    """The last lines of a log file, or of its bytes from `start` to `end`, with their indentation and with secrets
    masked; empty if it cannot be read."""
    return _last_lines(log, size_max, start, end)


def _last_lines(log: Path, size_max: int = LAST_BYTES, start: int = 0, end: int | None = None) -> list[str]:
    try:
        with reading(log) as fd:
            size = os.fstat(fd).st_size
            end = size if end is None else min(end, size)
            begin = max(start, end - size_max)
            chunk = os.pread(fd, max(0, end - begin), begin)
    except OSError:
        return []
    return masked_lines([line for raw in chunk.split(b"\n") if (line := _both_ends(raw))])

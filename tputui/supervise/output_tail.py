"""What the training processes printed last: the lines before an end, and the Python stack of an end in native code.

Reads the end of the log file alone, however long it is. All processes of a run print into one file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tputui.supervise.log_tail import readable_line
from tputui.telemetry.safe_open import open_plain

READ_BYTES = 256 << 10
LINES_KEPT = 20
STACK_LINES_MAX = 200
_STACK_HEAD = "Fatal Python error: "


class OutputTail(NamedTuple):
    """The end of a log."""

    lines: list[str]
    """The last lines before the end, oldest first."""
    stack: str
    """The stack that the interpreter printed when native code ended the process; empty where it printed none."""

    @property
    def head(self) -> list[str]:
        """The first line of that stack, which names the error."""
        return self.stack.splitlines()[:1]


def read(log: Path, traceback: str = "") -> OutputTail:
    """The last words in a log; lines of `traceback`, which stands elsewhere, are left out."""
    lines = _tail(log)
    head = next((place for place, line in enumerate(lines) if line.startswith(_STACK_HEAD)), len(lines))
    told = {line.strip() for line in traceback.splitlines()}
    printed = [line for line in lines[:head] if line.strip() not in told]
    return OutputTail(printed[-LINES_KEPT:], "\n".join(lines[head : head + STACK_LINES_MAX]))


def _tail(log: Path) -> list[str]:
    try:
        fd = open_plain(log)
    except OSError:
        return []
    try:
        size = os.fstat(fd).st_size
        chunk = os.pread(fd, READ_BYTES, max(0, size - READ_BYTES))
    except OSError:
        return []
    finally:
        os.close(fd)
    return [line for raw in chunk.split(b"\n") if (line := readable_line(raw))]

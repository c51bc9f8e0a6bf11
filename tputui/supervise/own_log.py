"""The supervisor's own log: lines with the time on its standard error, which is a file in the run directory."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

from tputui.telemetry.redaction import masked_text


def log_line(text: str) -> None:
    """Writes a line with its secrets masked; a full disk must not end the supervisor."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {masked_text(text)}\n")
        sys.stderr.flush()


class ProblemLog:
    """Writes a line when a problem appears, changes or is over, instead of each time it is found."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._problem: str | None = None

    def update(self, problem: str | None, over: str = "") -> None:
        """The problem that there is now, as a sentence; `over` is written if there is none any more."""
        if problem == self._problem:
            return
        self._problem = problem
        if line := problem or over:
            self._write(line)

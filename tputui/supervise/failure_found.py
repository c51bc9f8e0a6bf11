"""`PrintedFailure`: a failure that was found in the lines that a command printed."""

from __future__ import annotations

from typing import NamedTuple

from tputui.telemetry.events import CodeFrame, FailureKind
from tputui.telemetry.process_end import is_lost_peer


class PrintedFailure(NamedTuple):
    """A failure that a command printed: an exception, the end of a process in native code, or the error of a command
    line."""

    error: str
    """Type of the exception, the signal, or what else names the error."""
    message: str
    """First line of its message."""
    kind: FailureKind
    frames: list[CodeFrame]
    """Its calls, newest first."""
    text: str
    """What was printed of it; empty for one line."""
    first_line: int
    """Index of its first line in the output."""
    is_of_launcher: bool = False
    """Whether a launcher reports it of a process that it started."""

    @property
    def is_following(self) -> bool:
        """Whether it says that another rank of the program is gone."""
        return self.kind != "refused" and is_lost_peer(self.message)

"""The lines of a log that were seen so far: a snapshot brings the newest ones, and those before stay. Pure.

A replay that goes back takes lines away again. Lines never change their order here, so that nothing in sight jumps.
"""

from __future__ import annotations

from collections.abc import Sequence

from tputui.state.snapshot import LogLine

LINES_MAX = 10_000
"""Most lines that are kept; the oldest give way."""


class LogStore:
    """Lines, oldest first."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.num_cut = 0
        """Lines that gave way at the front since the beginning."""
        self.generation = 0
        """Changes where lines that stood before the newest ones are not where they were."""

    def take(self, newest: Sequence[LogLine]) -> None:
        """Takes the newest lines of a snapshot."""
        place = self._place_of(newest[0]) if newest else None
        if place is None or place + len(newest) < len(self.lines):
            self.generation += 1
        if place is None:
            self.lines = list(newest)
            return
        del self.lines[place:]
        self.lines.extend(newest)
        self._cut()

    def take_older(self, older: Sequence[LogLine]) -> int:
        """Puts lines before the first one; returns how many came to stand there."""
        first = self.lines[0] if self.lines else None
        before = list(older)
        if first in before:
            before = before[: before.index(first)]
        elif first is not None:
            before = [line for line in before if line.t < first.t]
        before = before[-max(LINES_MAX - len(self.lines), 0) :] if len(self.lines) < LINES_MAX else []
        self.lines[:0] = before
        self.generation += 1
        return len(before)

    def _place_of(self, line: LogLine) -> int | None:
        """Where a line stands, looked for from the end."""
        for place in range(len(self.lines) - 1, -1, -1):
            if self.lines[place] == line:
                return place
        return None

    def _cut(self) -> None:
        over = len(self.lines) - LINES_MAX
        if over > 0:
            del self.lines[:over]
            self.num_cut += over

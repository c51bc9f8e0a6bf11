"""What a chart works out of each segment of a series, kept from frame to frame. Pure but for what it remembers.

A run adds a segment at a time, and a step more moves few segments to another dot column, so most of a frame was worked
out for the one before. Must not know of axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tputui.model.snapshot import Segment
from tputui.ui.draw.columns import Column, merge


class SegmentMemory:
    """Figures of the segments that were followed last."""

    def __init__(self) -> None:
        self.middles: list[float] = []
        """The step in the middle of each."""
        self.bounds: list[float] = []
        """The least and the greatest value of each, one after the other; NaN where it has none."""
        self._segments: Sequence[Segment] = ()
        self._columns: dict[tuple[int, int], Column] = {}
        """By the numbers of the first segment in it and of the first one after it."""

    def follow(self, segments: Sequence[Segment]) -> SegmentMemory:
        """Takes in which segments are in sight now; gives itself."""
        same = _same(self._segments, segments)
        fresh = segments[same:]
        # New lists, since what was drawn before may still be asked where its segments lie.
        self.middles = self.middles[:same] + [(one.first_step + one.last_step) / 2 for one in fresh]
        self.bounds = self.bounds[: 2 * same] + [bound for one in fresh for bound in (one.min, one.max)]
        self._columns = {place: column for place, column in self._columns.items() if place[1] <= same}
        self._segments = segments
        return self

    def columns(self, dots: Sequence[int]) -> list[Column]:
        """The columns of the segments whose dot columns are `dots`; those of one stand next to each other."""
        known, kept, found = self._columns, dict[tuple[int, int], Column](), list[Column]()
        start, count = 0, len(dots)
        while start < count:
            x, stop = dots[start], start + 1
            while stop < count and dots[stop] == x:
                stop += 1
            column = known.get((start, stop))
            if column is None or column.x != x:
                column = merge(x, self._segments[start:stop])
            kept[start, stop] = column
            found.append(column)
            start = stop
        self._columns = kept
        return found


def _same(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """How many segments stand at the start of both."""
    same = min(len(before), len(after))
    while same and before[same - 1] is not after[same - 1]:
        same -= 1
    # As a rule those before are the same objects too, which is quickly said; where they are not, all are taken anew.
    return same if before[:same] == after[:same] else 0

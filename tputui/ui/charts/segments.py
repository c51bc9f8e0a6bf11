"""What a chart works out of each segment of a series, kept from frame to frame. Pure but for what it remembers.

A run adds a segment at a time, and a step more moves few segments to another dot column, so most of a frame was worked
out for the one before. Must not know of axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tputui.state.chart_data import Segment
from tputui.ui.charts.columns import ChartColumn, runs_of


class SegmentMemory:
    """Figures of the segments that were followed last, a list each: of many together no object has to be asked."""

    def __init__(self) -> None:
        self.middles: list[float] = []
        """The step in the middle of each."""
        self.lows: list[float] = []
        """The least value of each; infinite where no value is finite, as is the greatest."""
        self.highs: list[float] = []
        self._means: list[float] = []
        self._counts: list[int] = []
        self._bads: list[int] = []
        self._segments: Sequence[Segment] = ()
        self._columns: dict[tuple[int, int], ChartColumn] = {}
        """By the numbers of the first segment in it and of the first one after it."""

    def follow(self, segments: Sequence[Segment]) -> SegmentMemory:
        """Takes in which segments are in sight now; gives itself."""
        same = _same(self._segments, segments)
        if same < max(len(segments), len(self._segments)):
            self._columns = {place: column for place, column in self._columns.items() if place[1] <= same}
            self._take(same, segments[same:])
        self._segments = segments
        return self

    def columns(self, dots: Sequence[int]) -> list[ChartColumn]:
        """The columns of the segments whose dot columns are `dots`; those of one stand next to each other."""
        known, kept, found = self._columns, dict[tuple[int, int], ChartColumn](), list[ChartColumn]()
        for x, start, stop in runs_of(dots):
            column = known.get((start, stop))
            if column is None or column.x != x:
                column = self._merged(x, start, stop)
            kept[start, stop] = column
            found.append(column)
        self._columns = kept
        return found

    def _take(self, same: int, fresh: Sequence[Segment]) -> None:
        # New lists, since what was drawn before may still be asked where its segments lie.
        self.middles = self.middles[:same] + [(one.first_step + one.last_step) / 2 for one in fresh]
        self.lows = self.lows[:same] + [one.min if one.num_values else math.inf for one in fresh]
        self.highs = self.highs[:same] + [one.max if one.num_values else -math.inf for one in fresh]
        self._means = self._means[:same] + [one.mean if one.num_values else 0.0 for one in fresh]
        self._counts = self._counts[:same] + [one.num_values for one in fresh]
        self._bads = self._bads[:same] + [one.num_bad for one in fresh]

    def _merged(self, x: int, start: int, stop: int) -> ChartColumn:
        """The column that `draw.columns.gather` makes of these segments."""
        counts = self._counts[start:stop]
        count, bad = sum(counts), sum(self._bads[start:stop])
        if not count:
            return ChartColumn(x, math.nan, math.nan, math.nan, bad)
        # Shares instead of a sum: values near the end of the floats must not overflow.
        total = sum([mean * (one / count) for mean, one in zip(self._means[start:stop], counts, strict=True)])
        return ChartColumn(x, total, min(self.lows[start:stop]), max(self.highs[start:stop]), bad)


def _same(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """How many segments stand at the start of both."""
    same = min(len(before), len(after))
    while same and before[same - 1] is not after[same - 1]:
        same -= 1
    # As a rule those before are the same objects too, which is quickly said; where they are not, all are taken anew.
    return same if before[:same] == after[:same] else 0

"""Segments of a series, merged into one column for each column of dots, and their moving average.

A column contains the minimum, the maximum and the number of NaN and inf of all of its segments, so a spike of one step
on one core is never lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tputui.state.chart_data import Segment


class ChartColumn(NamedTuple):
    """What a dot column of a chart shows."""

    x: int
    """Dot column, from 0 at the left."""
    mean: float
    """Mean of the finite values; NaN where there is none."""
    low: float
    high: float
    bad: int
    """Values that are not finite."""


def columns(segments: Sequence[Segment], first_step: int, last_step: int, width: int) -> list[ChartColumn]:
    """The columns that hold a segment, from left to right; a segment, in order, counts at the middle of its steps."""
    if width < 1:
        return []
    seen = [segment for segment in segments if segment.last_step >= first_step and segment.first_step <= last_step]
    if last_step <= first_step:
        return gather(seen, [width // 2] * len(seen))
    dots_per_step = (width - 1) / (last_step - first_step)
    middles = [((segment.first_step + segment.last_step) / 2 - first_step) * dots_per_step for segment in seen]
    return gather(seen, [min(max(round(middle), 0), width - 1) for middle in middles])


def gather(segments: Sequence[Segment], places: Sequence[int]) -> list[ChartColumn]:
    """The columns of segments whose dot columns are `places`; those of one column stand next to each other."""
    return [_merge(x, segments[start:stop]) for x, start, stop in runs_of(places)]


def runs_of(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Neighbours of one place: the place, the number of the first of them, and of the first one after them."""
    start, count = 0, len(places)
    while start < count:
        x, stop = places[start], start + 1
        while stop < count and places[stop] == x:
            stop += 1
        yield x, start, stop
        start = stop


def _merge(x: int, group: Sequence[Segment]) -> ChartColumn:
    """The column at dot column `x` that holds these segments, one at least."""
    if len(group) == 1:
        only = group[0]
        return ChartColumn(x, only.mean, only.min, only.max, only.num_bad)
    total, count, bad, low, high = 0.0, 0, 0, math.inf, -math.inf
    for segment in group:
        bad += segment.num_bad
        if segment.num_values:
            count += segment.num_values
            low, high = min(low, segment.min), max(high, segment.max)
    if not count:
        return ChartColumn(x, math.nan, math.nan, math.nan, bad)
    # Shares instead of a sum: values near the end of the floats must not overflow.
    for segment in group:
        if segment.num_values:
            total += segment.mean * (segment.num_values / count)
    return ChartColumn(x, total, low, high, bad)


WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
"""How much of a step's average is what came before: the levels that a person may choose. 0 is no smoothing."""


def smoothed(segments: Sequence[Segment], weight: float) -> list[float]:
    """The moving average at every segment, in order; NaN until the first finite mean.

    A segment of several steps counts for that many steps, so the curve looks the same however coarse the series is.
    The start is not drawn towards zero. A segment without a finite value leaves the average as it was.
    """
    found: list[float] = []
    average, trust = 0.0, 0.0
    for segment in segments:
        mean = segment.mean
        if mean - mean == 0.0:
            kept = weight ** (segment.last_step - segment.first_step + 1)
            average = kept * average + (1.0 - kept) * mean
            trust = kept * trust + (1.0 - kept)
        found.append(average / trust if trust else math.nan)
    return found


class ColumnCache:
    """Figures of the segments that were followed last, a list each: of many together no object has to be asked."""

    def __init__(self) -> None:
        self.middles: list[float] = []
        """The step in the middle of each."""
        self.lows: list[float] = []
        """The least value of each; infinite where no value is finite, as is the greatest."""
        self.highs: list[float] = []
        self._means: list[float] = []
        self._counts: list[int] = []
        self._bad_counts: list[int] = []
        self._segments: Sequence[Segment] = ()
        self._columns: dict[tuple[int, int], ChartColumn] = {}
        """By the numbers of the first segment in it and of the first one after it."""

    def follow(self, segments: Sequence[Segment]) -> ColumnCache:
        """Takes in which segments are in sight now; gives itself."""
        same = _same(self._segments, segments)
        if same < max(len(segments), len(self._segments)):
            self._columns = {place: column for place, column in self._columns.items() if place[1] <= same}
            self._take(same, segments[same:])
        self._segments = segments
        return self

    def merged(self, dots: Sequence[int]) -> list[ChartColumn]:
        """The columns of the segments whose dot columns are `dots`; those of one column are neighbours."""
        known, kept, found = self._columns, dict[tuple[int, int], ChartColumn](), list[ChartColumn]()
        for x, start, stop in runs_of(dots):
            column = known.get((start, stop))
            if column is None or column.x != x:
                column = self._merge(x, start, stop)
            kept[start, stop] = column
            found.append(column)
        self._columns = kept
        return found

    def _take(self, same: int, new: Sequence[Segment]) -> None:
        # New lists, since an x axis of the previous frame may still read the old ones.
        self.middles = self.middles[:same] + [(one.first_step + one.last_step) / 2 for one in new]
        self.lows = self.lows[:same] + [one.min if one.num_values else math.inf for one in new]
        self.highs = self.highs[:same] + [one.max if one.num_values else -math.inf for one in new]
        self._means = self._means[:same] + [one.mean if one.num_values else 0.0 for one in new]
        self._counts = self._counts[:same] + [one.num_values for one in new]
        self._bad_counts = self._bad_counts[:same] + [one.num_bad for one in new]

    def _merge(self, x: int, start: int, stop: int) -> ChartColumn:
        """The same as `gather` for these segments, from lists instead of objects, which is faster."""
        counts = self._counts[start:stop]
        count, bad = sum(counts), sum(self._bad_counts[start:stop])
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

"""Segments of a series, merged into one column for each column of dots, and their moving average.

A column contains the minimum, the maximum and the number of NaN and inf of all of its segments, so a spike of one step
on one core is never lost.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from tputui.state.chart_data import CoreColumn, Segment
from tputui.ui.charts.scale import SortedValues


class ChartColumn(NamedTuple):
    """The values shown in a dot column of a chart."""

    x: int
    """Dot column, from 0 at the left."""
    mean: float
    """Mean of the finite values; NaN if there are none."""
    low: float
    high: float
    bad: int
    """Number of NaN and infinite values."""


def columns(segments: Sequence[Segment], first_step: int, last_step: int, width: int) -> list[ChartColumn]:
    """The columns that contain segments, from left to right. A segment is placed at the middle of its steps."""
    if width < 1:
        return []
    seen = [segment for segment in segments if segment.last_step >= first_step and segment.first_step <= last_step]
    if last_step <= first_step:
        return gather(seen, [width // 2] * len(seen))
    dots_per_step = (width - 1) / (last_step - first_step)
    middles = [((segment.first_step + segment.last_step) / 2 - first_step) * dots_per_step for segment in seen]
    return gather(seen, [min(max(round(middle), 0), width - 1) for middle in middles])


def gather(segments: Sequence[Segment], dots: Sequence[int]) -> list[ChartColumn]:
    """Merge segments by dot column; `dots` contains the column of each segment, in ascending order."""
    return [_merge(x, segments[start:stop]) for x, start, stop in runs_of(dots)]


def runs_of(values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal values: the value, the index of the first one, and the index after the last one."""
    start, count = 0, len(values)
    while start < count:
        x, stop = values[start], start + 1
        while stop < count and values[stop] == x:
            stop += 1
        yield x, start, stop
        start = stop


def _merge(x: int, group: Sequence[Segment]) -> ChartColumn:
    """Merge at least one segment into the column at dot column `x`."""
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
    # Weighted shares instead of a sum: values near the largest float must not overflow.
    for segment in group:
        if segment.num_values:
            total += segment.mean * (segment.num_values / count)
    return ChartColumn(x, total, low, high, bad)


WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
"""Weights of the previous average, as selectable by the user. 0 is no smoothing."""


def smoothed(segments: Sequence[Segment], weight: float) -> list[float]:
    """The moving average at every segment, in order; NaN until the first finite mean.

    A segment of several steps counts for that many steps, so the curve looks the same however coarse the series is.
    The average is bias-corrected. A segment without a finite value does not change it.
    """
    averages: list[float] = []
    average, total_weight = 0.0, 0.0
    for segment in segments:
        mean = segment.mean
        if mean - mean == 0.0:
            decay = weight ** (segment.last_step - segment.first_step + 1)
            average = decay * average + (1.0 - decay) * mean
            total_weight = decay * total_weight + (1.0 - decay)
        averages.append(average / total_weight if total_weight else math.nan)
    return averages


T = TypeVar("T")


class ReducedColumns(Generic[T]):
    """Caches what each column of losses per core is reduced to; a run adds one column at a time."""

    def __init__(self) -> None:
        self._key: object = None
        self._cache: dict[int, tuple[CoreColumn, T]] = {}

    def of(self, columns: Sequence[CoreColumn], key: object, reduce: Callable[[CoreColumn], T]) -> list[T]:
        """What `reduce` returns for each column. It is called again for all if the `key` is another one."""
        cached = self._cache if key == self._key else {}
        reduced: dict[int, tuple[CoreColumn, T]] = {}
        for column in columns:
            reduced[id(column)] = cached.get(id(column)) or (column, reduce(column))
        self._key, self._cache = key, reduced
        return [reduced[id(column)][1] for column in columns]


class ColumnCache:
    """The values of the current segments as lists, which are faster to merge than segment objects."""

    def __init__(self) -> None:
        self.middles: list[float] = []
        """The middle step of each segment."""
        self.lows: list[float] = []
        """The minimum of each segment; inf if no value is finite (-inf in `highs`)."""
        self.highs: list[float] = []
        self.sorted_lows = SortedValues()
        """The minima, weighted by the steps of their segments."""
        self.sorted_highs = SortedValues()
        self.bad_counts: list[int] = []
        """The number of NaN and infinite values of each segment."""
        self._means: list[float] = []
        self._counts: list[int] = []
        self._segments: Sequence[Segment] = ()
        self._columns: dict[tuple[int, int], ChartColumn] = {}
        """By the index of the first segment in it and the index after the last one."""

    def follow(self, segments: Sequence[Segment]) -> ColumnCache:
        """Switch to the currently visible segments. Returns `self`."""
        same = _same(self._segments, segments)
        if same < max(len(segments), len(self._segments)):
            self._columns = {place: column for place, column in self._columns.items() if place[1] <= same}
            self._take(same, segments[same:])
        self._segments = segments
        return self

    def newest(self, share: float) -> tuple[int, list[float]]:
        """The first segment of the newest `share` of the steps, and the means from there on; NaN if no value is
        finite."""
        if not self.middles:
            return 0, []
        first, last = self.middles[0], self.middles[-1]
        start = bisect.bisect_left(self.middles, last - (last - first) * share)
        means = zip(self._means[start:], self._counts[start:], strict=True)
        return start, [mean if count else math.nan for mean, count in means]

    def merged(self, dots: Sequence[int]) -> list[ChartColumn]:
        """Merge the segments by dot column; `dots` contains the column of each segment, in ascending order."""
        cached, used, merged = self._columns, dict[tuple[int, int], ChartColumn](), list[ChartColumn]()
        for x, start, stop in runs_of(dots):
            column = cached.get((start, stop))
            if column is None or column.x != x:
                column = self._merge(x, start, stop)
            used[start, stop] = column
            merged.append(column)
        self._columns = used
        return merged

    def _take(self, same: int, new: Sequence[Segment]) -> None:
        # New lists, since an x axis of the previous frame may still read the old ones.
        self.middles = self.middles[:same] + [(segment.first_step + segment.last_step) / 2 for segment in new]
        self.lows = self.lows[:same] + [segment.min if segment.num_values else math.inf for segment in new]
        self.highs = self.highs[:same] + [segment.max if segment.num_values else -math.inf for segment in new]
        steps = [segment.last_step - segment.first_step + 1 for segment in new]
        self.sorted_lows.follow(same, list(zip(self.lows[same:], steps, strict=True)))
        self.sorted_highs.follow(same, list(zip(self.highs[same:], steps, strict=True)))
        self._means = self._means[:same] + [segment.mean if segment.num_values else 0.0 for segment in new]
        self._counts = self._counts[:same] + [segment.num_values for segment in new]
        self.bad_counts = self.bad_counts[:same] + [segment.num_bad for segment in new]

    def _merge(self, x: int, start: int, stop: int) -> ChartColumn:
        """The same as `gather` for these segments, from lists instead of objects, which is faster."""
        counts = self._counts[start:stop]
        count, bad = sum(counts), sum(self.bad_counts[start:stop])
        if not count:
            return ChartColumn(x, math.nan, math.nan, math.nan, bad)
        # Weighted shares instead of a sum: values near the largest float must not overflow.
        total = sum(
            [mean * (num_values / count) for mean, num_values in zip(self._means[start:stop], counts, strict=True)]
        )
        return ChartColumn(x, total, min(self.lows[start:stop]), max(self.highs[start:stop]), bad)


def _same(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """Length of the common prefix."""
    same = min(len(before), len(after))
    while same and before[same - 1] is not after[same - 1]:
        same -= 1
    # Usually all earlier segments are identical objects, which compares quickly; otherwise everything is rebuilt.
    return same if before[:same] == after[:same] else 0

"""Segments of a series -> columns of a chart. Pure.

However many segments fall into a column, the least of their minima, the greatest of their maxima and every value that
is not finite are in it, so that a spike of one step on one core is never lost.
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

"""Segments of a series -> columns of a chart. Pure.

However many segments fall into a column, the least of their minima, the greatest of their maxima and every value that
is not finite are in it, so that a spike of one step on one core is never lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui.model.snapshot import Segment


class Column(NamedTuple):
    """What a dot column of a chart shows."""

    x: int
    """Dot column, from 0 at the left."""
    mean: float
    """Mean of the finite values; NaN where there is none."""
    low: float
    high: float
    bad: int
    """Values that are not finite."""


def columns(segments: Sequence[Segment], first_step: int, last_step: int, width: int) -> list[Column]:
    """The columns that hold a segment, from left to right; a segment counts at the middle of its steps."""
    if width < 1:
        return []
    groups: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.last_step >= first_step and segment.first_step <= last_step:
            groups.setdefault(column_of(segment, first_step, last_step, width), []).append(segment)
    return [_merge(x, groups[x]) for x in sorted(groups)]


def column_of(segment: Segment, first_step: int, last_step: int, width: int) -> int:
    """Dot column of the middle of a segment."""
    middle = (segment.first_step + segment.last_step) / 2
    share = (middle - first_step) / (last_step - first_step) if last_step > first_step else 0.5
    return min(max(round(share * (width - 1)), 0), width - 1)


def _merge(x: int, group: Sequence[Segment]) -> Column:
    finite = [segment for segment in group if segment.num_values]
    bad = sum(segment.num_bad for segment in group)
    if not finite:
        return Column(x, math.nan, math.nan, math.nan, bad)
    count = sum(segment.num_values for segment in finite)
    mean = math.fsum(segment.mean * (segment.num_values / count) for segment in finite)
    return Column(x, mean, min(segment.min for segment in finite), max(segment.max for segment in finite), bad)

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
    """The columns that hold a segment, from left to right; a segment, in order, counts at the middle of its steps."""
    if width < 1:
        return []
    dots_per_step = (width - 1) / (last_step - first_step) if last_step > first_step else 0.0
    found: list[Column] = []
    group: list[Segment] = []
    x = -1
    for segment in segments:
        if segment.last_step < first_step or segment.first_step > last_step:
            continue
        middle = (segment.first_step + segment.last_step) / 2
        its_x = min(max(round((middle - first_step) * dots_per_step), 0), width - 1) if dots_per_step else width // 2
        if its_x != x and group:
            found.append(_merge(x, group))
            group = []
        x = its_x
        group.append(segment)
    return [*found, _merge(x, group)] if group else found


def _merge(x: int, group: Sequence[Segment]) -> Column:
    if len(group) == 1:
        only = group[0]
        return Column(x, only.mean, only.min, only.max, only.num_bad)
    bad = sum([segment.num_bad for segment in group])
    finite = [segment for segment in group if segment.num_values]
    if not finite:
        return Column(x, math.nan, math.nan, math.nan, bad)
    count = sum([segment.num_values for segment in finite])
    mean = math.fsum([segment.mean * (segment.num_values / count) for segment in finite])
    return Column(x, mean, min([s.min for s in finite]), max([s.max for s in finite]), bad)

"""Spikes: single values far from the loss of the other cores at about the same steps.

Columns of cores contain means, which hide a spike of one step; their extremes name its core and step. Spikes are named,
unlike outliers, without being judged: in a healthy run single losses scatter widely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn, CoreExtreme, Segment

_FAR = 4.0
"""A spike is farther from the median core than this multiple of the usual extreme of a column."""
_FAR_FROM_MEDIAN = 1.0
"""A spike is at least this share of the median core away from it."""


class Spike(NamedTuple):
    """The loss of one core in one step."""

    extreme: CoreExtreme
    distance: float
    """From the median core of its column, as a share of that median."""


class Extremes(NamedTuple):
    """The extremes of the visible columns."""

    highest: CoreExtreme | None = None
    spikes: Sequence[Spike] = ()
    """The farthest first."""
    farthest: Spike | None = None
    """The highest value of a column that is farthest from the median core, whether it is a spike or not."""


class _Older(NamedTuple):
    """The extremes of all visible columns but the newest."""

    steps: tuple[int, int] | None
    highest: CoreExtreme | None
    spikes: list[Spike]
    farthest: Spike | None
    above: float
    """A higher value farther than this from the median core is a spike."""
    below: float


class SpikeFinder:
    """Finds the extremes of the visible columns. Of a run that goes on only the newest column changes."""

    def __init__(self) -> None:
        self._columns: tuple[CoreColumn, CoreColumn, int] | None = None
        self._older = _Older(None, None, [], None, 0.0, 0.0)

    def find(
        self, columns: Sequence[CoreColumn], median_of: Callable[[CoreColumn], float], steps: tuple[int, int] | None
    ) -> Extremes:
        """The extremes in the first to the last of `steps`, by default all; `median_of` is NaN if it is not known."""
        if not columns:
            return Extremes()
        *older, newest = columns
        known = self._columns
        ends = (older[0], older[-1], len(older)) if older else None
        same = (
            known is not None
            and ends is not None
            and all(a is b for a, b in zip(known[:2], ends[:2], strict=True))
            and known[2] == ends[2]
        )
        if not same or self._older.steps != steps:
            self._older, complete = _older(older, median_of, steps)
            self._columns = ends if complete else None
        _, highest, spikes, farthest, above, below = self._older
        for spike in _ends_of(newest, median_of(newest), steps):
            is_high = spike.extreme is newest.highest
            if highest is None or spike.extreme.value > highest.value:
                highest = spike.extreme
            if is_high and (farthest is None or spike.distance > farthest.distance):
                farthest = spike
            if abs(spike.distance) > (above if is_high else below):
                spikes = [*spikes, spike]
        return Extremes(highest, sorted(spikes, key=lambda spike: -abs(spike.distance)), farthest)


def _older(
    columns: Sequence[CoreColumn], median_of: Callable[[CoreColumn], float], steps: tuple[int, int] | None
) -> tuple[_Older, bool]:
    """The extremes of columns, and whether all their medians are known."""
    medians = [median_of(column) for column in columns]
    found = [
        (spike, spike.extreme is column.highest)
        for column, median in zip(columns, medians, strict=True)
        for spike in _ends_of(column, median, steps)
    ]
    limits = [_limit([spike for spike, high in found if high is side]) for side in (True, False)]
    spikes = [spike for spike, high in found if abs(spike.distance) > limits[not high]]
    highest = max((spike.extreme for spike, _ in found), key=lambda extreme: extreme.value, default=None)
    farthest = max((spike for spike, high in found if high), key=lambda spike: spike.distance, default=None)
    return _Older(steps, highest, spikes, farthest, *limits), all(median == median for median in medians)


def _ends_of(column: CoreColumn, median: float, steps: tuple[int, int] | None) -> list[Spike]:
    """The highest and the lowest value of a column, as far as they are known and within `steps`."""
    return [
        Spike(extreme, (extreme.value - median) / (abs(median) or 1.0))
        for extreme in (column.highest, column.lowest)
        if extreme is not None and median == median and (steps is None or steps[0] <= extreme.step <= steps[1])
    ]


def _limit(ends: Sequence[Spike]) -> float:
    sizes = sorted(abs(spike.distance) for spike in ends)
    return max(_FAR_FROM_MEDIAN, _FAR * sizes[len(sizes) // 2] if sizes else math.inf)


def named_extremes(extremes: Extremes, segments: Sequence[Segment]) -> list[str]:
    """`spike 0.83 core 3 step 1,204` if there is one, and `max 2.31 core 1 step 1`: the highest visible value."""
    top = max((segment for segment in segments if segment.num_values), key=lambda segment: segment.max, default=None)
    if top is None:
        return []
    # The columns of the cores and the segments of the curve have different steps, so an extreme may be known only in
    # one of them.
    named = extremes.highest if extremes.highest is not None and extremes.highest.value == top.max else None
    spike = extremes.spikes[0].extreme if extremes.spikes else None
    found = [f"spike {_where(spike)}"] if spike is not None and spike != named else []
    if named is not None:
        return [*found, f"max {_where(named)}"]
    steps = f"step {top.first_step:,}"
    if top.last_step > top.first_step:
        steps = f"steps {top.first_step:,} to {top.last_step:,}"
    return [*found, f"max {fmt.number(top.max)} {steps}"]


def _where(extreme: CoreExtreme) -> str:
    return f"{fmt.number(extreme.value)} core {extreme.core} step {extreme.step:,}"


def max_in(column: CoreColumn) -> str:
    """`max 0.83 core 3 step 1,204`; empty if the highest value of a column is not known."""
    if column.highest is None:
        return ""
    if column.first_step == column.last_step:
        return f"max {fmt.number(column.highest.value)} core {column.highest.core}"
    return f"max {_where(column.highest)}"

"""Spikes: single values far from the loss of the other cores at about the same steps.

Columns of cores contain means, which hide a spike of one step; their extremes name its core and step. Spikes are named,
unlike outliers, without being judged: in a healthy run single losses scatter widely.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn, CoreValue, Segment

_FAR = 4.0
"""A spike is farther from the median core than this multiple of the usual extreme of a column."""
_FAR_FROM_MEDIAN = 1.0
"""A spike is at least this share of the median core away from it."""


class Spike(NamedTuple):
    """The loss of one core in one step, the highest or the lowest of its column."""

    extreme: CoreValue
    distance: float
    """From the median core of its column, as a share of that median."""
    is_high: bool


class Extremes(NamedTuple):
    """The extremes of the visible columns."""

    highest: CoreValue | None = None
    spikes: Sequence[Spike] = ()
    """The farthest first."""
    farthest: Spike | None = None
    """The highest value of a column that is farthest from the median core, whether it is a spike or not."""


class _Lasting:
    """The extremes of columns that no longer change, to which later ones can be added."""

    def __init__(self, steps: tuple[int, int] | None) -> None:
        self.steps = steps
        self.first: CoreColumn | None = None
        self.last: CoreColumn | None = None
        self.num_columns = 0
        self.ends: list[Spike] = []
        self.sizes: tuple[list[float], list[float]] = ([], [])
        """Distances of the ends without sign, sorted: of the lowest and of the highest values."""
        self.highest: Spike | None = None
        self.farthest: Spike | None = None
        self.complete = True
        """Whether the medians of all columns were known."""

    def begins(self, columns: Sequence[CoreColumn], steps: tuple[int, int] | None) -> bool:
        """Whether these are the first of `columns`, within the same steps."""
        if not self.complete or self.steps != steps or len(columns) < self.num_columns:
            return False
        return not self.num_columns or (columns[0] is self.first and columns[self.num_columns - 1] is self.last)

    def add(self, column: CoreColumn, median: float) -> None:
        """Adds the next column."""
        self.first, self.last = self.first or column, column
        self.num_columns += 1
        self.complete = self.complete and median == median
        for end in _ends_of(column, median, self.steps):
            self.ends.append(end)
            bisect.insort(self.sizes[end.is_high], abs(end.distance))
            self.highest, self.farthest = _highest([self.highest, end]), _farthest([self.farthest, end])


class SpikeFinder:
    """Finds the extremes of the visible columns.

    Of a run that goes on only the newest two columns change: one of sampled steps, and the newest step after it.
    """

    def __init__(self) -> None:
        self._lasting = _Lasting(None)

    def find(
        self, columns: Sequence[CoreColumn], median_of: Callable[[CoreColumn], float], steps: tuple[int, int] | None
    ) -> Extremes:
        """The extremes in the first to the last of `steps`, by default all; `median_of` is NaN if it is not known."""
        if not columns:
            return Extremes()
        if not self._lasting.begins(columns[:-2], steps):
            self._lasting = _Lasting(steps)
        lasting = self._lasting
        for column in columns[lasting.num_columns : -2]:
            lasting.add(column, median_of(column))
        before = _ends_of(columns[-2], median_of(columns[-2]), steps) if len(columns) > 1 else []
        newest = _ends_of(columns[-1], median_of(columns[-1]), steps)
        # The newest column is left out, so that it does not hide its own spike.
        limits = [_limit([*lasting.sizes[side], *_sizes(before, is_high=side)]) for side in (False, True)]
        has_spikes = any(sizes and sizes[-1] > most for sizes, most in zip(lasting.sizes, limits, strict=True))
        older = lasting.ends if has_spikes else ()
        spikes = [end for end in (*older, *before, *newest) if abs(end.distance) > limits[end.is_high]]
        highest = _highest([lasting.highest, *before, *newest])
        farthest = _farthest([lasting.farthest, *before, *newest])
        return Extremes(
            highest.extreme if highest is not None else None,
            sorted(spikes, key=lambda spike: -abs(spike.distance)),
            farthest,
        )


def _ends_of(column: CoreColumn, median: float, steps: tuple[int, int] | None) -> list[Spike]:
    """The highest and the lowest value of a column, as far as they are known and within `steps`."""
    return [
        Spike(extreme, (extreme.value - median) / (abs(median) or 1.0), extreme is column.highest)
        for extreme in (column.highest, column.lowest)
        if extreme is not None and median == median and (steps is None or steps[0] <= extreme.step <= steps[1])
    ]


def _sizes(ends: Sequence[Spike], *, is_high: bool) -> list[float]:
    return [abs(end.distance) for end in ends if end.is_high is is_high]


def _limit(sizes: list[float]) -> float:
    """A value farther than this from the median core is a spike; `sizes` are the distances of all values."""
    sizes.sort()
    return max(_FAR_FROM_MEDIAN, _FAR * sizes[len(sizes) // 2] if sizes else math.inf)


def _highest(ends: Iterable[Spike | None]) -> Spike | None:
    return max(filter(None, ends), key=lambda end: end.extreme.value, default=None)


def _farthest(ends: Iterable[Spike | None]) -> Spike | None:
    """The highest value of a column that is farthest from the median core."""
    return max((end for end in ends if end and end.is_high), key=lambda end: end.distance, default=None)


def named_extremes(extremes: Extremes, segments: Sequence[Segment], highs: list[float]) -> list[str]:
    """`spike 0.83 core 3 step 1,204` if there is one, and `max 2.31 core 1 step 1`: the highest visible value.

    `highs`: the maximum of each segment; -inf if no value is finite.
    """
    highest = max(highs, default=-math.inf)
    if highest == -math.inf:
        return []
    top = segments[highs.index(highest)]
    # The columns of the cores and the segments of the curve have different steps, so an extreme may be known only in
    # one of them.
    named = extremes.highest if extremes.highest is not None and extremes.highest.value == top.max else None
    spike = extremes.spikes[0].extreme if extremes.spikes else None
    spikes = [f"spike {_where(spike)}"] if spike is not None and spike != named else []
    if named is not None:
        return [*spikes, f"max {_where(named)}"]
    steps = f"step {top.first_step:,}"
    if top.last_step > top.first_step:
        steps = f"steps {top.first_step:,} to {top.last_step:,}"
    return [*spikes, f"max {fmt.number(top.max)} {steps}"]


def _where(extreme: CoreValue) -> str:
    return f"{fmt.number(extreme.value)} core {extreme.core} step {extreme.step:,}"


def max_in(column: CoreColumn) -> str:
    """`max 0.83 core 3 step 1,204`; empty if the highest value of a column is not known."""
    if column.highest is None:
        return ""
    if column.first_step == column.last_step:
        return f"max {fmt.number(column.highest.value)} core {column.highest.core}"
    return f"max {_where(column.highest)}"

"""A column of the losses per core: the means of consecutive steps and their extremes; columns can be joined.

An extreme can refer to the event that states it, and is located in its values only when that is needed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from tputui.state.state_struct import AtLeastOne, Count, CountArray, FloatArray, Record
from tputui.telemetry import float_blocks
from tputui.telemetry.events import Int, StepsRecorded


class Extreme(Record, frozen=True):
    """A highest or lowest finite value."""

    value: float
    step: Int
    """The step of the value; the first step of its event if it is not located."""
    column: Count | None
    """Its index in the row of the event; None if it is not located yet, or cannot be."""


class Unlocated(Extreme, frozen=True):
    """An extreme that an event states, whose step and column are not known before the event is decoded."""

    event: StepsRecorded


class CoreSeries(Record, frozen=True):
    """Steps `first` to `last`, of which the values of `rows` were added."""

    first: Int
    last: Int
    rows: AtLeastOne
    means: FloatArray
    """[cores] mean of the finite values; NaN if there is none."""
    counts: CountArray | None
    """[cores] number of finite values; None if all are finite, so `rows`."""
    sampled_bad: bool
    """Whether a report with NaN or infinite values was added."""
    middle: float
    """Mean of the step numbers that were added."""
    high: Extreme | None = None
    """The highest finite value of all steps, also of those left out; None if there is none."""
    low: Extreme | None = None

    @property
    def bad(self) -> list[int]:
        """Columns of the cores with a NaN or infinite value."""
        return [] if self.counts is None else [core for core, n in enumerate(self.counts) if n < self.rows]


def reduced(first: int, rows: int, values: Sequence[float], num_cores: int, *, extremes: bool) -> CoreSeries:
    """A column of `rows` steps from their values, [rows * cores]; with or without its extremes."""
    last, middle = first + rows - 1, first + (rows - 1) / 2
    means = float_blocks.float32(
        [sum(values[core::num_cores]) / rows for core in range(num_cores)] if rows > 1 else values
    )
    if math.isfinite(sum(means)):
        high, low = _extremes(first, values, values, num_cores) if extremes else (None, None)
        return CoreSeries(first, last, rows, means, None, False, middle, high, low)
    counts = array("Q", [rows]) * num_cores
    for core, mean in enumerate(means):
        if not math.isfinite(mean):
            finite = [value for value in values[core::num_cores] if math.isfinite(value)]
            counts[core] = len(finite)
            means[core] = math.fsum(finite) / len(finite) if finite else math.nan
    finite = list(filter(math.isfinite, values)) if extremes else []
    high, low = _extremes(first, finite, values, num_cores) if finite else (None, None)
    return CoreSeries(first, last, rows, means, counts, True, middle, high, low)


def _extremes(first: int, finite: Sequence[float], values: Sequence[float], num_cores: int) -> tuple[Extreme, Extreme]:
    """The highest and the lowest of the `finite` values, located in all `values` from step `first` on."""
    high, low = max(finite), min(finite)
    high_row, high_column = divmod(values.index(high), num_cores)
    low_row, low_column = divmod(values.index(low), num_cores)
    return Extreme(high, first + high_row, high_column), Extreme(low, first + low_row, low_column)


def located(value: float, first: int, values: Sequence[float], num_cores: int) -> Extreme:
    """The extreme at its first occurrence in values from step `first` on, if it is there."""
    try:
        # As float32, like the values: a script may have stated a double.
        row, column = divmod(values.index(array("f", [value])[0]), num_cores)
    except (ValueError, OverflowError):
        return Extreme(value, first, 0 if len(values) == 1 else None)
    return Extreme(value, first + row, column)


def resolved(extreme: Extreme | None) -> Extreme | None:
    """The extreme, located in its event if it was not yet."""
    if not isinstance(extreme, Unlocated):
        return extreme
    event = extreme.event
    if event.n == event.cores == 1:
        return Extreme(extreme.value, event.first, 0)
    try:
        index = float_blocks.find(event.block, event.n * event.cores, extreme.value)
    except float_blocks.BlockError:
        index = None
    if index is None:
        return Extreme(extreme.value, extreme.step, None)
    row, column = divmod(index, event.cores)
    return Extreme(extreme.value, event.first + row, column)


def is_located(column: CoreSeries) -> bool:
    """Whether the step and the core of both extremes are known, as far as they can be."""
    return not (isinstance(column.high, Unlocated) or isinstance(column.low, Unlocated))


def joined(left: CoreSeries, right: CoreSeries) -> CoreSeries:
    """Joins two columns: means over all values of both, and the extremes of both."""
    rows = left.rows + right.rows
    first, last = min(left.first, right.first), max(left.last, right.last)
    share = right.rows / rows
    middle = left.middle + (right.middle - left.middle) * share
    high, low = left.high, left.low
    if high is None or (right.high is not None and right.high.value > high.value):
        high = right.high
    if low is None or (right.low is not None and right.low.value < low.value):
        low = right.low
    if left.counts is None and right.counts is None:
        means = array("f", [a + (b - a) * share for a, b in zip(left.means, right.means, strict=True)])
        return CoreSeries(first, last, rows, means, None, False, middle, high, low)
    lefts, rights = _counts(left), _counts(right)
    counts = array("Q", [a + b for a, b in zip(lefts, rights, strict=True)])
    sides = zip(left.means, lefts, right.means, rights, counts, strict=True)
    means = array("f", [_mean(a, n, b, m, total) for a, n, b, m, total in sides])
    return CoreSeries(first, last, rows, means, counts, True, middle, high, low)


def _counts(column: CoreSeries) -> array[int]:
    return column.counts if column.counts is not None else array("Q", [column.rows]) * len(column.means)


def _mean(left: float, num_left: int, right: float, num_right: int, total: int) -> float:
    if not num_left:
        return right
    return left if not num_right else (left * num_left + right * num_right) / total

"""`Curve`: the values of a metric over the steps, its level and its noise, which is estimated from the curve itself.

Pure, in units of the metric. Curves of metrics whose higher values are better are turned around, so that all fall.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median
from typing import NamedTuple

from tputui.state.metric_series import MetricPoint

OF_NORMAL = 1.4826
"""Standard deviation of normal values over their median absolute deviation (Hampel 1974)."""
BLOCKS = 24
"""Blocks that a long curve is cut into, whose means show drifts that neighbouring values do not."""


class Level(NamedTuple):
    """The mean of a part of a curve."""

    mean: float
    error: float
    """Standard error of the mean."""

    def is_below(self, other: Level, deviations: float) -> bool:
        """Whether it is lower by more than so many standard errors of the difference."""
        return other.mean - self.mean > deviations * math.hypot(self.error, other.error)


def noise_around_trend(values: Sequence[float]) -> float:
    """Standard deviation of at least 3 values around their local trend: the median absolute second difference.

    Gasser, Sroka and Jennen-Steinmetz (1986); the median in place of the mean makes it robust against jumps.
    """
    bends = [
        abs(before - 2 * value + after) for before, value, after in zip(values, values[1:], values[2:], strict=False)
    ]
    return OF_NORMAL * median(bends) / math.sqrt(6)


@dataclass(eq=False)
class Curve:
    """Finite values in order of steps; lower ones are better."""

    steps: Sequence[int]
    values: Sequence[float]
    ends_badly: bool = False
    """Whether the newest value is NaN or infinite."""
    sign: float = 1.0
    """-1 if the values were turned around."""

    @classmethod
    def of(cls, points: Sequence[MetricPoint], *, falls: bool = True) -> Curve:
        """The curve of points in order of steps."""
        finite = [point for point in points if math.isfinite(point.value)]
        sign = 1.0 if falls else -1.0
        values = [sign * point.value for point in finite]
        ends_badly = bool(points) and not math.isfinite(points[-1].value)
        return cls([point.step for point in finite], values, ends_badly, sign)

    def part(self, first: int, last: int) -> Curve:
        """The values at the places from `first` up to but without `last`."""
        return Curve(self.steps[first:last], self.values[first:last], sign=self.sign)

    def coarse(self, number: int = 160) -> Curve:
        """The means of at most so many blocks, each at its last step."""
        count = len(self.values)
        if count <= number:
            return self
        ends = [count * (at + 1) // number - 1 for at in range(number)]
        return replace(self, steps=[self.steps[at] for at in ends], values=self.block_means(number))

    def since(self, step: float) -> Curve:
        """The values from a step on."""
        return self.part(bisect_left(self.steps, step), len(self.values))

    def values_between(self, first_step: float, last_step: float) -> Sequence[float]:
        """Those of the steps from one to another, both included."""
        return self.values[bisect_left(self.steps, first_step) : bisect_right(self.steps, last_step)]

    def share(self, begin: float, end: float) -> Curve:
        """The values between two shares of its number of values, 0 to 1; at least one."""
        count = len(self.values)
        first = min(int(begin * count), max(count - 1, 0))
        return self.part(first, max(math.ceil(end * count), first + 1))

    @cached_property
    def noise(self) -> float:
        """Standard deviation of a value around the local trend; at least the rounding of printed values."""
        values = self.values
        if len(values) < 3:
            return 0.0
        steps = sorted(abs(after - before) for before, after in itertools.pairwise(values))
        rounding = next((step for step in steps if step > 1e-9 * abs(values[0])), 0.0) / math.sqrt(12)
        return max(noise_around_trend(values), min(rounding, steps[len(steps) // 2]))

    @cached_property
    def level(self) -> Level:
        """The mean with its standard error, which neighbouring values underestimate if the curve wanders: the greater
        one of independent values and of the means of blocks."""
        values = self.values
        mean, count = fmean(values), len(values)
        error = self.noise / math.sqrt(count)
        if count >= 2 * BLOCKS // 3:
            means = self.block_means(8)
            error = max(error, Curve(range(8), means).noise / math.sqrt(8))
        return Level(mean, error)

    def smooth(self) -> list[float]:
        """The median of each value and its neighbours."""
        return [median(self.values[max(at - 1, 0) : at + 2]) for at in range(len(self.values))]

    def block_means(self, number: int = BLOCKS) -> list[float]:
        """Means of as many blocks of about equal length; the values themselves if there are fewer."""
        count = len(self.values)
        if count <= number:
            return list(self.values)
        edges = [count * index // number for index in range(number + 1)]
        return [fmean(self.values[first:last]) for first, last in itertools.pairwise(edges)]

    @property
    def is_flat(self) -> bool:
        """Whether its blocks scatter about one mean like independent values, without a trend.

        The variance of the block means may be at most three times that of independent values (about the 99.9 % point
        of F with 11 degrees of freedom), and the halves may differ by at most three standard errors.
        """
        count = len(self.values)
        if count < 8:
            return False
        number = min(12, count // 2)
        means = self.block_means(number)
        center, per_block = fmean(means), count / number
        spread = sum((mean - center) ** 2 for mean in means) / (number - 1)
        expected = self.noise**2 / per_block
        half = number // 2
        first, second = fmean(means[:half]), fmean(means[half:])
        apart = 3 * self.noise * math.sqrt(4 / count)
        tiny = (1e-6 * abs(center)) ** 2
        return spread <= 3 * expected + tiny and abs(first - second) <= apart + math.sqrt(tiny)

    def shown(self, value: float) -> float:
        """A value of the curve as the run reported it."""
        return self.sign * value

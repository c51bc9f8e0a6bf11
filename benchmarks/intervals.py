"""How certain the median of measured ratios is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_Z = 1.96
"""Standard deviations of a normal distribution that hold 95 %."""


class Interval(NamedTuple):
    """A median with the interval that contains the true one with a probability of 95 %."""

    low: float
    median: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """The interval between order statistics, which assumes nothing about the distribution; all of the range for fewer
    than six values. Raises `ValueError` without any."""
    ranked = sorted(values)
    count = len(ranked)
    if not count:
        raise ValueError("there are no values")
    below = max(0, math.floor((count - _Z * math.sqrt(count)) / 2))
    middle = (ranked[(count - 1) // 2] + ranked[count // 2]) / 2
    return Interval(ranked[below], middle, ranked[count - 1 - below])

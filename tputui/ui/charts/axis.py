"""Axes: round ticks, and how a value becomes a place. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_ROOMS = 32
"""Into so many parts the next power of two is divided by the lengths that have room."""


class Scale(NamedTuple):
    """Values from `low` to `high` along a linear or logarithmic axis."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where the value lies: 0 at `low`, 1 at `high`; a value that a log axis cannot hold lies at 0."""
        low, high = self.low, self.high
        if self.log:
            if value <= 0:
                return 0.0
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5


def scale_for(values: Sequence[float], log: bool = False) -> Scale | None:
    """The scale that holds every finite value, every positive one if `log`; None where there is none."""
    # The sum of many values is a quick proof that all of them are finite.
    held = values if math.isfinite(sum(values)) else list(filter(math.isfinite, values))
    if log:
        held = [value for value in held if value > 0]
    if not held:
        return None
    low, high = min(held), max(held)
    if low == high:
        pad = abs(low) * 0.05 or 0.5
        return Scale(low / 1.05, high * 1.05, log) if log else Scale(low - pad, high + pad)
    return Scale(low, high, log)


def with_room(length: float) -> float:
    """A length that holds this one and stays as it is until that has grown by a few per cent: 1/32 to 1/16 of it."""
    if not 0.0 < length < math.inf:
        return length
    share, power = math.frexp(length)
    return math.ldexp(math.ceil(share * _ROOMS) / _ROOMS, power)


def ticks(scale: Scale, count: int) -> list[float]:
    """At most `count` round values within the scale, least first."""
    if count < 1 or not scale.high > scale.low:
        return []
    if scale.log and scale.high / scale.low >= 10:
        return _powers(scale, count)
    step = _round_step((scale.high - scale.low) / count)
    found = _multiples(scale, step)
    while len(found) > count:
        step = _round_step(step * 1.01)
        found = _multiples(scale, step)
    return found


def step_ticks(first: int, last: int, count: int) -> list[int]:
    """At most `count` round steps from `first` to `last`; `first` and `last` themselves where nothing is round."""
    if last <= first:
        return [first]
    found = [int(value) for value in ticks(Scale(first, last), count) if value == int(value)]
    return found or [first, last][:count]


def _round_step(least: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (1, 2, 5):
        if factor * power >= least * (1 - 1e-9):
            return factor * power
    return 10 * power


def _multiples(scale: Scale, step: float) -> list[float]:
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)] if last - first < 1000 else []


def _powers(scale: Scale, count: int) -> list[float]:
    first, last = math.ceil(math.log10(scale.low) - 1e-9), math.floor(math.log10(scale.high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / count))
    return [10.0**power for power in range(first, last + 1, stride)]


def label(value: float, step: float) -> str:
    """A tick as text, with the digits that tell it from the next tick `step` away."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = 0 if step >= 1 else min(6, math.ceil(-math.log10(step) - 1e-9))
    return f"{value:.{digits}f}"

"""Scales of a y axis: from values to positions, with evenly spaced round ticks."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tputui.state.chart_data import share_between
from tputui.ui.render.braille import DOTS_Y

_LEAST_ROWS = 4
_THREE_TICKS_FROM = 8
_ROUND = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0)
"""Round distances of two ticks, times a power of ten."""
_SIMILAR = 1.06
"""Of dot distances up to this multiple of the smallest, the one with the most ticks is used."""
_EXACT = 1e-9
_LEAST_SHARE = 1e-5
_WASTE = 1.6
"""A scale is not widened by more than this: uneven ticks are better then."""
_LARGEST = 1e306
"""Beyond it, the distances of round values, or the round values themselves, may be greater than the greatest float."""


class Scale(NamedTuple):
    """Values from `low` to `high` along a linear or logarithmic axis."""

    low: float
    high: float
    log: bool = False
    tick: float = 0.0
    """Distance of two ticks, on a logarithmic axis in powers of ten; 0 if not decided yet."""

    def place(self, value: float) -> float:
        """Position of a value: 0 at `low`, 1 at `high`; on a log axis 0 for values <= 0."""
        low, high = self.low, self.high
        if self.log:
            if value <= 0:
                return 0.0
            low, high, value = math.log(low), math.log(high), math.log(value)
        return share_between(value, low, high)


def scale_for(values: Sequence[float], log: bool = False) -> Scale | None:
    """The scale of all finite values, if `log` of the positive ones; None if there are none."""
    # A finite sum proves quickly that all values are finite.
    finite = values if math.isfinite(sum(values)) else list(filter(math.isfinite, values))
    if log:
        finite = [value for value in finite if value > 0]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    if low == high:
        pad = abs(low) * 0.05 or 0.5
        low, high = (low / 1.05, high * 1.05) if log else (low - pad, high + pad)
        return Scale(max(low, -sys.float_info.max), min(high, sys.float_info.max), log)
    return Scale(low, high, log)


@functools.lru_cache(maxsize=64)
def fitted(scale: Scale, rows: int) -> Scale:
    """The scale widened so that ticks at round values are evenly spaced on a chart `rows` cells high.

    The distance of two ticks becomes a whole number of cells. On a logarithmic axis of less than a decade the round
    values are not evenly spaced, so it stays as it is.
    """
    low, high = (math.log10(scale.low), math.log10(scale.high)) if scale.log else (scale.low, scale.high)
    steps = rows * DOTS_Y - 1
    if _is_huge(scale.low, scale.high):
        return scale
    least = (high - low) / steps
    if rows < _LEAST_ROWS or not 0.0 < least < math.inf or (scale.log and high - low < 1):
        return scale
    if high - low < _LEAST_SHARE * max(abs(low), abs(high)):
        # Rounding errors are not small compared with a dot.
        return scale
    num_ticks = 2 if rows < _THREE_TICKS_FROM or (scale.log and high - low < 3) else 3
    best: tuple[int, Scale] | None = None
    for dot, tick, cells in _spacings(least, rows):
        if dot > (_WASTE if best is None else _SIMILAR) * least:
            break
        bottom = math.floor(low / dot + _EXACT) * dot
        top = bottom + steps * dot
        if top < high - _EXACT * dot or (scale.log and tick % 1) or (best is not None and cells >= best[0]):
            continue
        # Room that is left is shared by both ends, but an axis of positive values does not go below 0.
        spare = int((top - high) / dot + _EXACT) // 2
        bottom -= (min(spare, int(bottom / dot + _EXACT)) if low >= 0 and not scale.log else spare) * dot
        top = bottom + steps * dot
        if math.floor(top / tick + _EXACT) - math.ceil(bottom / tick - _EXACT) + 1 >= num_ticks:
            if best is None:
                least = dot
            best = (cells, Scale(bottom, top, scale.log, tick))
    if best is None:
        return scale
    found = best[1]
    if scale.log:
        found = found._replace(low=10.0**found.low or scale.low, high=10.0 ** min(found.high, 308.0))
    # Rounding must not leave out the ends.
    return found._replace(low=min(found.low, scale.low), high=max(found.high, scale.high))


def _spacings(least: float, rows: int) -> Iterator[tuple[float, float, int]]:
    """Distances of two dots from `least` up, with the distance of two ticks, which is round, in values and in cells."""
    table = _spacing_table(rows)
    power = math.floor(math.log10(least))
    start = bisect.bisect_left(table, (least / 10.0**power * (1 - _EXACT),))
    for each in itertools.islice(itertools.cycle(range(len(table))), start, start + 2 * len(table)):
        if each == 0 and start:
            power += 1
        start = start or 1
        _, tick, cells = table[each]
        tick *= 10.0**power
        yield tick / (cells * DOTS_Y), tick, cells


@functools.lru_cache(maxsize=16)
def _spacing_table(rows: int) -> list[tuple[float, float, int]]:
    """The distances of two dots from 1 to 10 at which ticks are round, in ascending order, with those of the ticks."""
    found: dict[float, tuple[float, float, int]] = {}
    for cells in range(2, rows):
        for factor in _ROUND:
            dot = factor / (cells * DOTS_Y)
            power = 10.0 ** -math.floor(math.log10(dot))
            # Of equal distances the one with the most ticks stays.
            found.setdefault(round(dot * power, 9), (dot * power, factor * power, cells))
    return sorted(found.values())


def ticks(scale: Scale, count: int) -> list[float]:
    """At most `count` round values within the scale, in ascending order."""
    if count < 1 or not scale.high > scale.low:
        return []
    if _is_huge(scale.low, scale.high):
        return [0.0] if scale.low <= 0.0 <= scale.high else []
    if scale.log and scale.high / scale.low >= 10:
        return _powers(scale, count)
    step = _round_step((scale.high - scale.low) / count)
    found = _multiples(scale, step)
    while len(found) > count:
        step = _round_step(step * 1.01)
        found = _multiples(scale, step)
    return found


def _is_huge(low: float, high: float) -> bool:
    return not max(abs(low), abs(high)) <= _LARGEST


def step_ticks(first: int, last: int, count: int) -> list[int]:
    """At most `count` round steps from `first` to `last`; `first` and `last` if no step is round."""
    if last <= first:
        return [first]
    found = [int(value) for value in ticks(Scale(first, last), count) if value == int(value)]
    return found or [first, last][:count]


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `least`."""
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


_SMALL, _LARGE = 1e-4, 1e6
"""Ticks below and from here on have exponents."""


def label(value: float, step: float, largest: float) -> str:
    """A tick as text, with enough digits to distinguish it from the next tick, `step` away.

    `largest` is the largest size of a tick of the axis; it decides whether all of them have exponents.
    """
    if value == 0:
        return "0"
    if not _SMALL <= largest < _LARGE:
        # All ticks have the exponent of the largest.
        power = 10.0 ** math.floor(math.log10(largest) + _EXACT)
        return f"{value / power:.{_decimals(step / power)}f}e{math.floor(math.log10(power) + 0.5):+03d}"
    return f"{value:.{_decimals(step)}f}"


def _decimals(step: float) -> int:
    """Number of decimals of the multiples of a round step, at most 6."""
    return next((count for count in range(6) if math.isclose(step * 10**count, round(step * 10**count))), 6)


def dot_row(value: float, scale: Scale, dots: int) -> int:
    """Dot row of a value, 0 at the top."""
    return round((1.0 - scale.place(value)) * (dots - 1))


def y_ticks(scale: Scale, count: int) -> list[float]:
    """The round values of a y axis: at most `count` if the scale has not decided their distance."""
    if not scale.tick:
        return ticks(scale, count)
    if not scale.log:
        return _multiples(scale, scale.tick)
    powers = _multiples(Scale(math.log10(scale.low), math.log10(scale.high)), scale.tick)
    return [10.0**power for power in powers]


def _power_texts(values: Sequence[float]) -> list[str]:
    """Ticks of a logarithmic axis in one form, with exponents if any of them needs one."""
    has_exponents = not all(_SMALL <= abs(value) < _LARGE for value in values)
    digits = 0 if all(math.isclose(value, float(f"{value:.0e}")) for value in values) else 2
    return [f"{value:.{digits}e}" if has_exponents else f"{value:.3g}" for value in values]


def y_labels(scale: Scale | None, rows: int) -> dict[int, str]:
    """Ticks of the y axis by row."""
    if scale is None:
        return {}
    round_values = y_ticks(scale, max(2, rows // 2))
    values = round_values or [scale.low, scale.high]
    step = min((b - a for a, b in itertools.pairwise(values)), default=abs(values[0]) or 1.0)
    if not round_values:
        texts = [_short(value) for value in values]
    elif scale.log:
        texts = _power_texts(values)
    else:
        texts = [label(value, step, max(map(abs, values))) for value in values]
    return {dot_row(value, scale, rows * DOTS_Y) // DOTS_Y: text for value, text in zip(values, texts, strict=True)}


def end_labels(scale: Scale | None, rows: int) -> dict[int, str]:
    """Both ends of the y axis by row, for charts with few rows."""
    return {0: _short(scale.high), rows - 1: _short(scale.low)} if scale is not None and rows > 1 else {}


def _short(value: float) -> str:
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"

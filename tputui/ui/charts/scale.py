"""Scales of a y axis: from values to positions, with evenly spaced round ticks.

Values outside the range are arrows at the edge of the chart, and are counted.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from tputui import formatting as fmt
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
    most = _WASTE * least
    for dot, tick, cells in _spacings(least, rows):
        if dot > most:
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
                most = min(most, _SIMILAR * dot)
            best = (cells, Scale(bottom, top, scale.log, tick))
    if best is None:
        return scale
    chosen = best[1]
    if scale.log:
        chosen = chosen._replace(low=10.0**chosen.low or scale.low, high=10.0 ** min(chosen.high, 308.0))
    # Rounding must not leave out the ends.
    return chosen._replace(low=min(chosen.low, scale.low), high=max(chosen.high, scale.high))


def _spacings(least: float, rows: int) -> Iterator[tuple[float, float, int]]:
    """Distances of two dots from `least` up, with the distance of two ticks, which is round, in values and in cells."""
    table = _spacing_table(rows)
    power = math.floor(math.log10(least))
    start = bisect.bisect_left(table, (least / 10.0**power * (1 - _EXACT),))
    for index in itertools.islice(itertools.cycle(range(len(table))), start, start + 2 * len(table)):
        if index == 0 and start:
            power += 1
        start = start or 1
        _, tick, cells = table[index]
        tick *= 10.0**power
        yield tick / (cells * DOTS_Y), tick, cells


@functools.lru_cache(maxsize=16)
def _spacing_table(rows: int) -> list[tuple[float, float, int]]:
    """The distances of two dots from 1 to 10 at which ticks are round, in ascending order, with those of the ticks."""
    spacings: dict[float, tuple[float, float, int]] = {}
    for cells in range(2, rows):
        for factor in _ROUND:
            dot = factor / (cells * DOTS_Y)
            power = 10.0 ** -math.floor(math.log10(dot))
            # Of equal distances the one with the most ticks stays.
            spacings.setdefault(round(dot * power, 9), (dot * power, factor * power, cells))
    return sorted(spacings.values())


def ticks(scale: Scale, count: int) -> list[float]:
    """At most `count` round values within the scale, in ascending order."""
    if count < 1 or not scale.high > scale.low:
        return []
    if _is_huge(scale.low, scale.high):
        return [0.0] if scale.low <= 0.0 <= scale.high else []
    if scale.log and scale.high / scale.low >= 10:
        return _powers(scale, count)
    step = _round_step((scale.high - scale.low) / count)
    multiples = _multiples(scale, step)
    while len(multiples) > count:
        step = _round_step(step * 1.01)
        multiples = _multiples(scale, step)
    return multiples


def _is_huge(low: float, high: float) -> bool:
    return not max(abs(low), abs(high)) <= _LARGEST


def step_ticks(first: int, last: int, count: int) -> list[int]:
    """At most `count` round steps from `first` to `last`; `first` and `last` if no step is round."""
    if last <= first:
        return [first]
    steps = [int(value) for value in ticks(Scale(first, last), count) if value == int(value)]
    return steps or [first, last][:count]


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


RangeKind = Literal["robust", "full", "manual"]
RANGES: tuple[RangeKind, ...] = get_args(RangeKind)

LEAST_RANGE = 1e-300
"""Least difference of the limits: a chart divides by it."""
TAIL = 0.01
"""Share of the steps above p99, and below p1."""
_SLACK = 0.5
"""A side with values farther than this multiple of p1 to p99 outside of it has outliers."""
_RESORT_FROM = 64
"""Number of changed values from which sorting all of them is faster."""

_KEPT_MAX = 50
"""Maximum number of metrics whose y range is kept."""
_NAME_CHARS_MAX = 200
"""Maximum length of the name of such a metric; names come from runs, and the file of settings is small."""

_LOWEST = 0.1
_DECADES = 100.0

_Weighted = tuple[float, int]
"""A value, and the number of steps that it is from."""


class YRange(NamedTuple):
    """The chosen range; the limits are those of a manual one."""

    kind: RangeKind = "robust"
    low: float = 0.0
    high: float = 1.0

    @property
    def next_kind(self) -> RangeKind:
        """The next kind of range."""
        return RANGES[(RANGES.index(self.kind) + 1) % len(RANGES)]

    @property
    def is_sound(self) -> bool:
        """Whether a chart can have these limits."""
        return math.isfinite(self.high - self.low) and self.high - self.low >= LEAST_RANGE

    @property
    def note(self) -> str:
        """The chosen range, if it is not the default."""
        if self.kind == "manual":
            return f"y {self.low:.6g} to {self.high:.6g}"
        return "y full" if self.kind == "full" else ""


def limits_text(low: float, high: float) -> str:
    """Two limits as the user types them."""
    return f"{low:.4g} {high:.4g}"


def limits_of(text: str) -> tuple[float, float]:
    """The limits of a manual range typed by the user. Raises ValueError with a sentence for the user."""
    parts = text.replace(",", " ").split()
    try:
        low, high = map(float, parts)
    except ValueError:
        raise ValueError("type two numbers, the lower limit first: 0 2.5") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("both limits must be finite numbers")
    if not low < high:
        raise ValueError(f"the upper limit must exceed the lower one, {low:.6g}")
    if not math.isfinite(high - low):
        raise ValueError("the limits are too far apart to draw")
    if high - low < LEAST_RANGE:
        raise ValueError("the limits are too close together to draw")
    return low, high


def ranges_of(lines: Iterable[str]) -> Iterable[tuple[str, YRange]]:
    """The y ranges of metrics from lines of text; a line that is not one is left out."""
    for line in lines:
        low, _, after_low = line.partition(" ")
        if low == "full":
            yield after_low, YRange("full")
            continue
        high, _, name = after_low.partition(" ")
        try:
            yield name, YRange("manual", *limits_of(f"{low} {high}"))
        except ValueError:
            continue


def lines_of(ranges: Sequence[tuple[str, YRange]]) -> list[str]:
    """The newest y ranges as lines to be stored: `full accuracy` or `0.5 1.0 accuracy`."""
    kept = [(metric, y) for metric, y in ranges if len(metric) <= _NAME_CHARS_MAX]
    lines = [f"full {metric}" if y.kind == "full" else f"{y.low!r} {y.high!r} {metric}" for metric, y in kept]
    return lines[-_KEPT_MAX:]


def _is_finite(weighted: _Weighted) -> bool:
    return math.isfinite(weighted[0])


class SortedValues:
    """The finite values of a growing list in ascending order, with weights. Only what changed is sorted again."""

    def __init__(self) -> None:
        self._all: list[_Weighted] = []
        self.ranked: list[_Weighted] = []
        """The finite values."""
        self.weight = 0
        """Their total weight."""

    def follow(self, same: int, new: Sequence[_Weighted]) -> None:
        """Replace the values after the first `same` ones."""
        gone = self._all[same:]
        self._all[same:] = new
        if len(gone) + len(new) > _RESORT_FROM:
            self.ranked = sorted(filter(_is_finite, self._all))
            self.weight = sum(weight for _, weight in self.ranked)
            return
        for weighted in filter(_is_finite, gone):
            del self.ranked[bisect.bisect_left(self.ranked, weighted)]
            self.weight -= weighted[1]
        for weighted in filter(_is_finite, new):
            bisect.insort(self.ranked, weighted)
            self.weight += weighted[1]

    def inner(self, *, upper: bool) -> float:
        """p99 if `upper`, else p1: the outermost value with less than the weight of the tail beyond it."""
        tail = self.weight * TAIL
        for value, weight in reversed(self.ranked) if upper else self.ranked:
            tail -= weight
            if tail < 0:
                return value
        return math.nan

    def num_above(self, bound: float) -> int:
        """Number of values above a bound."""
        return len(self.ranked) - bisect.bisect_right(self.ranked, (bound, math.inf))

    def num_between(self, low: float, high: float) -> int:
        """Number of values above `low` and below `high`."""
        return max(bisect.bisect_left(self.ranked, (high, 0)) - bisect.bisect_right(self.ranked, (low, math.inf)), 0)


def robust_scale(lows: SortedValues, highs: SortedValues, always: Iterable[float]) -> Scale | None:
    """The linear scale from p1 of `lows` to p99 of `highs`, on a side without outliers to the last value.

    The finite values of `always` are within the scale.
    """
    if not lows.ranked or not highs.ranked:
        return None
    inner = lows.inner(upper=False), highs.inner(upper=True)
    return _trimmed((lows.ranked[0][0], highs.ranked[-1][0]), inner, always)


def robust_scale_of(values: Sequence[float]) -> Scale | None:
    """The robust scale of a list of values of equal weight; the newest one is within it."""
    ranked = sorted(filter(math.isfinite, values))
    if not ranked:
        return None
    cut = int(len(ranked) * TAIL)
    return _trimmed((ranked[0], ranked[-1]), (ranked[cut], ranked[-1 - cut]), values[-1:])


def _trimmed(ends: tuple[float, float], inner: tuple[float, float], always: Iterable[float]) -> Scale | None:
    """The scale of all values between `ends`, on a side with outliers from or to the `inner` percentile."""
    slack = _SLACK * (inner[1] - inner[0])
    if not 0.0 < slack < math.inf:
        return scale_for(ends)
    inside = list(filter(math.isfinite, always))
    low = ends[0] if inner[0] - ends[0] <= slack else min([inner[0], *inside])
    high = ends[1] if ends[1] - inner[1] <= slack else max([inner[1], *inside])
    return scale_for((low, high))


def joined_scale(scale: Scale | None, other: Scale | None) -> Scale | None:
    """The scale that covers both linear scales."""
    if scale is None or other is None:
        return scale or other
    return Scale(min(scale.low, other.low), max(scale.high, other.high))


def manual_scale(limits: YRange, scale: Scale | None) -> Scale:
    """The scale from limit to limit. On a logarithmic axis, which has no place for 0, a lower limit of 0 or less is
    replaced by the lowest value of the full `scale`."""
    log = scale is not None and scale.log
    low, high = limits.low, limits.high
    if log and low <= 0:
        low = scale.low if scale is not None else low
    return Scale(low, high, log) if high > low else Scale(limits.low, limits.high)


def suggests_log(means: Sequence[float], scale: Scale | None) -> bool:
    """Whether a logarithmic axis would show more than the linear `scale`: the values, in order of steps, span two
    decades and the newest one is in the lowest tenth of the axis."""
    finite = list(filter(math.isfinite, means))
    if scale is None or not finite or finite[-1] <= 0.0:
        return False
    return scale.place(finite[-1]) < _LOWEST and max(finite) >= _DECADES * finite[-1]


def outside_note(above: int, below: int, scale: Scale | None) -> str:
    """`3 values above 2.4, 1 below 0.1`; empty if there are none."""
    if scale is None or not (above or below):
        return ""
    parts = [(above, f"above {scale.high:.3g}"), (below, f"below {scale.low:.3g}")]
    texts = [f"{count:,} {where}" for count, where in parts if count]
    first = above or below
    texts[0] = f"{fmt.counted(first, 'value')} {texts[0].split(' ', 1)[1]}"
    return ", ".join(texts)

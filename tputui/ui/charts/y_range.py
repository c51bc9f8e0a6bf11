"""The range of a y axis: p1 to p99 of the values if there are outliers, all values, or as chosen by the user.

Values outside the range are arrows at the edge of the chart, and are counted.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from tputui import formatting as fmt
from tputui.ui.charts.scale import Scale, scale_for

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
        low, _, rest = line.partition(" ")
        if low == "full":
            yield rest, YRange("full")
            continue
        high, _, name = rest.partition(" ")
        try:
            yield name, YRange("manual", *limits_of(f"{low} {high}"))
        except ValueError:
            continue


def lines_of(ranges: Sequence[tuple[str, YRange]]) -> list[str]:
    """The newest y ranges as lines to be stored: `full accuracy` or `0.5 1.0 accuracy`."""
    kept = [(metric, y) for metric, y in ranges if len(metric) <= _NAME_CHARS_MAX]
    lines = [f"full {metric}" if y.kind == "full" else f"{y.low!r} {y.high!r} {metric}" for metric, y in kept]
    return lines[-_KEPT_MAX:]


def _is_finite(each: _Weighted) -> bool:
    return math.isfinite(each[0])


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
        for each in filter(_is_finite, gone):
            del self.ranked[bisect.bisect_left(self.ranked, each)]
            self.weight -= each[1]
        for each in filter(_is_finite, new):
            bisect.insort(self.ranked, each)
            self.weight += each[1]

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
    low = ends[0] if inner[0] - ends[0] <= slack else min(inner[0], *inside)
    high = ends[1] if ends[1] - inner[1] <= slack else max(inner[1], *inside)
    return scale_for((low, high))


def joined_scale(one: Scale | None, other: Scale | None) -> Scale | None:
    """The scale that covers both linear scales."""
    if one is None or other is None:
        return one or other
    return Scale(min(one.low, other.low), max(one.high, other.high))


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

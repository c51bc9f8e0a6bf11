"""Axes of a chart: scales, round ticks, x axes of steps, epochs, time or examples, and the lines that show them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from tputui import formatting as fmt
from tputui.state.chart_data import Segment
from tputui.state.metric_series import ChosenAxis
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.ui.charts.events_line import SIGNS, line_of
from tputui.ui.charts.scale import Scale, step_ticks, ticks
from tputui.ui.render.braille import DOTS_X, Canvas
from tputui.ui.render.lines import Line, Sign, Span, clean
from tputui.ui.render.names import shortened

NON_FINITE_MARK = SIGNS["non_finite"].mark
CURSOR_MARK = "\u25b4"

_LEAST_LEFT = 5
_STRIP_NAME = "events"

_COMPACT_FROM = 10_000
"""Labels of epochs and chosen axes have units from here."""
_ROOMS = 32
"""Number of axis lengths per power of two."""


def with_room(length: float) -> float:
    """Round a length up so that the result changes only after the length has grown by 1/32 to 1/16."""
    if not 0.0 < length < math.inf:
        return length
    share, power = math.frexp(length)
    return math.ldexp(math.ceil(share * _ROOMS) / _ROOMS, power)


XKind = Literal["step", "epoch", "time", "examples", "chosen"]
"""`chosen`: the axis that the author of the script chose for a metric."""
X_KINDS: tuple[XKind, ...] = get_args(XKind)[:-1]
"""The axes of all charts, among which the user chooses."""

_CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


class AxisInfo(NamedTuple):
    """The properties of a run from which axes are computed."""

    epochs: tuple[tuple[int, int], ...] = ()
    """First step and number of every epoch that began, in order."""
    steps_per_epoch: int = 0
    """0 if unknown."""
    global_batch: int = 0
    """Examples per step; 0 if unknown."""
    started: float | None = None
    """Unix time of the origin of the time axis."""
    growing: bool = False
    """Whether the run may add steps."""
    chosen: ChosenAxis | None = None
    """The axis of the kind `chosen`."""

    def why_not(self, kind: XKind, segments: Sequence[Segment]) -> str:
        """Why an axis cannot be shown; empty if it can."""
        if kind == "epoch" and not self.steps_per_epoch and len(self.epochs) < 2:
            return "steps per epoch not known yet"
        if kind == "time" and (self.started is None or (segments and not segments[-1].t)):
            return "step times not known"
        return "batch size not known yet" if kind == "examples" and not self.global_batch else ""

    def epoch_at(self, step: float) -> float:
        """Epochs completed after a step: 2.5 in the middle of the third."""
        at = bisect.bisect_right(self.epochs, (step, 1 << 60)) - 1
        if at < 0:
            return step / self.steps_per_epoch if self.steps_per_epoch else 0.0
        first, epoch = self.epochs[at]
        length = self.epochs[at + 1][0] - first if at + 1 < len(self.epochs) else self._newest_length()
        return epoch - 1 + min((step - first + 1) / length, 1.0) if length else float(epoch - 1)

    def _newest_length(self) -> int:
        if self.steps_per_epoch or len(self.epochs) < 2:
            return self.steps_per_epoch
        return self.epochs[-1][0] - self.epochs[-2][0]


def axis_info_of(snapshot: Snapshot) -> AxisInfo:
    """The axis information of a run."""
    plan = snapshot.plan
    return AxisInfo(
        epochs=tuple((start.first_step, start.epoch) for start in snapshot.epoch_starts),
        steps_per_epoch=plan.steps_per_epoch if plan is not None else 0,
        global_batch=plan.global_batch if plan is not None else 0,
        started=snapshot.started,
        growing=snapshot.condition not in ENDED,
    )


class XAxis:
    """The x axis of a chart of some segments, `width` dots wide."""

    def __init__(
        self,
        segments: Sequence[Segment],
        kind: XKind,
        axis_info: AxisInfo,
        width: int,
        middles: list[float] | None = None,
        *,
        spare: bool = False,
    ) -> None:
        """`middles` are the middle steps of the segments, if already computed.

        `spare` leaves some room at the right, so that the curve does not move with every new step.
        """
        self.kind = kind
        self.width = width
        self._axis_info = axis_info
        self._ends = [segment.last_step for segment in segments] if kind == "time" else []
        self._times = [segment.t for segment in segments] if kind == "time" else []
        if middles is None:
            middles = [(segment.first_step + segment.last_step) / 2 for segment in segments]
        self.xs = self._places(middles)
        """Axis coordinate of each segment."""
        ends = [self.at(segments[0].first_step), self.at(segments[-1].last_step)] if segments else [0.0, 0.0]
        self.low, self.high = ends if kind != "time" or not segments else (self.xs[0], self.xs[-1])
        if spare:
            self.high = self.low + with_room(self.high - self.low)
        self._dots: list[int] | None = None

    @property
    def name(self) -> str:
        """The name of an axis that the author of the script chose; empty for other ones."""
        chosen = self._axis_info.chosen if self.kind == "chosen" else None
        return clean(chosen.name) if chosen is not None else ""

    def at(self, step: float) -> float:
        """The axis coordinate of a step."""
        if self.kind == "epoch":
            return self._axis_info.epoch_at(step)
        if self.kind == "examples":
            return step * self._axis_info.global_batch
        if self.kind == "chosen" and self._axis_info.chosen is not None:
            return self._axis_info.chosen.at(step)
        if self.kind == "time" and self.xs:
            return self.xs[min(bisect.bisect_left(self._ends, step), len(self.xs) - 1)]
        return step

    def dot(self, x: float) -> int:
        """The dot column of an axis coordinate; may be outside the chart."""
        if self.high <= self.low:
            return self.width // 2
        return round((x - self.low) / (self.high - self.low) * (self.width - 1))

    def dots(self) -> list[int]:
        """The dot column of every segment, from left to right. Callers must not modify the list."""
        if self._dots is None:
            self._dots = self._compute_dots()
        return self._dots

    def _compute_dots(self) -> list[int]:
        if self.high <= self.low:
            return [self.width // 2] * len(self.xs)
        scale, low, most = (self.width - 1) / (self.high - self.low), self.low, self.width - 1
        dots = [int((x - low) * scale + 0.5) for x in self.xs]
        return dots if self.kind != "time" else [min(max(dot, 0), most) for dot in dots]

    def nearest(self, dot: int) -> int:
        """Index of the segment drawn nearest to a dot column; -1 if there is none."""
        places = self.dots()
        at = bisect.bisect_left(places, dot)
        around = [index for index in (at - 1, at) if 0 <= index < len(places)]
        return min(around, key=lambda index: abs(places[index] - dot), default=-1)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """At most `count` round coordinates with their labels."""
        if self.kind == "time" or self.name == "time":
            return [(value, clock(value, self.high)) for value in _round_times(self.low, self.high, count)]
        if self.kind in ("epoch", "chosen"):
            values = ticks(Scale(self.low, self.high), count) or [self.low, self.high][:count]
            return [(value, compact(value) if value >= _COMPACT_FROM else f"{value:.4g}") for value in values]
        name = compact if self.kind == "examples" else fmt.count
        return [(value, name(value)) for value in step_ticks(round(self.low), round(self.high), count)]

    def _places(self, middles: list[float]) -> list[float]:
        if self.kind == "step":
            return middles
        return self._times_from_start() if self.kind == "time" else [self.at(middle) for middle in middles]

    def _times_from_start(self) -> list[float]:
        """Seconds from the start, never backwards: clocks of two hosts differ a little."""
        start, latest, times = self._axis_info.started or 0.0, 0.0, []
        for t in self._times:
            latest = max(latest, t - start)
            times.append(latest)
        return times


def clock(seconds: float, longest: float) -> str:
    """A time since the start as an axis label: `45 s`, `12:30`, `2:05 h`."""
    whole = round(seconds)
    if longest < 120:
        return f"{seconds:.3g} s"
    if longest < 7200:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def compact(number: float) -> str:
    """A count as an axis label: `800`, `51.2k`, `1.3M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.0f}"


def _round_times(low: float, high: float, count: int) -> list[float]:
    if count < 1 or high <= low:
        return [low][:count]
    if high - low < 5:
        return ticks(Scale(low, high), count)
    days = [86400 * (1 << power) for power in range(1, 16)]
    for step in (*_CLOCK_STEPS, *days):
        first, last = -(-low // step), high // step
        if last - first + 1 <= count:
            return [number * step for number in range(int(first), int(last) + 1)]
    return [low]


class Axes(NamedTuple):
    """The axes of a chart and the terminal cells available for its dots."""

    x: XAxis
    y: Scale | None
    """None if no value is finite, or if rows are not values."""
    labels: Mapping[int, str]
    """Labels of the y axis, by row of cells from the top."""
    left: int
    """Cells to the left of the dots, including the y axis."""
    across: int
    """Width of the dot area in cells; 0 if the chart has no x axis."""
    rows: int
    """Height of the dot area in cells."""

    def canvas(self) -> Canvas:
        """An empty canvas for the dots."""
        return Canvas(self.across, self.rows)

    def cell_of(self, step: float) -> int:
        """The cell of a step; may be outside the chart."""
        return self.x.dot(self.x.at(step)) // DOTS_X


def left_of(labels: Mapping[int, str]) -> int:
    """Width in cells of the labels and the y axis."""
    return max([len(text) + 1 for text in labels.values()] + [_LEAST_LEFT]) + 1


def sided(body: Sequence[Line], axes: Axes) -> list[Line]:
    """Add the y axis to the left of the rows."""
    return [
        [
            Span(f"{axes.labels.get(row, ''):>{axes.left - 1}}", "label"),
            Span("\u2524" if row in axes.labels else "\u2502", "dim"),
            *line,
        ]
        for row, line in enumerate(body)
    ]


def ruler_lines(axes: Axes, signs: Mapping[int, Sign], cursor: int | None) -> list[Line]:
    """The x axis with signs on it, and the tick labels below."""
    places: dict[int, str] = {}
    for value, name in axes.x.ticks(max(2, axes.across // 9)):
        places[axes.x.dot(value) // DOTS_X] = name
    on_ruler = dict(signs)
    for cell in places:
        on_ruler.setdefault(cell, Sign("\u252c", "dim", ""))
    if cursor is not None:
        on_ruler[cursor] = Sign(CURSOR_MARK, "strong", "")
    edge = Span(" " * (axes.left - 1) + "\u2514", "dim")
    ruler: Line = [edge, *line_of(on_ruler, axes.across, "\u2500")]
    return [ruler, [Span(_numbers(places, axes), "label")]]


def strip_line(signs: Mapping[int, Sign], axes: Axes) -> Line:
    """The line of events below a chart."""
    name = _STRIP_NAME if axes.left > len(_STRIP_NAME) else ""
    return [Span(f"{name:>{axes.left - 1}} ", "dim"), *line_of(dict(signs), axes.across)]


def bad_signs(dots: Sequence[int]) -> dict[int, Sign]:
    """Signs of NaN and infinite values, by cell."""
    return {dot // DOTS_X: SIGNS["non_finite"] for dot in dots}


def _numbers(places: Mapping[int, str], axes: Axes) -> str:
    """The labels of the ticks, and in the right corner the name of a chosen axis."""
    text = [" "] * (axes.left + axes.across)
    name = shortened((axes.x.name,), axes.across // 2)[axes.x.name] if axes.x.name else ""
    free_from, end = 0, len(text) - len(name)
    text[end:] = name
    for cell, label in sorted(places.items()):
        start = min(axes.left + cell - len(label) // 2, len(text) - len(label))
        if start >= free_from and start >= 0 and start + len(label) + 1 <= end + (not name):
            text[start : start + len(label)] = label
            free_from = start + len(label) + 1
    return "".join(text).rstrip()

"""How a chart is viewed, the part of a run that is visible so, and the drawn chart.

A `ChartView` is the kind, axes, smoothing, window and cursor of a chart. Every change returns a new one.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from tputui.state.chart_data import CoreColumn, Mark, OutlierView, Segment
from tputui.state.metric_series import MetricPoint
from tputui.state.snapshot import CoreView
from tputui.ui.charts import events_line
from tputui.ui.charts.axis import (
    X_KINDS,
    Axes,
    AxisInfo,
    XAxis,
    XKind,
    bad_signs,
    left_of,
    ruler_lines,
    sided,
    strip_line,
)
from tputui.ui.charts.columns import WEIGHTS, ColumnCache
from tputui.ui.charts.scale import (
    Scale,
    YRange,
    fitted,
    joined_scale,
    manual_scale,
    outside_note,
    robust_scale,
    robust_scale_of,
    scale_for,
    y_labels,
)
from tputui.ui.charts.spikes import Extremes
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line, Ramp, Sign, Span

ViewKind = Literal["band", "overlay", "multiples", "heat"]
VIEWS: tuple[ViewKind, ...] = get_args(ViewKind)

STRIP_FROM = 9
"""Minimum number of lines of a chart with a separate line of events; smaller charts show the signs on the x axis."""

LEAST_SPAN = 8
"""Number of visible steps at the maximum zoom."""

_LOSS = ("", "loss")
"""The names of the loss: of its own chart, and on the pages of metrics."""
_ALWAYS = 0.1
"""Share of the visible steps, the newest ones, whose mean is always within the y axis."""
_PRECISION = 1e-6
ABOVE, BELOW = (Sign(mark, "label", "") for mark in "\u25b2\u25bc")
"""Drawn at the edge of a chart for values outside the y axis."""

ZOOM = 2.0
ALL_FROM = 0.8
"""Zooming out to at least this share of the run shows the whole run. Otherwise a growing run would never be shown whole
or followed again."""
PAN = 0.25
"""Share of the visible steps by which the window moves."""


class Window(NamedTuple):
    """The visible part of a run."""

    span: int
    """Number of steps."""
    last: int | None
    """Last step; None follows the newest step."""


class ChartView(NamedTuple):
    """Kind, axes, smoothing, window and cursor of a chart."""

    kind: ViewKind = "band"
    log: bool = False
    smoothing: int = 0
    """Index into `columns.WEIGHTS`."""
    x: XKind = "step"
    window: Window | None = None
    """None shows the whole run."""
    cursor: int | None = None
    """Step at which values are shown; None without a cursor."""
    core: int | None = None
    """A core of the selected row of the heat map; None if no row is selected."""
    metric: str = ""
    """The selected metric, whose page is shown; empty for the chart of the loss."""
    y: YRange = YRange()
    """The range of the y axis of the loss."""
    other_y: tuple[tuple[str, YRange], ...] = ()
    """The y ranges of other metrics that differ from the default, the newest change last."""

    @property
    def weight(self) -> float:
        """Weight of the moving average; 0 is no smoothing."""
        return WEIGHTS[self.smoothing]

    def y_of(self, metric: str) -> YRange:
        """The y range of a metric; an empty name is the loss."""
        return self.y if metric in _LOSS else dict(self.other_y).get(metric, YRange())

    def with_y(self, metric: str, y: YRange) -> ChartView:
        """Set the y range of a metric."""
        if metric in _LOSS:
            return self._replace(y=y)
        others = tuple(entry for entry in self.other_y if entry[0] != metric)
        return self._replace(other_y=others if y.kind == "robust" else (*others, (metric, y)))

    def next_view(self, by: int = 1) -> ChartView:
        """The next kind of chart, or the previous one."""
        return self._replace(kind=VIEWS[(VIEWS.index(self.kind) + by) % len(VIEWS)])

    def next_x(self) -> ChartView:
        """The next x axis."""
        return self._replace(x=X_KINDS[(X_KINDS.index(self.x) + 1) % len(X_KINDS)])

    def smoother(self, by: int) -> ChartView:
        """Increase or decrease the smoothing."""
        return self._replace(smoothing=min(max(self.smoothing + by, 0), len(WEIGHTS) - 1))

    def bounds(self, first: int, last: int) -> tuple[int, int]:
        """First and last visible step of a run with the steps `first` to `last`."""
        if self.window is None:
            return first, last
        span = min(self.window.span, last - first + 1)
        end = last if self.window.last is None else min(max(self.window.last, first + span - 1), last)
        return end - span + 1, end

    def zoomed(self, closer: bool, centre: float | None, first: int, last: int) -> ChartView:
        """Zoom in or out by a factor of two around `centre`, else the cursor, else with the last step fixed.

        A window that ends at the newest step keeps following it.
        """
        low, high = self.bounds(first, last)
        span = high - low + 1
        wanted = max(round(span / ZOOM), LEAST_SPAN) if closer else round(span * ZOOM)
        if wanted >= (last - first + 1) * (1.0 if closer else ALL_FROM):
            return self._replace(window=None)
        centre = centre if centre is not None else self.cursor
        if centre is None or not low <= centre <= high:
            return self._with_end(high, wanted, first, last)
        share = (centre - low) / max(span - 1, 1)
        return self._with_end(round(centre + (1 - share) * (wanted - 1)), wanted, first, last)

    def panned(self, by: int, first: int, last: int) -> ChartView:
        """Move the window by a quarter of its width, right for positive `by`."""
        if self.window is None:
            return self
        low, high = self.bounds(first, last)
        span = high - low + 1
        return self._with_end(high + by * max(round(span * PAN), 1), span, first, last)

    def reading(self, step: int | None, first: int, last: int) -> ChartView:
        """Put the cursor at a step and make that step visible; None removes the cursor."""
        if step is None:
            return self._replace(cursor=None, core=None)
        step = min(max(step, first), last)
        low, high = self.bounds(first, last)
        if low <= step <= high:
            return self._replace(cursor=step)
        span = high - low + 1
        return self._with_end(step if step > high else step + span - 1, span, first, last)._replace(cursor=step)

    def _with_end(self, end: int, span: int, first: int, last: int) -> ChartView:
        end = min(max(end, first + span - 1), last)
        return self._replace(window=Window(span, None if end == last else end))


@dataclass(frozen=True)
class ChartSeries:
    """The series of a run that a chart is drawn from."""

    segments: list[Segment]
    cores: list[CoreColumn]
    marks: list[Mark]
    axis_info: AxisInfo
    outlier: OutlierView | None = None
    """The core that currently deviates from the others."""


class ValidCurve(NamedTuple):
    """The validation loss at the visible steps. Computed once per epoch, since a run may have thousands."""

    points: Sequence[MetricPoint]
    ends: tuple[float, ...]
    """Least and greatest finite value; empty without any."""
    bad: Sequence[MetricPoint]
    """The points that are NaN or infinite."""
    best_epoch: int | None
    """The best epoch of the run."""
    scale: Scale | None
    """The scale of the values without outliers."""

    @classmethod
    def of(cls, points: Sequence[MetricPoint], best_epoch: int | None) -> ValidCurve:
        """The curve of some points."""
        finite = [point.value for point in points if math.isfinite(point.value)]
        ends = (min(finite), max(finite)) if finite else ()
        bad = [point for point in points if point.is_bad]
        return cls(points, ends, bad, best_epoch, robust_scale_of([point.value for point in points]))

    def finite_outside(self, low: float, high: float) -> Sequence[float]:
        """The finite values below `low` or above `high`."""
        if not self.ends or (self.ends[0] >= low and self.ends[1] <= high):
            return ()
        values = (point.value for point in self.points)
        return [value for value in values if not low <= value <= high and math.isfinite(value)]


@dataclass(frozen=True, kw_only=True)
class VisibleData(ChartSeries):
    """The visible part of the series, and the view."""

    view: ChartView
    smooth: list[float]
    """The moving average at each segment; empty without smoothing."""
    columns: ColumnCache
    """The columns of the segments. Valid until the cache follows other segments."""
    valid: ValidCurve | None = None
    """The validation loss at the visible steps; None in views without it."""
    extremes: Extremes = field(default_factory=Extremes)
    """The highest and lowest losses of single cores and steps."""
    named_extremes: Sequence[str] = ()
    """The same in words, see `spikes.named_extremes`."""
    ramp: Ramp | None = None
    """The colours of maps; None where bands and maps are not painted as backgrounds, which takes many colours."""
    colourless: bool = False
    """Whether nothing has a colour, so that curve and band must differ in form."""
    newest: Sequence[CoreView] = ()
    """The newest values of each core; empty if the newest step is not visible."""


def visible_data(
    series: ChartSeries, view: ChartView, smooth: list[float] | None = None, cache: ColumnCache | None = None
) -> VisibleData:
    """Cut a series to the window of a view.

    `smooth` has a value for each segment of the series; `cache` is that of the previous
    """
    cache, smooth = cache or ColumnCache(), smooth or []
    segments, cores, marks = series.segments, series.cores, series.marks
    if view.window is not None and segments:
        first, last = view.bounds(segments[0].first_step, segments[-1].last_step)
        start = bisect.bisect_left(segments, first, key=lambda segment: segment.last_step)
        stop = bisect.bisect_right(segments, last, key=lambda segment: segment.first_step)
        # Between two segments there may be steps without a report: then the later segment is shown.
        stop = max(stop, start + 1)
        segments, smooth = segments[start:stop], smooth[start:stop]
        cores = columns_within(cores, first, last)
        marks = [mark for mark in marks if first <= mark.step <= last]
    if view.cursor is not None and segments:
        # A cursor may be at a step that is not visible, or not reached yet at the moment that the user looks back to.
        view = view._replace(cursor=min(max(view.cursor, segments[0].first_step), segments[-1].last_step))
    columns = cache.follow(segments)
    return VisibleData(segments, cores, marks, series.axis_info, view=view, smooth=smooth, columns=columns)


class Chart(NamedTuple):
    """A drawn chart."""

    lines: list[Line]
    axes: Axes
    notes: tuple[str, ...] = ()
    """Remarks for the frame of the panel, the most important first."""
    hidden: int = 0
    """Points that a logarithmic axis cannot show."""
    rows: Sequence[range] = ()
    """In the heat map the cores of each line, from the top; else empty."""
    every: int = 0
    """Distance in cells between charts side by side with the same x axis; 0 for a single chart."""
    outside: str = ""
    """Number of values outside the y axis; empty if there are none."""
    legend: Sequence[Span] = ()
    """The legend of a map."""
    log_helps: bool = False
    """Whether a logarithmic axis would show more."""


def x_axis_of(data: VisibleData, width: int) -> XAxis:
    """The x axis, `width` dots wide; with room for the next steps if it shows the whole of a run that continues."""
    spare = data.axis_info.growing and data.view.window is None
    return XAxis(data.segments, data.view.x, data.axis_info, width, data.columns.middles, spare=spare)


def axes_of(data: VisibleData, width: int, height: int) -> Axes:
    """The axes of a chart of `width` by `height` cells whose y axis is the loss."""
    rows = rows_for(height)
    scale = scale_of(data)
    if scale is not None and data.view.y.kind != "manual":
        scale = fitted(scale, rows)
    labels = y_labels(scale, rows)
    left = left_of(labels)
    return Axes(x_axis_of(data, (width - left) * DOTS_X), scale, labels, left, width - left, rows)


def mark_cell(axes: Axes, mark: Mark, axis_info: AxisInfo) -> int:
    """The cell of an event: by its time if time is the axis, otherwise by its step."""
    if axes.x.kind == "time" and axis_info.started is not None:
        return axes.x.dot(mark.t - axis_info.started) // DOTS_X
    return axes.cell_of(mark.step)


def marks_line(data: VisibleData, axes: Axes) -> dict[int, Sign]:
    """The signs of the events, by cell."""
    return events_line.strip(data.marks, lambda mark: mark_cell(axes, mark, data.axis_info), axes.across)


def with_axes(data: VisibleData, body: list[Line], axes: Axes, height: int) -> list[Line]:
    """The body of a chart with its axes and the line of events."""
    signs = marks_line(data, axes)
    dots = itertools.compress(axes.x.dots(), data.columns.bad_counts)
    wrong = data.valid.bad if data.valid is not None else ()
    bad = bad_signs([*dots, *(axes.x.dot(axes.x.at(point.step)) for point in wrong)])
    has_strip = height >= STRIP_FROM
    on_ruler: dict[int, Sign] = bad if has_strip else {**signs, **bad}
    lines = [*sided(body, axes), *ruler_lines(axes, on_ruler, cursor_cell(data, axes))]
    return [*lines, strip_line(signs, axes)] if has_strip else lines


def rows_for(height: int) -> int:
    """Rows of dots in a chart of `height` lines."""
    return height - (3 if height >= STRIP_FROM else 2)


def cursor_cell(data: VisibleData, axes: Axes) -> int | None:
    """The cell of the cursor; None without a cursor."""
    if data.view.cursor is None or not data.segments:
        return None
    return axes.cell_of(data.view.cursor)


def scale_of(data: VisibleData) -> Scale | None:
    """The y axis: of the chosen range, by default without outliers. A logarithmic axis has room for all values."""
    columns, view = data.columns, data.view
    valid = data.valid
    if view.y.kind == "robust" and not view.log:
        start, means = columns.newest(_ALWAYS)
        scale = robust_scale(columns.sorted_lows, columns.sorted_highs, [*means, *data.smooth[start:]])
        return joined_scale(scale, valid.scale) if valid is not None else scale
    ends = valid.ends if valid is not None else ()
    scale = scale_for([*columns.lows, *columns.highs, *ends], view.log)
    return manual_scale(view.y, scale) if view.y.kind == "manual" else scale


def outside(data: VisibleData, scale: Scale | None) -> str:
    """The number of values outside the y axis. Of a segment of several values only the highest and the lowest count."""
    if scale is None:
        return ""
    least = 0.0 if scale.log else -math.inf
    valid = data.valid.finite_outside(max(scale.low, least), scale.high) if data.valid is not None else ()
    above = data.columns.sorted_highs.num_above(scale.high) + sum(value > scale.high for value in valid)
    below = data.columns.sorted_lows.num_between(least, scale.low) + sum(least < value < scale.low for value in valid)
    return outside_note(above, below, scale)


def with_arrows(body: list[Line], spans: Iterable[tuple[int, float, float]], scale: Scale | None) -> list[Line]:
    """The rows of a chart with arrows at the dot columns that have values above or below the y axis; `spans` are dot
    column, minimum and maximum."""
    if scale is None or not body:
        return body
    above: dict[int, Sign] = {}
    below: dict[int, Sign] = {}
    # Values of a core are single precision, those of the curve are not.
    lowest, highest = scale.low - abs(scale.low) * _PRECISION, scale.high + abs(scale.high) * _PRECISION
    for x, low, high in spans:
        if high > highest:
            above[x // DOTS_X] = ABOVE
        if low < lowest and (low > 0 or not scale.log):
            below[x // DOTS_X] = BELOW
    if above:
        body[0] = events_line.over(body[0], above)
    if below:
        body[-1] = events_line.over(body[-1], below)
    return body


def sampled(data: VisibleData) -> tuple[str, ...]:
    """A remark on the share of visible steps that the values per core cover; empty if they cover all."""
    seen = sum(column.num_steps for column in data.cores)
    spanned = sum(column.last_step - column.first_step + 1 for column in data.cores)
    return (f"{seen:,} of {spanned:,} steps sampled",) if seen < spanned else ()


def hidden_by_log(data: VisibleData) -> int:
    """Number of points that a logarithmic axis cannot show: the mean or a core is not positive."""
    return sum(1 for segment in data.segments if segment.min <= 0.0) if data.view.log else 0


def grouped(num_cores: int, rows: int) -> list[range]:
    """At most `rows` groups of adjacent cores; the group size is a power of two, 1 if all cores fit."""
    least = math.ceil(num_cores / max(rows, 1))
    size = 1 << max(least - 1, 0).bit_length()
    return [range(first, min(first + size, num_cores)) for first in range(0, num_cores, size)]


def columns_within(columns: Sequence[CoreColumn], first: int, last: int) -> list[CoreColumn]:
    """The columns that contain a step from `first` to `last`."""
    return [column for column in columns if column.last_step >= first and column.first_step <= last]


def column_at(columns: Sequence[CoreColumn], step: int) -> CoreColumn | None:
    """The column that contains a step."""
    return next(itertools.dropwhile(lambda column: column.last_step < step, columns), None)

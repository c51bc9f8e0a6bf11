"""The input of a chart: the series of a run, cut to the visible part, and its axes; and the drawn chart."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.chart_data import CoreColumn, Mark, OutlierView, Segment
from tputui.ui.charts import axis, events_line, frame
from tputui.ui.charts.axis import AxisInfo, XAxis
from tputui.ui.charts.chart_view import ChartView
from tputui.ui.charts.columns import ColumnCache
from tputui.ui.charts.events_line import EventSign
from tputui.ui.charts.frame import Axes
from tputui.ui.charts.outlier_marks import seen
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line

STRIP_FROM = 9
"""Minimum number of lines of a chart with a separate line of events; smaller charts show the signs on the x axis."""


class ChartSeries(NamedTuple):
    """The series of a run that a chart is drawn from."""

    segments: list[Segment]
    cores: list[CoreColumn]
    marks: list[Mark]
    axis_info: AxisInfo
    outlier: OutlierView | None = None
    """The core that currently deviates from the others."""


class VisibleData(NamedTuple):
    """The visible part of the series, and the view."""

    segments: list[Segment]
    smooth: list[float]
    """The moving average at each segment; empty without smoothing."""
    cores: list[CoreColumn]
    marks: list[Mark]
    axis_info: AxisInfo
    view: ChartView
    outlier: OutlierView | None
    columns: ColumnCache
    """The columns of the segments. Valid until the cache follows other segments."""


def visible_data(
    series: ChartSeries, view: ChartView, smooth: list[float] | None = None, cache: ColumnCache | None = None
) -> VisibleData:
    """Cut a series to the window of a view.

    `smooth` has a value for each segment of the series; `cache` is that of the previous frame.
    """
    cache, smooth = cache or ColumnCache(), smooth or []
    segments, cores, marks, axis_info, _ = series
    if view.window is not None and segments:
        first, last = view.bounds(segments[0].first_step, segments[-1].last_step)
        start = bisect.bisect_left(segments, first, key=lambda segment: segment.last_step)
        stop = bisect.bisect_right(segments, last, key=lambda segment: segment.first_step)
        segments, smooth = segments[start:stop], smooth[start:stop]
        cores = seen(cores, first, last)
        marks = [mark for mark in marks if first <= mark.step <= last]
    return VisibleData(segments, smooth, cores, marks, axis_info, view, None, cache.follow(segments))


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


def x_axis_of(data: VisibleData, width: int) -> XAxis:
    """The x axis, `width` dots wide; with room for the next steps if it shows the whole of a run that continues."""
    spare = data.axis_info.growing and data.view.window is None
    return XAxis(data.segments, data.view.x, data.axis_info, width, data.columns.middles, spare=spare)


def axes_of(data: VisibleData, width: int, height: int) -> Axes:
    """The axes of a chart of `width` by `height` cells whose y axis is the loss."""
    rows = rows_for(height)
    scale = scale_of(data)
    labels = frame.y_labels(scale, rows)
    left = frame.left_of(labels)
    return Axes(x_axis_of(data, (width - left) * DOTS_X), scale, labels, left, width - left, rows)


def mark_cell(axes: Axes, mark: Mark, axis_info: AxisInfo) -> int:
    """The cell of an event: by its time if time is the axis, otherwise by its step."""
    if axes.x.kind == "time" and axis_info.started is not None:
        return axes.x.dot(mark.t - axis_info.started) // DOTS_X
    return axes.cell_of(mark.step)


def marks_line(data: VisibleData, axes: Axes) -> dict[int, EventSign]:
    """The signs of the events, by cell."""
    return events_line.strip(data.marks, lambda mark: mark_cell(axes, mark, data.axis_info), axes.across)


def with_axes(data: VisibleData, body: list[Line], axes: Axes, height: int) -> list[Line]:
    """The body of a chart with its axes and the line of events."""
    signs = marks_line(data, axes)
    dots = [dot for segment, dot in zip(data.segments, axes.x.dots(), strict=True) if segment.num_bad]
    bad = frame.bad_signs(dots)
    has_strip = height >= STRIP_FROM
    on_ruler: dict[int, EventSign] = bad if has_strip else {**signs, **bad}
    lines = [*frame.sided(body, axes), *frame.ruler_lines(axes, on_ruler, cursor_cell(data, axes))]
    return [*lines, frame.strip_line(signs, axes)] if has_strip else lines


def rows_for(height: int) -> int:
    """Rows of dots in a chart of `height` lines."""
    return height - (3 if height >= STRIP_FROM else 2)


def cursor_cell(data: VisibleData, axes: Axes) -> int | None:
    """The cell of the cursor; None without a cursor."""
    if data.view.cursor is None or not data.segments:
        return None
    return axes.cell_of(data.view.cursor)


def scale_of(data: VisibleData) -> axis.Scale | None:
    """The y axis that covers all visible values."""
    return axis.scale_for(data.columns.lows + data.columns.highs, data.view.log)


def sampled(data: VisibleData) -> tuple[str, ...]:
    """A remark on the share of visible steps that the values per core cover; empty if they cover all."""
    seen = sum(column.num_steps for column in data.cores)
    spanned = sum(column.last_step - column.first_step + 1 for column in data.cores)
    return (f"{seen:,} of {spanned:,} steps sampled",) if seen < spanned else ()


def hidden_by_log(data: VisibleData) -> int:
    """Number of points that a logarithmic axis cannot show: the mean or a core is not positive."""
    return sum(1 for segment in data.segments if segment.min <= 0.0) if data.view.log else 0

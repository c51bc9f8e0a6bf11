"""The mean over all cores with a band from their minimum to their maximum, and the outlier."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tputui.state.chart_data import CoreColumn
from tputui.ui.charts import axis
from tputui.ui.charts.axis import XAxis
from tputui.ui.charts.columns import ChartColumn
from tputui.ui.charts.frame import Axes
from tputui.ui.charts.visible_data import Chart, VisibleData, axes_of, cursor_cell, hidden_by_log, with_axes
from tputui.ui.render import braille
from tputui.ui.render.braille import Canvas, Layer


def draw(data: VisibleData, width: int, height: int) -> Chart:
    """Draws mean, band and outlier; with smoothing, the unsmoothed mean behind the smoothed one."""
    axes = axes_of(data, width, height)
    columns = data.columns.merged(axes.x.dots())
    band, lines = _layers(data, columns, axes)
    body = braille.compose(lines, band=band, guide=cursor_cell(data, axes))
    return Chart(with_axes(data, body, axes, height), axes, hidden=hidden_by_log(data))


def _layers(data: VisibleData, columns: Sequence[ChartColumn], axes: Axes) -> tuple[Layer, list[Layer]]:
    band, mean = Layer(axes.canvas(), "band"), Layer(axes.canvas(), "accent")
    if axes.y is None:
        return band, [mean]
    row = dot_of(axes.y, band.canvas.dots_y)
    fill_band(band.canvas, columns, row)
    lines = [mean]
    if data.outlier is not None:
        outlier = Layer(axes.canvas(), "alert")
        trace_core(outlier.canvas, data.cores, data.outlier.core, axes.x, row)
        lines.insert(0, outlier)
    means = [(column.x, column.mean) for column in columns]
    if data.smooth:
        raw = Layer(axes.canvas(), "label")
        trace(raw.canvas, means, row)
        trace(mean.canvas, list(dict(zip(axes.x.dots(), data.smooth, strict=True)).items()), row)
        lines.insert(0, raw)
    else:
        trace(mean.canvas, means, row)
    return band, lines


def dot_of(scale: axis.Scale, dots: int) -> Callable[[float], int]:
    """A function from a value to its dot row, in an area `dots` high; values outside map to one row outside."""
    form = math.log if scale.log else float
    low, high, most = form(scale.low), form(scale.high), dots - 1
    per = most / (high - low) if high > low else 0.0

    def linear(value: float) -> int:
        row = round((high - value) * per)
        return row if 0 <= row <= most else -1 if row < 0 else dots

    return (lambda value: linear(math.log(value)) if value > 0.0 else most) if scale.log else linear


def fill_band(canvas: Canvas, found: Sequence[ChartColumn], row: Callable[[float], int]) -> None:
    """Fill the dots from minimum to maximum; columns without a finite value leave a gap."""
    before: tuple[int, int, int] | None = None
    for column in found:
        if column.mean != column.mean:
            before = None
            continue
        top, bottom, x = row(column.high), row(column.low), column.x
        canvas.column(x, top, bottom)
        if before is not None and x - before[0] > 1:
            _bridge(canvas, before, (x, top, bottom))
        before = (x, top, bottom)


def _bridge(canvas: Canvas, start: tuple[int, int, int], end: tuple[int, int, int]) -> None:
    """Fill the columns between two columns with values."""
    gap = end[0] - start[0]
    for x in range(start[0] + 1, end[0]):
        share = (x - start[0]) / gap
        canvas.column(x, round(start[1] + (end[1] - start[1]) * share), round(start[2] + (end[2] - start[2]) * share))


def trace(canvas: Canvas, points: Sequence[tuple[int, float]], row: Callable[[float], int]) -> None:
    """Draw a line through (dot column, value) points; a value that is not finite leaves a gap."""
    before: tuple[int, int] | None = None
    for x, value in points:
        if value - value != 0.0:
            before = None
            continue
        y = row(value)
        if before is None:
            canvas.column(x, y, y)
        elif x == before[0] + 1:
            nearer = before[1] + (y > before[1]) - (y < before[1])
            canvas.column(x, nearer, y)
        else:
            canvas.line(*before, x, y)
        before = (x, y)


def trace_core(
    canvas: Canvas, columns: Sequence[CoreColumn], core: int, x_axis: XAxis, row: Callable[[float], int]
) -> None:
    """Draw the line of one core; of several values in one dot column the maximum is drawn."""
    points: dict[int, float] = {}
    for x, column in zip(dots_of(columns, x_axis), columns, strict=True):
        if core < len(column.means):
            value = column.means[core]
            known = points.get(x)
            points[x] = value if known is None or not known >= value else known
    trace(canvas, list(points.items()), row)


def dots_of(columns: Sequence[CoreColumn], x_axis: XAxis) -> list[int]:
    """The dot column of each column of cores."""
    at, dot = x_axis.at, x_axis.dot
    return [dot(at(column.middle)) for column in columns]

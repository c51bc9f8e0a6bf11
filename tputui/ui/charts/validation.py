"""Validation values in a chart: a dotted line with a circle at the end of an epoch, and a star at the best one.

Training values are a solid line, so both are distinguishable without colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tputui.state.metric_series import MetricPoint
from tputui.ui.charts import axis
from tputui.ui.charts.axis import Axes, dot_row
from tputui.ui.charts.chart_view import VisibleData
from tputui.ui.charts.events_line import SIGNS, EventSign, over
from tputui.ui.render.braille import DOTS_Y, Canvas, Layer
from tputui.ui.render.lines import Line, Tone

TONE: Tone = "info"
MARK = EventSign("\u25cb", TONE, "validation")
BEST = SIGNS["best"]

_MARKS_APART = 4
"""Minimum distance of two circles in cells."""
_DASH, _PERIOD = 1, 3
"""Dot columns with a dot, and the period of the dotted line."""


def visible_points(points: Sequence[MetricPoint], data: VisibleData) -> Sequence[MetricPoint]:
    """The points at the visible steps."""
    if data.view.window is None or not data.segments:
        return points
    first, last = data.segments[0].first_step, data.segments[-1].last_step
    return [point for point in points if first <= point.step <= last]


def layer(points: Sequence[MetricPoint], axes: Axes) -> Layer:
    """The dotted line through the points; a value that is not finite, or not drawable, leaves a gap."""
    canvas = axes.canvas()
    if axes.y is not None:
        dotted(canvas, _dots(points, axes), lambda value: _row(value, axes.y, canvas.dots_y))
    return Layer(canvas, TONE)


def dotted(canvas: Canvas, points: Sequence[tuple[int, float]], row: Callable[[float], int]) -> None:
    """Draw a dotted line through (dot column, value) points; a value that is not finite leaves a gap."""
    before: tuple[int, int] | None = None
    for x, value in points:
        if value - value != 0.0:
            before = None
            continue
        y = row(value)
        if before is not None and x > before[0]:
            slope = (y - before[1]) / (x - before[0])
            for between in range(before[0] + 1, x):
                if between % _PERIOD < _DASH:
                    canvas.set(between, round(before[1] + slope * (between - before[0])))
        canvas.set(x, y)
        before = (x, y)


def with_marks(body: list[Line], data: VisibleData, axes: Axes) -> list[Line]:
    """The body of a chart with the circles and the star of the validation values in it."""
    return marked(body, data.valid, data.best_epoch, axes) if data.valid else body


def marked(
    body: list[Line], points: Sequence[MetricPoint], best_epoch: int | None, axes: Axes, *, circles: bool = True
) -> list[Line]:
    """The body with a star at the best epoch and circles at other points, not too close to one another."""
    if axes.y is None or not axes.rows:
        return body
    by_row: dict[int, dict[int, EventSign]] = {}
    free_from = 0
    best: tuple[int, int] | None = None
    for point in points:
        if point.value - point.value != 0.0 or (axes.y.log and point.value <= 0.0):
            continue
        cell = axes.cell_of(point.step)
        row = _row(point.value, axes.y, axes.rows * DOTS_Y) // DOTS_Y
        if not 0 <= cell < axes.across or not 0 <= row < axes.rows:
            continue
        if point.ends_epoch and point.epoch == best_epoch:
            best = (row, cell)
        elif circles and (cell >= free_from or point is points[-1]):
            by_row.setdefault(row, {})[cell] = MARK
            free_from = cell + _MARKS_APART
    if best is not None:
        by_row.setdefault(best[0], {})[best[1]] = BEST
    return [over(line, by_row[row]) if row in by_row else line for row, line in enumerate(body)]


def _dots(points: Sequence[MetricPoint], axes: Axes) -> list[tuple[int, float]]:
    """The last value of each dot column; NaN if a logarithmic axis cannot show it."""
    log = axes.y is not None and axes.y.log
    found: dict[int, float] = {}
    for point in points:
        found[axes.x.dot(axes.x.at(point.step))] = point.value if point.value > 0.0 or not log else math.nan
    return list(found.items())


def _row(value: float, scale: axis.Scale | None, dots: int) -> int:
    return dot_row(value, scale, dots) if scale is not None else 0

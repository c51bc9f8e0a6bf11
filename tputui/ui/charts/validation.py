"""Validation values in a chart: a dotted line with a circle at the end of an epoch, and a star at the best one.

Training values are a solid line, so both are distinguishable without colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tputui.state.metric_series import MetricPoint
from tputui.ui.charts.axis import Axes, XAxis
from tputui.ui.charts.chart_view import VisibleData
from tputui.ui.charts.events_line import SIGNS, over
from tputui.ui.charts.scale import dot_row
from tputui.ui.render.braille import DOTS_X, DOTS_Y, Canvas, DotLayer
from tputui.ui.render.lines import Line, Sign, Tone

TONE: Tone = "info"
MARK = Sign("\u25cb", TONE, "validation")
BEST = SIGNS["best"]

_MARKS_APART = 4
"""Minimum distance of two circles in cells."""
_DASH, _PERIOD = 1, 3
"""Dot columns with a dot, and the period of the dotted line."""


def dots_of(points: Sequence[MetricPoint], x: XAxis) -> list[int]:
    """The dot column of every point."""
    if x.kind not in ("step", "examples") or x.high <= x.low:
        return [x.dot(x.at(point.step)) for point in points]
    # Inlined: a call for each of thousands of points would cost a frame.
    size = x.at(1)
    scale, low = (x.width - 1) / (x.high - x.low), x.low
    return [round((point.step * size - low) * scale) for point in points]


def layer(points: Sequence[MetricPoint], axes: Axes) -> DotLayer:
    """The dotted line through the points; a value that is not finite, or not drawable, leaves a gap."""
    canvas = axes.canvas()
    scale = axes.y
    if scale is not None:
        # The last value of each dot column.
        values = dict(zip(dots_of(points, axes.x), [point.value for point in points], strict=True))
        if scale.log:
            values = {x: value if value > 0.0 else math.nan for x, value in values.items()}
        dotted(canvas, list(values.items()), lambda value: dot_row(value, scale, canvas.dots_y))
    return DotLayer(canvas, TONE)


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
    return marked(body, data.valid.points, data.valid.best_epoch, axes) if data.valid is not None else body


def marked(
    body: list[Line], points: Sequence[MetricPoint], best_epoch: int | None, axes: Axes, *, circles: bool = True
) -> list[Line]:
    """The body with a star at the best epoch and circles at other points, not too close to one another."""
    scale = axes.y
    if scale is None or not axes.rows or not points:
        return body
    by_row: dict[int, dict[int, Sign]] = {}
    free_from = 0
    best: tuple[int, int] | None = None
    last = len(points) - 1
    for index, (point, dot) in enumerate(zip(points, dots_of(points, axes.x), strict=True)):
        cell = dot // DOTS_X
        is_best = point.epoch == best_epoch and point.ends_epoch
        if not is_best and (not circles or (cell < free_from and index != last)):
            continue
        value = point.value
        if value - value != 0.0 or (scale.log and value <= 0.0) or not 0 <= cell < axes.across:
            continue
        row = dot_row(value, scale, axes.rows * DOTS_Y) // DOTS_Y
        if is_best:
            best = (row, cell)
        else:
            by_row.setdefault(row, {})[cell] = MARK
            free_from = cell + _MARKS_APART
    if best is not None:
        by_row.setdefault(best[0], {})[best[1]] = BEST
    return [over(line, by_row[row]) if row in by_row else line for row, line in enumerate(body)]

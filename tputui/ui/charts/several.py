"""Several series in one chart, on the screen and in a report: one y axis for all of them, and the points outside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tputui.ui.charts.axis import Axes
from tputui.ui.charts.curves import trace
from tputui.ui.charts.scale import (
    Scale,
    YRange,
    fitted,
    joined_scale,
    manual_scale,
    outside_note,
    robust_scale_of,
    scale_for,
)
from tputui.ui.render.braille import DotLayer
from tputui.ui.render.lines import Line, Tone, paragraph

Point = tuple[float, float]
"""Position on the x axis, and value."""


def scale_of_all(series: Sequence[Sequence[float]], y: YRange, rows: int = 0, *, log: bool = False) -> Scale | None:
    """The y axis of several series: of the chosen range, by default without outliers. A logarithmic axis has room for
    all values. Fitted to labels in `rows` lines, if that is not 0; None without a value that it can show."""
    scale: Scale | None = None
    if y.kind == "robust" and not log:
        for values in series:
            scale = joined_scale(scale, robust_scale_of(values))
    else:
        scale = scale_for([value for values in series for value in values], log)
    if scale is None:
        return None
    if y.kind == "manual":
        return manual_scale(y, scale)
    return fitted(scale, rows) if rows else scale


def outside_of(points: Iterable[Point], scale: Scale | None) -> list[Point]:
    """The points outside the y axis, without those that a logarithmic axis can never show."""
    if scale is None:
        return []
    low, high, least = scale.low, scale.high, 0.0 if scale.log else -math.inf
    return [(x, value) for x, value in points if not low <= value <= high and least < value < math.inf]


def note_of(outside: Sequence[Point], scale: Scale | None) -> str:
    """How many points are above and below the y axis; empty if none is."""
    num_above = sum(value > scale.high for _, value in outside) if scale is not None else 0
    return outside_note(num_above, len(outside) - num_above, scale)


def line_of(
    points: Sequence[tuple[int, float]], row: Callable[[float], int], axes: Axes, tone: Tone, *, is_behind: bool = False
) -> DotLayer:
    """The line through (dot column, value) points; a single point is wider, since one dot is easily overlooked, unless
    the line is behind another one."""
    canvas = axes.canvas()
    if len(points) == 1 and not is_behind:
        x, value = points[0]
        points = [(x - 1, value), (x, value), (x + 1, value)]
    trace(canvas, points, row)
    return DotLayer(canvas, tone)


def empty_body(values: Sequence[float], axes: Axes) -> list[Line]:
    """The body of a chart without a value that it can show: why there is none."""
    is_finite = any(map(math.isfinite, values))
    text = "all values are 0 or less" if is_finite else "all values are NaN or infinite" if values else "no value yet"
    lines = paragraph(text, axes.across, axes.rows, "bad" if values and not is_finite else "label")
    return [*lines, *([] for _ in range(axes.rows - len(lines)))]

"""The loss as curves: the mean in a band from minimum to maximum of the cores, or a line for each core."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn
from tputui.ui.charts import validation
from tputui.ui.charts.axis import Axes, XAxis
from tputui.ui.charts.chart_view import (
    Chart,
    VisibleData,
    axes_of,
    cursor_cell,
    hidden_by_log,
    outside,
    sampled,
    with_arrows,
    with_axes,
)
from tputui.ui.charts.columns import ChartColumn
from tputui.ui.charts.scale import Scale, suggests_log
from tputui.ui.render import braille
from tputui.ui.render.braille import Canvas, DotLayer
from tputui.ui.render.lines import Line, Tone

LINES_MAX = 64
"""More lines are unreadable and slow to draw."""

_TONES: tuple[Tone, ...] = ("band", "accent", "alert")

_NARROW = 1e-290
"""A narrower range, of which the reciprocal may be infinite, is made wider first."""
_RECENT = 8
"""Number of newest columns by which cores are chosen if there are too many."""


def draw_band(data: VisibleData, width: int, height: int) -> Chart:
    """Draws mean, band and outlier; with smoothing, the unsmoothed mean behind the smoothed one."""
    axes = axes_of(data, width, height)
    columns = data.columns.merged(axes.x.dots())
    band, lines = _layers(data, columns, axes)
    body = braille.compose(lines, band=band, guide=cursor_cell(data, axes), painted=data.ramp is not None)
    body = validation.with_marks(body, data, axes)
    return _finished(data, body, columns, axes, height)


def _finished(
    data: VisibleData,
    body: list[Line],
    columns: Sequence[ChartColumn],
    axes: Axes,
    height: int,
    notes: tuple[str, ...] = (),
) -> Chart:
    """The chart of a body: with axes, and arrows for the values outside the y axis."""
    cut = outside(data, axes.y)
    if cut:
        spans = [(column.x, column.low, column.high) for column in columns]
        spans += [
            (axes.x.dot(axes.x.at(point.step)), point.value, point.value)
            for point in (data.valid.points if data.valid is not None else ())
            if math.isfinite(point.value)
        ]
        body = with_arrows(body, spans, axes.y)
    lines = with_axes(data, body, axes, height)
    log_helps = not data.view.log and suggests_log([column.mean for column in columns], axes.y)
    return Chart(lines, axes, notes, hidden_by_log(data), outside=cut, log_helps=log_helps)


def _layers(data: VisibleData, columns: Sequence[ChartColumn], axes: Axes) -> tuple[DotLayer, list[DotLayer]]:
    band, mean = DotLayer(axes.canvas(), "band"), DotLayer(axes.canvas(), "accent")
    if axes.y is None:
        return band, [mean]
    row = dot_of(axes.y, band.canvas.dots_y)
    (dot_band if data.colourless else fill_band)(band.canvas, columns, row)
    lines = [validation.layer(data.valid.points, axes), mean] if data.valid is not None else [mean]
    if data.outlier is not None:
        outlier = DotLayer(axes.canvas(), "alert")
        trace_core(outlier.canvas, data.cores, data.outlier.core, axes.x, row)
        lines.insert(0, outlier)
    means = [(column.x, column.mean) for column in columns]
    if data.smooth:
        raw = DotLayer(axes.canvas(), "label")
        trace(raw.canvas, means, row)
        trace(mean.canvas, list(dict(zip(axes.x.dots(), data.smooth, strict=True)).items()), row)
        lines.insert(0, raw)
    else:
        trace(mean.canvas, means, row)
    return band, lines


def draw_overlay(data: VisibleData, width: int, height: int) -> Chart:
    """Draws a line for each core, the mean over them, and the outlier on top."""
    axes = axes_of(data, width, height)
    cores, mean, outlier = (DotLayer(axes.canvas(), tone) for tone in _TONES)
    shown = chosen(data.cores)
    columns = data.columns.merged(axes.x.dots())
    if axes.y is not None:
        row = dot_of(axes.y, mean.canvas.dots_y)
        _trace_all(cores.canvas, data.cores, shown, dots_of(data.cores, axes.x), row)
        means = [(column.x, column.mean) for column in columns]
        smooth = list(dict(zip(axes.x.dots(), data.smooth, strict=True)).items()) if data.smooth else means
        trace(mean.canvas, smooth, row)
        if data.outlier is not None:
            trace_core(outlier.canvas, data.cores, data.outlier.core, axes.x, row)
    layers = [cores, mean, outlier]
    if data.valid is not None:
        layers.insert(1, validation.layer(data.valid.points, axes))
    body = validation.with_marks(braille.compose(layers, guide=cursor_cell(data, axes)), data, axes)
    notes = (_note(data.cores, shown), *sampled(data))
    return _finished(data, body, columns, axes, height, notes)


def chosen(columns: Sequence[CoreColumn]) -> list[int]:
    """The cores that get a line: all of them, or those farthest above and below the others at the newest steps."""
    if not columns:
        return []
    num_cores = len(columns[-1].means)
    if num_cores <= LINES_MAX:
        return list(range(num_cores))
    sums = [0.0] * num_cores
    for column in columns[-_RECENT:]:
        if len(column.means) == num_cores:
            sums = [total + value for total, value in zip(sums, column.means, strict=True)]
    finite = [core for core in range(num_cores) if math.isfinite(sums[core])]
    half = LINES_MAX // 2
    indices = {
        *heapq.nlargest(half, finite, key=sums.__getitem__),
        *heapq.nsmallest(half, finite, key=sums.__getitem__),
    }
    return sorted(indices)


def _trace_all(
    canvas: Canvas,
    columns: Sequence[CoreColumn],
    cores: Sequence[int],
    dots: Sequence[int],
    row: Callable[[float], int],
) -> None:
    """The lines of several cores. Columns of one dot column become one: the greatest value of each core."""
    if not columns:
        return
    lines: list[tuple[int, list[float]]] = []
    most = len(columns[-1].means)
    for x, column in zip(dots, columns, strict=True):
        if len(column.means) != most:
            continue
        values = list(column.means) if most == len(cores) else [column.means[core] for core in cores]
        if lines and lines[-1][0] == x:
            before = lines[-1][1]
            values = [b if not a >= b else a for a, b in zip(before, values, strict=True)]
            lines.pop()
        lines.append((x, values))
    for index in range(len(cores)):
        trace(canvas, [(x, values[index]) for x, values in lines], row)


def _note(columns: Sequence[CoreColumn], shown: Sequence[int]) -> str:
    num_cores = len(columns[-1].means) if columns else 0
    if num_cores <= len(shown):
        return fmt.counted(num_cores, "line") if num_cores else ""
    return f"the {len(shown)} cores farthest out of {num_cores:,}"


def dot_of(scale: Scale, dots: int) -> Callable[[float], int]:
    """A function from a value to its dot row, in an area `dots` high; values outside map to one row outside."""
    form = math.log if scale.log else float
    low, high, most = form(scale.low), form(scale.high), dots - 1
    factor = 1.0
    if not math.isfinite(high - low):
        factor = 0.5  # Halves, whose difference is a float.
    elif 0.0 < high - low < _NARROW:
        factor = 1.0 / _NARROW
    low, high = low * factor, high * factor
    per = most / (high - low) if high > low else 0.0

    def linear(value: float) -> int:
        # Rounded only inside the area: far outside, the row may be infinite.
        row = (high - value) * per
        return round(row) if -0.5 <= row <= dots else dots if row > dots else -1

    if factor != 1.0:
        return lambda value: linear(value * factor)
    return (lambda value: linear(math.log(value)) if value > 0.0 else most) if scale.log else linear


def fill_band(canvas: Canvas, columns: Sequence[ChartColumn], row: Callable[[float], int]) -> None:
    """Fill the dots from minimum to maximum; columns without a finite value leave a gap."""
    before: tuple[int, int, int] | None = None
    for column in columns:
        if column.mean != column.mean:
            before = None
            continue
        top, bottom, x = row(column.high), row(column.low), column.x
        canvas.column(x, top, bottom)
        if before is not None and x - before[0] > 1:
            _bridge(canvas, before, (x, top, bottom))
        before = (x, top, bottom)


def dot_band(canvas: Canvas, columns: Sequence[ChartColumn], row: Callable[[float], int]) -> None:
    """Draw minimum and maximum as dots in every second column, which without colours no curve is mistaken for."""
    for column in columns:
        if column.mean == column.mean and column.x % 2 == 0:
            for y in (row(column.high), row(column.low)):
                canvas.column(column.x, y, y)


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
            drawn = points.get(x)
            points[x] = value if drawn is None or not drawn >= value else drawn
    trace(canvas, list(points.items()), row)


def dots_of(columns: Sequence[CoreColumn], x_axis: XAxis) -> list[int]:
    """The dot column of each column of cores."""
    at, dot = x_axis.at, x_axis.dot
    return [dot(at(column.middle)) for column in columns]

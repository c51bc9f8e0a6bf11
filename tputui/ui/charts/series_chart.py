"""Charts of one series: with axes in a few lines, or as a sparkline, a line of blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from tputui.state.chart_data import Segment, share_between
from tputui.ui.charts import axis
from tputui.ui.charts.axis import NON_FINITE_MARK, Axes, AxisInfo, XAxis
from tputui.ui.charts.chart_view import Chart, ChartSeries, ChartView, visible_data
from tputui.ui.charts.columns import ChartColumn, columns, gather
from tputui.ui.charts.curves import dot_band, dot_of, draw_band, fill_band, trace
from tputui.ui.charts.scale import Scale, YRange, fitted, scale_for, suggests_log, y_labels
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line, Span, Tone, fit, joined, width_of

_AXIS_LINES = 2
LEAST_CHART = 7
"""Minimum number of lines of a chart with axes."""
AREA_WIDTH, AREA_HEIGHT = 38, 3
"""Minimum cells of an area chart beside others, and minimum lines with its title and without the axis of time."""
AREA_LEFT = 12
"""Cells of the axis of area charts, as much as `1023 KiB/s` needs, so that those below each other are aligned."""
BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def chart_over_steps(segments: Sequence[Segment], width: int, height: int, *, colourless: bool = False) -> Chart | None:
    """A chart of a series over steps, without events, with a logarithmic axis if that shows more; None if there is not
    enough room or no segment. `colourless`: the band has dots at its edges, so that the mean stays visible in it."""
    rows = height - _AXIS_LINES
    if not segments or rows < 1 or width < 12:
        return None
    bounds = [bound for segment in segments for bound in (segment.min, segment.max)]
    scale = scale_for(bounds, log=False)
    if suggests_log([segment.mean for segment in segments], scale):
        scale = scale_for(bounds, log=True)
    scale = fitted(scale, rows) if scale is not None else None
    labels = y_labels(scale, rows)
    left = axis.left_of(labels)
    across = width - left
    axes = Axes(XAxis(segments, "step", AxisInfo(), across * DOTS_X), scale, labels, left, across, rows)
    merged = columns(segments, segments[0].first_step, segments[-1].last_step, across * DOTS_X)
    mean, behind = axes.canvas(), axes.canvas()
    if scale is not None:
        row = dot_of(scale, mean.dots_y)
        (dot_band if colourless else fill_band)(behind, merged, row)
        trace(mean, [(column.x, column.mean) for column in merged], row)
    body = braille.compose([braille.DotLayer(mean, "accent")], band=braille.DotLayer(behind, "band"))
    bad = axis.bad_signs([column.x for column in merged if column.bad])
    return Chart([*axis.sided(body, axes), *axis.ruler_lines(axes, bad, None)], axes)


class Area(NamedTuple):
    """A series over the time of the run, drawn as an area from 0 up."""

    title: Line
    """One line above the chart."""
    points: Sequence[tuple[float, float]]
    """Unix time and value, in order of time; at least one."""
    high: float
    """The upper end of the axis, more than 0; a greater value raises it."""
    text: Callable[[float], str]
    """The upper end as text."""


def area_chart(area: Area, x_range: tuple[float, float], width: int, height: int, *, ruler: bool) -> list[Line]:
    """`height` lines of `width` cells: the title, the area, and with `ruler` two lines for the time since the start.

    `x_range` is the unix time of the start and of the right edge. Of the values in a column of dots the greatest is
    drawn. `height` must leave a line for the area.
    """
    rows = height - 1 - _AXIS_LINES * ruler
    segments = as_segments([(t, step, value) for step, (t, value) in enumerate(area.points, 1)])
    scale = Scale(0.0, max(area.high, *(value for _, value in area.points)))
    labels = {rows - 1: "0", 0: area.text(scale.high)}
    left = max(axis.left_of(labels), AREA_LEFT)
    across = width - left
    x_axis = XAxis(segments, "time", AxisInfo(started=x_range[0]), across * DOTS_X)
    x_axis.low, x_axis.high = 0.0, max(x_range[1] - x_range[0], 0.0)
    axes = Axes(x_axis, scale, labels, left, across, rows)
    canvas = axes.canvas()
    filled = [column._replace(low=0.0) for column in gather(segments, x_axis.dots())]
    fill_band(canvas, filled, dot_of(scale, canvas.dots_y))
    body = axis.sided(braille.compose([braille.DotLayer(canvas, "accent")]), axes)
    return [fit(area.title, width), *body, *(axis.ruler_lines(axes, {}, None) if ruler else [])]


def area_grid(areas: Sequence[Area], x_range: tuple[float, float], width: int, height: int) -> list[Line]:
    """Area charts beside and below each other on the same axis of time, in `height` lines or as many as they need."""
    most = min(max(width // AREA_WIDTH, 1), len(areas))
    # One column fewer if that leaves less of the last row empty.
    across = min(range(most, max(most - 2, min(most - 1, 1)), -1), key=lambda columns: -len(areas) % columns)
    down = -(-len(areas) // across)
    room, lines = width // across - 1, []
    each, spare = divmod(max(height - _AXIS_LINES, AREA_HEIGHT * down), down)
    for band in range(down):
        beside = areas[band * across : (band + 1) * across]
        is_last = band + 1 == down
        rows = each + (band < spare) + _AXIS_LINES * is_last
        charts = [area_chart(area, x_range, room, rows, ruler=is_last) for area in beside]
        lines += [[span for line in row for span in _framed(line, room)] for row in zip(*charts, strict=True)]
    return lines


def _framed(line: Line, width: int) -> Line:
    """A line of a chart after a blank, padded to the width of the chart."""
    return [Span(" "), *line, Span(" " * (width - width_of(line)))]


def as_segments(points: Sequence[tuple[float, int, float]]) -> list[Segment]:
    """Segments from (unix time, step, value) in order of steps; each begins after the previous one."""
    segments: list[Segment] = []
    before = 0
    for t, step, value in points:
        first = min(before + 1, step)
        segments.append(
            Segment(first_step=first, last_step=step, mean=value, min=value, max=value, num_values=1, num_bad=0, t=t)
        )
        before = max(step, before)
    return segments


def chart_of_view(series: ChartSeries, view: ChartView, width: int, height: int) -> Chart | None:
    """A chart of the visible part; None if there is not enough room."""
    if height < LEAST_CHART or width < 24 or len(series.segments) < 2:
        return None
    why_not = series.axis_info.why_not(view.x, series.segments)
    data = visible_data(
        series, view._replace(kind="band", log=False, x="step" if why_not else view.x, y=YRange("full"))
    )
    return draw_band(data, width, height) if data.segments else None


def sparkline(columns: Sequence[ChartColumn], num_columns: int, width: int) -> Line:
    """Draw columns with `x` in [0, `num_columns`) in `width` cells; gaps between the first and last are filled."""
    if not columns or width < 1:
        return [Span(" " * max(width, 0))]
    sums: dict[int, list[float]] = {}
    bad: set[int] = set()
    for column in columns:
        cell = min(column.x * width // max(num_columns, 1), width - 1)
        if math.isfinite(column.mean):
            sums.setdefault(cell, []).append(column.mean)
        if column.bad:
            bad.add(cell)
    return _line(sums, bad, width)


def evenly(values: Sequence[float], width: int) -> Line:
    """Values in order, spread evenly over `width` cells, the newest at the right."""
    if not values or width < 1:
        return [Span(" " * max(width, 0))]
    last, across = max(len(values) - 1, 1), max(width - 1, 1)
    starts = [-(-cell * last // across) for cell in range(width)]
    parts = [values[start:stop] for start, stop in itertools.pairwise([*starts, len(values)])]
    if not math.isfinite(sum(values)):
        parts = [[value for value in part if value - value == 0.0] for part in parts]
    return _line({cell: part for cell, part in enumerate(parts) if part}, set(), width)


def blocks(
    points: Sequence[tuple[float, float]],
    x_range: tuple[float, float],
    width: int,
    height: int = 1,
    *,
    from_zero: bool = False,
    adds: bool = False,
) -> list[Line]:
    """Values (x, y) as blocks, `height` lines tall. The scale begins at the lowest value, or at 0 if `from_zero`.

    A cell shows the mean of its values, and that of the cell to its left if it has none. If `adds`, it shows their sum,
    and a dot if it has none. A cell with a NaN or infinite value is marked.
    """
    first, length = x_range[0], x_range[1] - x_range[0]
    values: dict[int, list[float]] = {}
    bad: set[int] = set()
    for x, y in points:
        cell = min(max(int((x - first) / length * width), 0), width - 1) if length > 0 else 0
        if math.isfinite(y):
            values.setdefault(cell, []).append(y)
        else:
            bad.add(cell)
    sums = [math.fsum(values[cell]) if cell in values else None for cell in range(width)] if adds else None
    shown = sums or _means(values, width)
    numbers = [value for value in shown if value is not None]
    low, high = 0.0 if from_zero else min(numbers, default=0.0), max(numbers, default=0.0)
    levels = [None if value is None else _level(value, low, high, len(BLOCKS) * height) + 1 for value in shown]
    empty = Span("\u00b7", "dim") if adds else Span(" ")
    lines: list[Line] = []
    for below in range(len(BLOCKS) * (height - 1), -1, -len(BLOCKS)):
        line: Line = []
        for cell, level in enumerate(levels):
            if below == 0 and cell in bad:
                line.append(Span(NON_FINITE_MARK, "bad"))
            elif level is None or level <= below:
                line.append(empty if below == 0 else Span(" "))
            else:
                line.append(Span(BLOCKS[min(level - below, len(BLOCKS)) - 1], "accent"))
        lines.append(joined(line))
    return lines


def _line(sums: Mapping[int, Sequence[float]], bad: Collection[int], width: int) -> Line:
    """One character per cell for its mean; `bad` are the cells with a NaN or infinite value."""
    means = _means(sums, width)
    finite = [mean for mean in means if mean is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    signs: list[tuple[str, Tone]] = [
        (NON_FINITE_MARK, "bad")
        if cell in bad
        else (" ", "plain")
        if mean is None
        else (BLOCKS[_level(mean, low, high)], "accent")
        for cell, mean in enumerate(means)
    ]
    return [Span("".join([sign for sign, _ in run]), tone) for tone, run in itertools.groupby(signs, itemgetter(1))]


def _means(sums: Mapping[int, Sequence[float]], width: int) -> list[float | None]:
    """The mean of each cell; gaps repeat the cell to the left."""
    means: list[float | None] = []
    newest: float | None = None
    last = max(sums, default=-1)
    for cell in range(width):
        if cell in sums:
            # Shares are summed, so that no sum of large values overflows.
            count = len(sums[cell])
            newest = math.fsum([value / count for value in sums[cell]]) if count > 1 else sums[cell][0]
        means.append(newest if cell <= last else None)
    return means


def _level(value: float, low: float, high: float, num_levels: int = len(BLOCKS)) -> int:
    if not low < high or not math.isfinite(high / 2 - low / 2):
        return 0
    return min(int(share_between(value, low, high) * num_levels), num_levels - 1)

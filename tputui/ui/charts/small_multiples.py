"""A small chart for each core, or for each group of neighbours, all on the same axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import CoreColumn
from tputui.ui.charts import events_line
from tputui.ui.charts.axis import Axes
from tputui.ui.charts.chart_view import (
    Chart,
    VisibleData,
    column_at,
    cursor_cell,
    grouped,
    hidden_by_log,
    marks_line,
    outside,
    sampled,
    scale_of,
    with_arrows,
    x_axis_of,
)
from tputui.ui.charts.columns import ReducedColumns
from tputui.ui.charts.curves import dot_of, dots_of, trace
from tputui.ui.charts.events_line import SIGNS
from tputui.ui.charts.scale import Scale
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X, Canvas, DotLayer
from tputui.ui.render.lines import Line, Span, Tone, fit, paragraph, width_of

_LEAST_WIDTH, _LEAST_ROWS = 14, 2
_CHARTS_MOST = 64
"""More charts are unreadable and slow to draw."""
_SHAPE = 5.0
"""Preferred ratio of width to height in cells."""


_Span = tuple[float, float, float]
"""Minimum, mean and maximum over some cores."""


def spans_of(
    columns: Sequence[CoreColumn], groups: Sequence[range], memory: ReducedColumns[list[_Span | None]]
) -> list[list[_Span | None]]:
    """For each group of cores, its span in each column; None if no value is finite."""
    of_columns = memory.of(columns, len(groups), functools.partial(_reduce, groups=groups))
    return [list(spans) for spans in zip(*of_columns, strict=True)]


class _Tiling(NamedTuple):
    groups: list[range]
    across: int
    """Number of charts per line."""
    width: int
    """Width of a chart in cells, including its edge and the gap."""
    rows: int
    """Height of a chart in cells, without its title."""


def draw(data: VisibleData, width: int, height: int, memory: ReducedColumns[list[_Span | None]]) -> Chart:
    """The charts in reading order, with a line of events below each column of charts."""
    num_cores = len(data.cores[-1].means) if data.cores else 0
    tiling = _tile(num_cores, width, height - 1)
    if tiling is None:
        reason = "not enough room for small charts" if num_cores else "no values per core"
        return Chart(paragraph(reason, width, height), Axes(x_axis_of(data, width * DOTS_X), None, {}, 0, width, 0))
    across = tiling.width - 2
    axes = Axes(x_axis_of(data, across * DOTS_X), scale_of(data), {}, 1, across, tiling.rows)
    dots = dots_of(data.cores, axes.x)
    wrong = {core for column in data.cores for core in column.bad_cores}
    spans = spans_of(data.cores, tiling.groups, memory)
    every = [
        _one(data, cores, axes, tiling, _by_dot(spans[index], dots), not wrong.isdisjoint(cores))
        for index, cores in enumerate(tiling.groups)
    ]
    lines: list[Line] = []
    for first in range(0, len(tiling.groups), tiling.across):
        charts = every[first : first + tiling.across]
        lines += [[span for chart in charts for span in chart[row]] for row in range(tiling.rows + 1)]
    lines += [[]] * (height - 1 - len(lines))
    scale = axes.y
    bounds = f"y {fmt.number(scale.low, 3)} to {fmt.number(scale.high, 3)}, " if scale is not None else ""
    size = len(tiling.groups[0])
    note = f"{bounds}{size} cores per chart" if size > 1 else f"{bounds}1 core per chart"
    strip = [Span(" "), *events_line.line_of(marks_line(data, axes), across), Span(" ")]
    lines.append([span for _ in range(min(tiling.across, len(tiling.groups))) for span in strip])
    cut = outside(data, scale)
    return Chart(lines, axes, (note, *sampled(data)), hidden_by_log(data), every=tiling.width, outside=cut)


def _tile(num_cores: int, width: int, height: int) -> _Tiling | None:
    """The tiling with the smallest groups that fit and the best shape of chart."""
    for rows in [num_cores // (1 << power) or 1 for power in range(max(num_cores, 1).bit_length() + 1)]:
        if rows > _CHARTS_MOST:
            continue
        groups = grouped(num_cores, rows)
        fitting = [
            _Tiling(groups, across, width // across, height // down - 1)
            for across in range(1, min(len(groups), width // _LEAST_WIDTH) + 1)
            if height // (down := math.ceil(len(groups) / across)) - 1 >= _LEAST_ROWS
        ]
        if groups and fitting:
            return min(fitting, key=lambda tiling: abs(math.log(tiling.width / (tiling.rows + 1) / _SHAPE)))
    return None


def _one(
    data: VisibleData,
    cores: range,
    axes: Axes,
    tiling: _Tiling,
    points: Sequence[tuple[int, _Span]],
    bad: bool,
) -> list[Line]:
    """A chart: its title and its rows, each `tiling.width` cells wide."""
    canvas, band = axes.canvas(), axes.canvas()
    odd = data.outlier is not None and data.outlier.core in cores
    if axes.y is not None:
        _trace(canvas, band, points, axes.y, canvas.dots_y)
    tone: Tone = "alert" if odd else "accent"
    guide = cursor_cell(data, axes)
    body = braille.compose(
        [DotLayer(canvas, tone)], band=DotLayer(band, "band"), guide=guide, painted=data.ramp is not None
    )
    if outside(data, axes.y):
        body = with_arrows(body, ((x, low, high) for x, (low, _, high) in points), axes.y)
    edge = Span("\u2502", "alert" if odd else "dim")
    title = fit(_title(data, cores, tiling.width - 1, odd=odd, bad=bad), tiling.width - 1)
    rows: list[Line] = [title, *([edge, *line] for line in body)]
    return [[*row, Span(" " * (tiling.width - width_of(row)))] for row in rows]


def _title(data: VisibleData, cores: range, width: int, *, odd: bool, bad: bool) -> Line:
    """The cores of a chart, and for a single core its loss under the cursor, by default the newest. If there is no room
    for both the cores and the outlier, only the outlier."""
    wrong = [Span(f" {SIGNS['non_finite'].mark}", "bad")] if bad else []
    if len(cores) == 1:
        value = fmt.number(_loss_of(data, cores.start))
        line: Line = [Span(f"core {cores.start} ", "alert" if odd else "label"), Span(value, "plain")]
    else:
        line = [Span(f"{cores.start:,} to {cores.stop - 1:,}", "alert" if odd else "label")]
        if odd and data.outlier is not None:
            named = Span(f"\u25b2 {data.outlier.core}", "alert")
            line = [*line, Span("  "), named]
            line = line if width_of([*line, *wrong]) <= width else [named]
    return [*line, *wrong]


def _loss_of(data: VisibleData, core: int) -> float | None:
    """The loss of a core in its newest step, as the cores panel prints it. The mean of the column under the cursor, or
    of the last visible one if the newest step is not visible."""
    cursor = data.view.cursor
    if cursor is None and data.newest:
        return next((newest.loss for newest in data.newest if newest.core == core), None)
    means = (data.cores[-1] if cursor is None else column_at(data.cores, cursor) or data.cores[-1]).means
    return means[core] if core < len(means) else math.nan


def _by_dot(spans: Sequence[_Span | None], dots: Sequence[int]) -> list[tuple[int, _Span]]:
    """The spans of some cores by dot column."""
    joined: list[tuple[int, _Span]] = []
    for x, span in zip(dots, spans, strict=True):
        if span is None:
            continue
        if joined and joined[-1][0] == x:
            last = joined[-1][1]
            span = (min(span[0], last[0]), span[1], max(span[2], last[2]))
            joined[-1] = (x, span)
        else:
            joined.append((x, span))
    return joined


def _reduce(column: CoreColumn, groups: Sequence[range]) -> list[_Span | None]:
    means = column.means
    total = sum(means)
    whole = total - total == 0.0
    spans: list[_Span | None] = []
    for cores in groups:
        part = means[cores.start : cores.stop]
        values = part if whole else [value for value in part if math.isfinite(value)]
        spans.append((min(values), sum(values) / len(values), max(values)) if values else None)
    for extreme in (column.highest, column.lowest):
        span = spans[row] if extreme and (row := extreme.core // len(groups[0])) < len(spans) else None
        if extreme is not None and span is not None:
            spans[row] = (min(span[0], extreme.value), span[1], max(span[2], extreme.value))
    return spans


def _trace(canvas: Canvas, band: Canvas, points: Sequence[tuple[int, _Span]], scale: Scale, dots: int) -> None:
    row = dot_of(scale, dots)
    for x, (low, _, high) in points:
        band.column(x, row(high), row(low))
    trace(canvas, [(x, mean) for x, (_, mean, _) in points], row)

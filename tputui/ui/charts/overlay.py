"""A line for each core over the mean; of very many cores only the ones farthest from it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from tputui.state.chart_data import CoreColumn
from tputui.ui.charts.band import dot_of, dots_of, trace, trace_core
from tputui.ui.charts.visible_data import Chart, VisibleData, axes_of, cursor_cell, hidden_by_log, sampled, with_axes
from tputui.ui.render import braille
from tputui.ui.render.braille import Canvas, Layer
from tputui.ui.render.lines import Tone

LINES_MAX = 64
"""More lines are unreadable and slow to draw."""

_TONES: tuple[Tone, ...] = ("band", "accent", "alert")

_RECENT = 8
"""Number of newest columns by which cores are chosen if there are too many."""


def draw(data: VisibleData, width: int, height: int) -> Chart:
    """Draws a line for each core, the mean over them, and the outlier on top."""
    axes = axes_of(data, width, height)
    cores, mean, outlier = (Layer(axes.canvas(), tone) for tone in _TONES)
    shown = chosen(data.cores)
    if axes.y is not None:
        row = dot_of(axes.y, mean.canvas.dots_y)
        _trace_all(cores.canvas, data.cores, shown, dots_of(data.cores, axes.x), row)
        means = [(column.x, column.mean) for column in data.columns.merged(axes.x.dots())]
        smooth = list(dict(zip(axes.x.dots(), data.smooth, strict=True)).items()) if data.smooth else means
        trace(mean.canvas, smooth, row)
        if data.outlier is not None:
            trace_core(outlier.canvas, data.cores, data.outlier.core, axes.x, row)
    body = braille.compose([cores, mean, outlier], guide=cursor_cell(data, axes))
    notes = (_note(data.cores, shown), *sampled(data))
    return Chart(with_axes(data, body, axes, height), axes, notes, hidden_by_log(data))


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
    found = {*heapq.nlargest(half, finite, key=sums.__getitem__), *heapq.nsmallest(half, finite, key=sums.__getitem__)}
    return sorted(found)


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
        return f"{num_cores:,} line{'' if num_cores == 1 else 's'}" if num_cores else ""
    return f"the {len(shown)} cores farthest out of {num_cores:,}"

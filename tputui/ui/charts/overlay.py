"""Every core as a line over the mean; of very many the ones that are farthest from it. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from tputui.state.chart_data import CoreColumn
from tputui.ui.charts.band import blank, dot_of, dots_of, setting, trace, trace_core
from tputui.ui.charts.visible_data import Chart, VisibleData, cursor_cell, finish, hidden_by_log, sampled
from tputui.ui.render import braille
from tputui.ui.render.braille import Canvas, Layer

LINES_MAX = 64
"""More lines than that cannot be told apart, and cost a frame."""

_RECENT = 8
"""Newest columns by which cores are chosen where there are too many."""


def draw(scene: VisibleData, width: int, height: int) -> Chart:
    """A line a core, the mean over them, the outlier on top."""
    place = setting(scene, width, height)
    cores, mean = Layer(blank(place.area), "band"), Layer(blank(place.area), "accent")
    odd = Layer(blank(place.area), "alert")
    shown = chosen(scene.cores)
    if place.scale is not None:
        row = dot_of(place.scale, mean.canvas.dots_y)
        _trace_all(cores.canvas, scene.cores, shown, dots_of(scene.cores, place.domain), row)
        means = [(column.x, column.mean) for column in scene.figures.columns(place.domain.dots())]
        smooth = list(dict(zip(place.domain.dots(), scene.smooth, strict=True)).items()) if scene.smooth else means
        trace(mean.canvas, smooth, row)
        if scene.outlier is not None:
            trace_core(odd.canvas, scene.cores, scene.outlier.core, place.domain, row)
    body = braille.compose([cores, mean, odd], guide=cursor_cell(scene, place.domain))
    drawn = finish(scene, body, place.domain, place.area, place.labels, height)
    return Chart(
        drawn,
        place.area,
        place.domain,
        (_note(scene.cores, shown), *sampled(scene)),
        hidden_by_log(scene, scene.look.log),
    )


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

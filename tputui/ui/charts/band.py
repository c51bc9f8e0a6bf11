"""The mean over all cores with the band from the least to the greatest of them, and the core that stands out. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tputui.state.chart_data import CoreColumn
from tputui.ui.charts import axis, frame
from tputui.ui.charts.axis import Domain
from tputui.ui.charts.columns import ChartColumn
from tputui.ui.charts.frame import Area
from tputui.ui.charts.visible_data import (
    Chart,
    VisibleData,
    cursor_cell,
    domain_of,
    finish,
    hidden_by_log,
    rows_for,
    scale_of,
)
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X, Canvas, Layer


class Setting(NamedTuple):
    """Where a chart with axes stands."""

    scale: axis.Scale | None
    labels: dict[int, str]
    area: Area
    domain: Domain


def setting(scene: VisibleData, width: int, height: int) -> Setting:
    """Axes and room of a chart."""
    rows = rows_for(height)
    scale = scale_of(scene, scene.look.log)
    labels = frame.y_labels(scale, rows)
    area = Area(frame.left_of(labels), width - frame.left_of(labels), rows)
    return Setting(scale, labels, area, domain_of(scene, area.across * DOTS_X))


def draw(scene: VisibleData, width: int, height: int) -> Chart:
    """Mean, band and outlier; behind a smoothed mean the one that was measured."""
    place = setting(scene, width, height)
    found = scene.figures.columns(place.domain.dots())
    band, lines = _layers(scene, found, place)
    body = braille.compose(lines, band=band, guide=cursor_cell(scene, place.domain))
    drawn = finish(scene, body, place.domain, place.area, place.labels, height)
    return Chart(drawn, place.area, place.domain, hidden=hidden_by_log(scene, scene.look.log))


def _layers(scene: VisibleData, found: Sequence[ChartColumn], place: Setting) -> tuple[Layer, list[Layer]]:
    canvas, scale = blank(place.area), place.scale
    mean = Layer(blank(place.area), "accent")
    if scale is None:
        return Layer(canvas, "band"), [mean]
    row = dot_of(scale, canvas.dots_y)
    fill_band(canvas, found, row)
    lines = [mean]
    if scene.outlier is not None:
        odd = Layer(blank(place.area), "alert")
        trace_core(odd.canvas, scene.cores, scene.outlier.core, place.domain, row)
        lines.insert(0, odd)
    if scene.smooth:
        raw = Layer(blank(place.area), "label")
        trace(raw.canvas, [(column.x, column.mean) for column in found], row)
        trace(mean.canvas, list(dict(zip(place.domain.dots(), scene.smooth, strict=True)).items()), row)
        lines.insert(0, raw)
    else:
        trace(mean.canvas, [(column.x, column.mean) for column in found], row)
    return Layer(canvas, "band"), lines


def blank(area: Area) -> Canvas:
    """A canvas for the dots."""
    return Canvas(area.across, area.rows)


def dot_of(scale: axis.Scale, dots: int) -> Callable[[float], int]:
    """A function that gives the dot row of a value, `dots` high; what lies outside is one row outside."""
    form = math.log if scale.log else float
    low, high, most = form(scale.low), form(scale.high), dots - 1
    per = most / (high - low) if high > low else 0.0

    def linear(value: float) -> int:
        row = round((high - value) * per)
        return row if 0 <= row <= most else -1 if row < 0 else dots

    return (lambda value: linear(math.log(value)) if value > 0.0 else most) if scale.log else linear


def fill_band(canvas: Canvas, found: Sequence[ChartColumn], row: Callable[[float], int]) -> None:
    """The dots from the least to the greatest value; where no value is finite there is a gap."""
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
    """Fills the columns between two that hold values."""
    gap = end[0] - start[0]
    for x in range(start[0] + 1, end[0]):
        share = (x - start[0]) / gap
        canvas.column(x, round(start[1] + (end[1] - start[1]) * share), round(start[2] + (end[2] - start[2]) * share))


def trace(canvas: Canvas, points: Sequence[tuple[int, float]], row: Callable[[float], int]) -> None:
    """A line through points of dot column and value; a value that is not finite is a gap."""
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
    canvas: Canvas, columns: Sequence[CoreColumn], core: int, domain: Domain, row: Callable[[float], int]
) -> None:
    """The line of one core; of several of its columns in one dot column the greatest is shown."""
    points: dict[int, float] = {}
    for x, column in zip(dots_of(columns, domain), columns, strict=True):
        if core < len(column.means):
            value = column.means[core]
            known = points.get(x)
            points[x] = value if known is None or not known >= value else known
    trace(canvas, list(points.items()), row)


def dots_of(columns: Sequence[CoreColumn], domain: Domain) -> list[int]:
    """The dot column of each column of cores."""
    at, dot = domain.at, domain.dot
    return [dot(at(column.middle)) for column in columns]

"""A series with its band as lines of spans: axes, ticks, marks. Pure.

The mean is a bright line of braille dots, the least and greatest values over cores a dimmer band behind it. Values
that are not finite are marked on the x axis and never dropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui.model.snapshot import Segment
from tputui.ui import axis
from tputui.ui.braille import DOTS_X, DOTS_Y, Canvas, above, below, glyph
from tputui.ui.columns import Column, columns
from tputui.ui.lines import Line, Span, Tone

NON_FINITE_MARK = "\u2716"


class Plot(NamedTuple):
    """A drawn series: for the tests, and for whoever draws on top of it."""

    lines: list[Line]
    columns: list[Column]
    scale: axis.Scale | None


class _Layers(NamedTuple):
    mean: Canvas
    band: Canvas


def plot(segments: Sequence[Segment], width: int, height: int, *, log: bool = False) -> Plot:
    """Draws a series in `width` by `height` cells, axes included."""
    rows = height - 2
    if not segments or rows < 1 or width < 12:
        return Plot([], [], None)
    first, last = segments[0].first_step, segments[-1].last_step
    scale = axis.scale_for([bound for segment in segments for bound in (segment.min, segment.max)], log)
    labels = _y_labels(scale, rows)
    left = max([len(text) for text in labels.values()] + [4]) + 1
    across = width - left - 1
    found = columns(segments, first, last, across * DOTS_X)
    layers = _draw(found, scale, across, rows)
    lines = [
        [Span(f"{labels.get(row, ''):>{left}}", "label"), _edge(row in labels), *_cells(layers, row)]
        for row in range(rows)
    ]
    return Plot([*lines, *_x_axis(found, first, last, left, across)], found, scale)


def dot_row(value: float, scale: axis.Scale, dots: int) -> int:
    """Dot row of a value, 0 at the top."""
    return round((1.0 - scale.place(value)) * (dots - 1))


def _draw(found: Sequence[Column], scale: axis.Scale | None, width: int, height: int) -> _Layers:
    """The dots of mean and band. Neighbouring columns are joined; where no value is finite there is a gap."""
    layers = _Layers(Canvas(width, height), Canvas(width, height))
    if scale is None:
        return layers
    previous: Column | None = None
    for column in found:
        if math.isnan(column.mean):
            previous = None
            continue
        _join(layers, previous or column, column, scale)
        previous = column
    return layers


def _join(layers: _Layers, start: Column, end: Column, scale: axis.Scale) -> None:
    dots = layers.mean.dots_y
    (low0, high0), (low1, high1) = (
        (dot_row(column.low, scale, dots), dot_row(column.high, scale, dots)) for column in (start, end)
    )
    span = max(end.x - start.x, 1)
    for x in range(start.x, end.x + 1):
        share = (x - start.x) / span if end.x > start.x else 1.0
        layers.band.column(x, round(high0 + (high1 - high0) * share), round(low0 + (low1 - low0) * share))
    layers.mean.line(start.x, dot_row(start.mean, scale, dots), end.x, dot_row(end.mean, scale, dots))


def _cells(layers: _Layers, row: int) -> Line:
    """A row of cells, neighbours of one tone in one span."""
    line: Line = []
    text, tone = "", "plain"
    for column in range(layers.mean.width):
        bits, its_tone = _cell(layers, column, row)
        if its_tone != tone and text:
            line.append(Span(text, _tone(tone)))
            text = ""
        text, tone = text + glyph(bits), its_tone
    return [*line, Span(text, _tone(tone))] if text else line


def _cell(layers: _Layers, column: int, row: int) -> tuple[int, str]:
    """The dots of a cell. Beside the mean, dots of the band stand only where its edge is in the cell.

    So the mean is a thin line in a broad band, and an edge is never hidden.
    """
    mean, band = layers.mean.cell(column, row), layers.band.cell(column, row)
    if not mean:
        return band, "band"
    if _has_dots(layers.band, column, row - 1):
        band &= ~above(mean)
    if _has_dots(layers.band, column, row + 1):
        band &= ~below(mean)
    return mean | band, "accent"


def _has_dots(canvas: Canvas, column: int, row: int) -> bool:
    return 0 <= row < canvas.height and canvas.cell(column, row) != 0


def _tone(name: str) -> Tone:
    return "accent" if name == "accent" else "band"


def _y_labels(scale: axis.Scale | None, rows: int) -> dict[int, str]:
    """Ticks of the y axis by row."""
    if scale is None:
        return {}
    values = axis.ticks(scale, max(2, rows // 2)) or [scale.low, scale.high]
    step = min((b - a for a, b in itertools.pairwise(values)), default=abs(scale.high - scale.low) or 1.0)
    return {dot_row(value, scale, rows * DOTS_Y) // DOTS_Y: _y_label(value, step, scale.log) for value in values}


def _edge(ticked: bool) -> Span:
    return Span("\u2524" if ticked else "\u2502", "dim")


def _y_label(value: float, step: float, log: bool) -> str:
    return f"{value:.3g}" if log else axis.label(value, step)


def _x_axis(found: Sequence[Column], first: int, last: int, left: int, width: int) -> list[Line]:
    """The axis with a mark where values were not finite, and the steps below."""
    bad = {column.x // DOTS_X for column in found if column.bad}
    places: dict[int, str] = {}
    for step in axis.step_ticks(first, last, max(2, width // 8)):
        share = (step - first) / (last - first) if last > first else 0.5
        places[round(share * (width * DOTS_X - 1)) // DOTS_X] = f"{step:,}"
    ruler: Line = [Span(" " * left, "dim"), Span("\u2514", "dim")]
    for cell in range(width):
        if cell in bad:
            ruler.append(Span(NON_FINITE_MARK, "bad"))
        else:
            ruler.append(Span("\u252c" if cell in places else "\u2500", "dim"))
    return [ruler, [Span(_numbers(places, left + 1, width), "label")]]


def _numbers(places: dict[int, str], left: int, width: int) -> str:
    text = [" "] * (left + width)
    free_from = 0
    for cell, label in sorted(places.items()):
        start = min(left + cell - len(label) // 2, len(text) - len(label))
        if start >= free_from and start >= 0:
            text[start : start + len(label)] = label
            free_from = start + len(label) + 1
    return "".join(text)

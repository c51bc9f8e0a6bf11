"""The frame of a chart: labels of the y axis, the x axis with its signs, and the line of events."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tputui.ui.charts import axis
from tputui.ui.charts.axis import XAxis
from tputui.ui.charts.events_line import SIGNS, EventSign, line_of
from tputui.ui.render.braille import DOTS_X, DOTS_Y, Canvas
from tputui.ui.render.lines import Line, Span

NON_FINITE_MARK = SIGNS["non_finite"].mark
CURSOR_MARK = "\u25b4"

_LEAST_LEFT = 5
_STRIP_NAME = "events"


class Axes(NamedTuple):
    """The axes of a chart and the terminal cells available for its dots."""

    x: XAxis
    y: axis.Scale | None
    """None if no value is finite, or if rows are not values."""
    labels: Mapping[int, str]
    """Labels of the y axis, by row of cells from the top."""
    left: int
    """Cells to the left of the dots, including the y axis."""
    across: int
    """Width of the dot area in cells; 0 if the chart has no x axis."""
    rows: int
    """Height of the dot area in cells."""

    def canvas(self) -> Canvas:
        """An empty canvas for the dots."""
        return Canvas(self.across, self.rows)

    def cell_of(self, step: float) -> int:
        """The cell of a step; may be outside the chart."""
        return self.x.dot(self.x.at(step)) // DOTS_X


def dot_row(value: float, scale: axis.Scale, dots: int) -> int:
    """Dot row of a value, 0 at the top."""
    return round((1.0 - scale.place(value)) * (dots - 1))


def y_labels(scale: axis.Scale | None, rows: int) -> dict[int, str]:
    """Ticks of the y axis by row."""
    if scale is None:
        return {}
    values = axis.ticks(scale, max(2, rows // 2)) or [scale.low, scale.high]
    step = min((b - a for a, b in itertools.pairwise(values)), default=abs(scale.high - scale.low) or 1.0)
    texts = (f"{value:.3g}" if scale.log else axis.label(value, step) for value in values)
    return {dot_row(value, scale, rows * DOTS_Y) // DOTS_Y: text for value, text in zip(values, texts, strict=True)}


def left_of(labels: Mapping[int, str]) -> int:
    """Width in cells of the labels and the y axis."""
    return max([len(text) + 1 for text in labels.values()] + [_LEAST_LEFT]) + 1


def sided(body: Sequence[Line], axes: Axes) -> list[Line]:
    """Add the y axis to the left of the rows."""
    return [
        [
            Span(f"{axes.labels.get(row, ''):>{axes.left - 1}}", "label"),
            Span("\u2524" if row in axes.labels else "\u2502", "dim"),
            *line,
        ]
        for row, line in enumerate(body)
    ]


def ruler_lines(axes: Axes, signs: Mapping[int, EventSign], cursor: int | None) -> list[Line]:
    """The x axis with signs on it, and the tick labels below."""
    places: dict[int, str] = {}
    for value, name in axes.x.ticks(max(2, axes.across // 9)):
        places[axes.x.dot(value) // DOTS_X] = name
    on_ruler = dict(signs)
    for cell in places:
        on_ruler.setdefault(cell, EventSign("\u252c", "dim", ""))
    if cursor is not None:
        on_ruler[cursor] = EventSign(CURSOR_MARK, "strong", "")
    edge = Span(" " * (axes.left - 1) + "\u2514", "dim")
    ruler: Line = [edge, *line_of(on_ruler, axes.across, "\u2500")]
    return [ruler, [Span(_numbers(places, axes), "label")]]


def strip_line(signs: Mapping[int, EventSign], axes: Axes) -> Line:
    """The line of events below a chart."""
    name = _STRIP_NAME if axes.left > len(_STRIP_NAME) else ""
    return [Span(f"{name:>{axes.left - 1}} ", "dim"), *line_of(dict(signs), axes.across)]


def bad_signs(dots: Sequence[int]) -> dict[int, EventSign]:
    """Signs of NaN and infinite values, by cell."""
    return {dot // DOTS_X: SIGNS["non_finite"] for dot in dots}


def _numbers(places: Mapping[int, str], axes: Axes) -> str:
    text = [" "] * (axes.left + axes.across)
    free_from = 0
    for cell, label in sorted(places.items()):
        start = min(axes.left + cell - len(label) // 2, len(text) - len(label))
        if start >= free_from and start >= 0:
            text[start : start + len(label)] = label
            free_from = start + len(label) + 1
    return "".join(text).rstrip()

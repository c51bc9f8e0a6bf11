"""The chart of a comparison: the curves of several runs over one x axis."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tputui.compare.compare import LABELS
from tputui.ui.charts import axis
from tputui.ui.charts.axis import Axes, AxisInfo, XAxis, XKind
from tputui.ui.charts.chart_view import Chart, with_arrows
from tputui.ui.charts.curves import dot_of, trace
from tputui.ui.charts.scale import Scale, fitted, scale_for, y_labels
from tputui.ui.charts.y_range import YRange, joined_scale, manual_scale, outside_note, robust_scale_of
from tputui.ui.compare.compare_view import TONES
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X, DOTS_Y, Layer
from tputui.ui.render.lines import Line, Span, Tone, joined, paragraph, width_of


class Curve(NamedTuple):
    """The curve of one run."""

    run: int
    """Index of the run."""
    xs: list[float]
    """Positions on the x axis, ascending."""
    values: list[float]
    """The values drawn, smoothed if smoothing is on; as many as `xs`. May be NaN or infinite."""
    raw: list[float]
    """The values before smoothing; empty without smoothing."""
    bad: list[float]
    """Positions of NaN and infinite values."""
    train: Sequence[float] = ()
    """The training values of a metric of the validation split, NaN where there is none; empty without any."""

    @property
    def label(self) -> str:
        """The letter of its run."""
        return LABELS[self.run]

    @property
    def tone(self) -> Tone:
        """The colour of its run."""
        return TONES[self.run]

    def value_at(self, x: float) -> float | None:
        """The value nearest to `x`; None outside the curve."""
        if not self.xs or not self.xs[0] <= x <= self.xs[-1]:
            return None
        right = min(bisect.bisect_left(self.xs, x), len(self.xs) - 1)
        left = max(right - 1, 0)
        return self.values[left if x - self.xs[left] <= self.xs[right] - x else right]


Row = Callable[[float], int]
"""Maps a value to its dot row."""

_MIN_WIDTH, _MIN_HEIGHT = 16, 4
_LETTERS_APART = 9
"""Cells between two letters on the lines."""


def draw_chart(
    curves: Sequence[Curve],
    kind: XKind,
    width: int,
    height: int,
    *,
    log: bool,
    chosen: int,
    cursor: float | None,
    y: YRange = YRange(),  # noqa: B008 - immutable
) -> Chart | None:
    """Draws the curves, that of the run `chosen` on top with its raw values behind it; None if there is no room.

    Values outside the y range `y` are arrows at the edge, and are counted.
    """
    if width < _MIN_WIDTH or height < _MIN_HEIGHT or not any(curve.xs for curve in curves):
        return None
    rows = height - 2
    scale = _scale(curves, y, rows, log=log)
    labels = y_labels(scale, rows)
    left = axis.left_of(labels)
    axes = Axes(_x_axis(curves, kind, (width - left) * DOTS_X), scale, labels, left, width - left, rows)
    at = axes.x.dot(cursor) // DOTS_X if cursor is not None else None
    cut = _cut(curves, scale)
    body = with_arrows(_body(curves, axes, chosen, at), [(axes.x.dot(x), each, each) for x, each in cut], scale)
    num_above = sum(value > scale.high for _, value in cut) if scale is not None else 0
    outside = outside_note(num_above, len(cut) - num_above, scale)
    bad = axis.bad_signs([axes.x.dot(x) for curve in curves for x in curve.bad])
    lines = [*axis.sided(body, axes), *axis.ruler_lines(axes, bad, at)]
    return Chart(lines, axes, hidden=sum(_below(curve) for curve in curves) if log else 0, outside=outside)


def _scale(curves: Sequence[Curve], y: YRange, rows: int, *, log: bool) -> Scale | None:
    """The y axis: of the chosen range, by default without outliers. A logarithmic axis has room for all values."""
    scale: Scale | None = None
    if y.kind == "robust" and not log:
        for curve in curves:
            for values in (curve.values, curve.raw, curve.train):
                scale = joined_scale(scale, robust_scale_of(values))
    else:
        scale = scale_for([value for curve in curves for value in _bounds(curve, log)], log)
    if scale is None or y.kind == "manual":
        return manual_scale(y, scale) if scale is not None else None
    return fitted(scale, rows)


def _cut(curves: Sequence[Curve], scale: Scale | None) -> list[tuple[float, float]]:
    """Position and value of the points outside the y axis, without those that a logarithmic axis can never show."""
    if scale is None:
        return []
    low, high, least = scale.low, scale.high, 0.0 if scale.log else -math.inf
    points = itertools.chain.from_iterable(zip(curve.xs, curve.values, strict=True) for curve in curves)
    return [(x, value) for x, value in points if not low <= value <= high and least < value < math.inf]


def _bounds(curve: Curve, log: bool) -> tuple[float, ...]:
    finite = [
        value for value in (*curve.values, *curve.raw, *curve.train) if math.isfinite(value) and (value > 0 or not log)
    ]
    return (min(finite), max(finite)) if finite else ()


def _below(curve: Curve) -> int:
    return sum(value <= 0 for value in curve.values)


def _x_axis(curves: Sequence[Curve], kind: XKind, width: int) -> XAxis:
    """The x axis that holds every curve, `width` dots wide."""
    x_axis = XAxis([], kind, AxisInfo(), width)
    x_axis.low = min(curve.xs[0] for curve in curves if curve.xs)
    x_axis.high = max(curve.xs[-1] for curve in curves if curve.xs)
    return x_axis


def _body(curves: Sequence[Curve], axes: Axes, chosen: int, cursor: int | None) -> list[Line]:
    scale = axes.y
    ordered = sorted(curves, key=lambda curve: curve.run == chosen)
    if scale is None:
        is_empty = not any(math.isfinite(value) for curve in curves for value in curve.values)
        text = "all values are NaN or infinite" if is_empty else "all values are 0 or less"
        lines = paragraph(text, axes.across, axes.rows, "bad" if is_empty else "label")
        return [*lines, *([] for _ in range(axes.rows - len(lines)))]
    row = dot_of(scale, axes.rows * DOTS_Y)
    drawn: list[Layer] = []
    letters: dict[tuple[int, int], Span] = {}
    for curve in ordered:
        behind = curve.raw or curve.train
        if behind and curve.run == chosen:
            drawn.append(_layer(_points(curve.xs, behind, axes.x, scale.log), row, axes, "dim"))
        points = _points(curve.xs, curve.values, axes.x, scale.log)
        drawn.append(_layer(points, row, axes, curve.tone, single=len(points) == 1))
        letters |= _letters(curve, points, row, len(curves))
    lines = braille.compose(drawn, guide=cursor)
    return [_lettered(line, letters, number) for number, line in enumerate(lines)]


def _points(xs: Sequence[float], values: Sequence[float], x_axis: XAxis, log: bool) -> list[tuple[int, float]]:
    """The mean value of every dot column that holds a point; NaN for values that cannot be drawn."""
    low, span = x_axis.low, x_axis.high - x_axis.low
    # Inlined: eight runs have 16,000 points, and a call for each would cost a axis.
    scale, start = ((x_axis.width - 1) / span, 0.5) if span > 0 else (0.0, x_axis.width // 2)
    points: list[tuple[int, float]] = []
    dot, total, count = -1, 0.0, 0
    for x, value in zip(xs, values, strict=True):
        dot_of_x = int((x - low) * scale + start)
        if dot_of_x != dot:
            if dot >= 0:
                points.append((dot, total / count if count else math.nan))
            dot, total, count = dot_of_x, 0.0, 0
        if value - value == 0.0 and (value > 0 or not log):
            total += value
            count += 1
    return [*points, (dot, total / count if count else math.nan)] if dot >= 0 else points


def _layer(points: Sequence[tuple[int, float]], row: Row, axes: Axes, tone: Tone, *, single: bool = False) -> Layer:
    canvas = axes.canvas()
    trace(canvas, points, row)
    if single and points and math.isfinite(points[0][1]):
        x = points[0][0]
        trace(canvas, [(x - 1, points[0][1]), (x + 1, points[0][1])], row)
    return Layer(canvas, tone)


def _letters(
    curve: Curve, points: Sequence[tuple[int, float]], row: Row, num_curves: int
) -> dict[tuple[int, int], Span]:
    """The letter of a curve by row and cell: at its end and at regular intervals, but not in gaps."""
    rows: dict[int, int] = {}
    for (start, low), (end, high) in itertools.pairwise(points):
        if math.isfinite(low) and math.isfinite(high):
            first, last = row(low), row(high)
            for cell in range(start // DOTS_X, end // DOTS_X + 1):
                share = (min(max(cell * DOTS_X, start), end) - start) / max(end - start, 1)
                rows.setdefault(cell, round(first + (last - first) * share))
    ends = [(dot // DOTS_X, row(value)) for dot, value in points if math.isfinite(value)][-1:]
    period = _LETTERS_APART * max(num_curves, 2)
    first_cell = _LETTERS_APART * curve.run + _LETTERS_APART // 2
    along = [(cell, dot_row) for cell, dot_row in rows.items() if (cell - first_cell) % period == 0]
    return {(dot_row // DOTS_Y, cell): Span(curve.label, curve.tone) for cell, dot_row in (*along, *ends)}


def _lettered(line: Line, letters: Mapping[tuple[int, int], Span], row: int) -> Line:
    """Replaces cells of a line by the letters of its row."""
    in_row = sorted((cell, letter) for (letter_row, cell), letter in letters.items() if letter_row == row)
    if not in_row:
        return line
    cells = [Span(character, span.tone) for span in line for character in span.text]
    cells += [Span(" ")] * (in_row[-1][0] + 1 - width_of(line))
    for cell, letter in in_row:
        cells[cell] = letter
    return joined(cells)

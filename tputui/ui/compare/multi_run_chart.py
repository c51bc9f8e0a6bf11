"""Curves of several runs over one pair of axes: a colour and a letter on the line for each. Pure.

A terminal cell has one colour, so it belongs to the run drawn last; the letters stand on the lines at staggered
places, so that without any colour every line can be told.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tputui.compare.compare import LABELS, meter_points
from tputui.state.snapshot import ENDED, Snapshot
from tputui.ui.charts import axis, frame
from tputui.ui.charts.axis import AxisInfo, Domain, XKind, grounds_of
from tputui.ui.charts.band import blank, dot_of, trace
from tputui.ui.charts.columns import smoothed
from tputui.ui.charts.frame import Area
from tputui.ui.compare.compare_view import TONES, CompareView, MeterKey
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X, DOTS_Y, Canvas, Layer
from tputui.ui.render.lines import Line, Span, Tone, joined, paragraph, width_of


class Curve(NamedTuple):
    """A run's line."""

    run: int
    """Index of the run."""
    xs: list[float]
    """In order."""
    values: list[float]
    """What is drawn: smoothed where that was asked for. May be NaN or infinite."""
    raw: list[float]
    """As it was measured; empty where that is what is drawn."""
    bad: list[float]
    """Places with a value that is not finite."""

    @property
    def label(self) -> str:
        """The letter of its run."""
        return LABELS[self.run]

    @property
    def tone(self) -> Tone:
        """The colour of its run."""
        return TONES[self.run]

    def at(self, x: float) -> float | None:
        """The value nearest to a place; None outside of the curve."""
        if not self.xs or not self.xs[0] <= x <= self.xs[-1]:
            return None
        right = min(bisect.bisect_left(self.xs, x), len(self.xs) - 1)
        left = max(right - 1, 0)
        return self.values[left if x - self.xs[left] <= self.xs[right] - x else right]


class Curves(NamedTuple):
    """What there is to draw."""

    shown: list[Curve]
    """Of the runs in sight, in their order."""
    why_not: list[tuple[str, str]]
    """Label of a run in sight without a curve, and why."""


def known_meters(snapshots: Sequence[Snapshot]) -> list[MeterKey]:
    """What can be charted by epoch: validation before training."""
    found = dict.fromkeys(key for snapshot in snapshots for key in meter_points(snapshot))
    return sorted(found, key=lambda key: key[0] == "train")


def curves(snapshots: Sequence[Snapshot], sight: CompareView) -> Curves:
    """The curves of the runs that are not hidden."""
    shown: list[Curve] = []
    why_not: list[tuple[str, str]] = []
    for index, snapshot in enumerate(snapshots):
        if index in sight.hidden:
            continue
        found = _of_loss(index, snapshot, sight) if sight.meter is None else _of_meter(index, snapshot, sight)
        if isinstance(found, Curve):
            shown.append(found)
        else:
            why_not.append((LABELS[index], found))
    return Curves(shown, why_not)


def _of_loss(index: int, snapshot: Snapshot, sight: CompareView) -> Curve | str:
    segments, grounds = snapshot.loss, grounds_of(snapshot)
    if not segments:
        return _nothing(snapshot, "loss")
    why_not = grounds.why_not(sight.x, segments)
    if why_not:
        return why_not
    xs = Domain(segments, sight.x, grounds, 1).xs
    means = [segment.mean for segment in segments]
    bad = [x for x, segment in zip(xs, segments, strict=True) if segment.num_bad]
    if not sight.weight:
        return Curve(index, xs, means, [], bad)
    return Curve(index, xs, smoothed(segments, sight.weight), means, bad)


def _of_meter(index: int, snapshot: Snapshot, sight: CompareView) -> Curve | str:
    """A point an epoch that ended, where its last training step stands; smoothing is of steps alone."""
    assert sight.meter is not None
    points = meter_points(snapshot).get(sight.meter)
    if not points:
        return _nothing(snapshot, f"{sight.meter[1]} of an epoch")
    grounds = grounds_of(snapshot)
    if sight.x == "epoch":
        xs = [float(epoch) for epoch, _ in points]
    else:
        why_not = grounds.why_not(sight.x, snapshot.loss) or _no_steps(snapshot, grounds, sight.x)
        if why_not:
            return why_not
        domain = Domain(snapshot.loss, sight.x, grounds, 1)
        xs = [domain.at(epoch * grounds.steps_per_epoch) for epoch, _ in points]
    values = [value for _, value in points]
    return Curve(index, xs, values, [], [x for x, value in zip(xs, values, strict=True) if not math.isfinite(value)])


def _no_steps(snapshot: Snapshot, grounds: AxisInfo, x: XKind) -> str:
    if not grounds.steps_per_epoch:
        return "the steps of an epoch are not known yet"
    return "the times of the steps are not known" if x == "time" and not snapshot.loss else ""


def _nothing(snapshot: Snapshot, what: str) -> str:
    return f"no {what}" if snapshot.condition in ENDED else f"no {what} yet"


Row = Callable[[float], int]
"""Gives the dot row of a value."""

_LEAST_WIDTH, _LEAST_HEIGHT = 16, 4
_LETTERS_APART = 9
"""Cells between two letters on lines, whichever runs they are of."""


class MultiRunChart(NamedTuple):
    """Drawn curves."""

    lines: list[Line]
    area: Area
    domain: Domain
    hidden: int
    """Points that a logarithmic axis cannot show."""


def draw(
    curves: Sequence[Curve], kind: XKind, width: int, height: int, *, log: bool, chosen: int, cursor: float | None
) -> MultiRunChart | None:
    """The curves, that of the run `chosen` on top with what was measured behind it; None where there is no room."""
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT or not any(curve.xs for curve in curves):
        return None
    rows = height - 2
    scale = axis.scale_for([value for curve in curves for value in _bounds(curve, log)], log)
    labels = frame.y_labels(scale, rows)
    area = Area(frame.left_of(labels), width - frame.left_of(labels), rows)
    domain = _domain(curves, kind, area.across * DOTS_X)
    at = domain.dot(cursor) // DOTS_X if cursor is not None else None
    body = _body(curves, domain, area, scale, chosen, at)
    bad = frame.bad_signs([domain.dot(x) for curve in curves for x in curve.bad])
    lines = [*frame.sided(body, labels, area.left), *frame.x_axis(domain, area, bad, at)]
    return MultiRunChart(lines, area, domain, sum(_below(curve) for curve in curves) if log else 0)


def _bounds(curve: Curve, log: bool) -> tuple[float, ...]:
    held = [value for value in (*curve.values, *curve.raw) if math.isfinite(value) and (value > 0 or not log)]
    return (min(held), max(held)) if held else ()


def _below(curve: Curve) -> int:
    return sum(value <= 0 for value in curve.values)


def _domain(curves: Sequence[Curve], kind: XKind, width: int) -> Domain:
    """The x axis on which every curve has room."""
    domain = Domain([], kind, AxisInfo(), width)
    domain.low = min(curve.xs[0] for curve in curves if curve.xs)
    domain.high = max(curve.xs[-1] for curve in curves if curve.xs)
    return domain


def _body(
    curves: Sequence[Curve], domain: Domain, area: Area, scale: axis.Scale | None, chosen: int, cursor: int | None
) -> list[Line]:
    ordered = sorted(curves, key=lambda curve: curve.run == chosen)
    if scale is None:
        is_empty = not any(math.isfinite(value) for curve in curves for value in curve.values)
        why = "every value so far is NaN or infinite" if is_empty else "every value so far is 0 or less"
        said = paragraph(why, area.across, area.rows, "bad" if is_empty else "label")
        return [*said, *([] for _ in range(area.rows - len(said)))]
    row = dot_of(scale, area.rows * DOTS_Y)
    found: list[Layer] = []
    letters: dict[tuple[int, int], Span] = {}
    for curve in ordered:
        if curve.raw and curve.run == chosen:
            found.append(_layer(_points(curve.xs, curve.raw, domain, scale.log), row, area, "dim"))
        points = _points(curve.xs, curve.values, domain, scale.log)
        found.append(_layer(points, row, area, curve.tone, single=len(points) == 1))
        letters |= _letters(curve, points, row, len(curves))
    lines = braille.compose(found, guide=cursor)
    return [_lettered(line, letters, number) for number, line in enumerate(lines)]


def _points(xs: Sequence[float], values: Sequence[float], domain: Domain, log: bool) -> list[tuple[int, float]]:
    """The mean at every dot column that holds a point; what cannot be drawn leaves a gap."""
    low, span = domain.low, domain.high - domain.low
    # Eight runs have sixteen thousand points: a call for each would cost a frame.
    scale, start = ((domain.width - 1) / span, 0.5) if span > 0 else (0.0, domain.width // 2)
    found: list[tuple[int, float]] = []
    dot, total, count = -1, 0.0, 0
    for x, value in zip(xs, values, strict=True):
        its_dot = int((x - low) * scale + start)
        if its_dot != dot:
            if dot >= 0:
                found.append((dot, total / count if count else math.nan))
            dot, total, count = its_dot, 0.0, 0
        if value - value == 0.0 and (value > 0 or not log):
            total += value
            count += 1
    return [*found, (dot, total / count if count else math.nan)] if dot >= 0 else found


def _layer(points: Sequence[tuple[int, float]], row: Row, area: Area, tone: Tone, *, single: bool = False) -> Layer:
    canvas: Canvas = blank(area)
    trace(canvas, points, row)
    if single and points and math.isfinite(points[0][1]):
        x = points[0][0]
        trace(canvas, [(x - 1, points[0][1]), (x + 1, points[0][1])], row)
    return Layer(canvas, tone)


def _letters(
    curve: Curve, points: Sequence[tuple[int, float]], row: Row, num_curves: int
) -> dict[tuple[int, int], Span]:
    """The letter of a curve at its end and, at places of its own, along it; none in a gap."""
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
    found = [(cell, dot_row) for cell, dot_row in rows.items() if (cell - first_cell) % period == 0]
    return {(dot_row // DOTS_Y, cell): Span(curve.label, curve.tone) for cell, dot_row in (*found, *ends)}


def _lettered(line: Line, letters: Mapping[tuple[int, int], Span], row: int) -> Line:
    """The line with the letters of its row put in place of what stands there."""
    mine = sorted((cell, letter) for (its_row, cell), letter in letters.items() if its_row == row)
    if not mine:
        return line
    cells = [Span(character, span.tone) for span in line for character in span.text]
    cells += [Span(" ")] * (mine[-1][0] + 1 - width_of(line))
    for cell, letter in mine:
        cells[cell] = letter
    return joined(cells)

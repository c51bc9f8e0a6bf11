"""Curves of several runs in one chart: training loss by step or a metric by epoch, over the selected x axis.

A terminal cell has one colour, so the run drawn last owns it; letters along the lines identify the runs without colour.
A run without data for the metric or the axis has no curve but a reason.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.compare.compare import LABELS, meter_points
from tputui.compare.table import meter_name
from tputui.state.chart_data import LoggedView
from tputui.state.metric_series import MetricSource
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.ui.base.export import Figure, Figures
from tputui.ui.charts import axis
from tputui.ui.charts.axis import NON_FINITE_MARK, Axes, AxisInfo, XAxis, XKind, axis_info_of, clock, compact
from tputui.ui.charts.chart_view import Chart, with_arrows
from tputui.ui.charts.columns import smoothed
from tputui.ui.charts.curves import dot_of
from tputui.ui.charts.scale import YRange, suggests_log, y_labels
from tputui.ui.charts.several import empty_body, line_of, note_of, outside_of, scale_of_all
from tputui.ui.compare.compare_view import TONES, ComparedPart, CompareView, MeterKey
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X, DOTS_Y, DotLayer
from tputui.ui.render.lines import Line, Span, Tone, cells_of, clean, joined, paragraph, width_of
from tputui.ui.widgets.panel import Drawing, Panel


class RunCurve(NamedTuple):
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
    curves: Sequence[RunCurve],
    kind: XKind,
    width: int,
    height: int,
    *,
    log: bool | None,
    chosen: int,
    cursor: float | None,
    y: YRange = YRange(),  # noqa: B008 - immutable
) -> Chart | None:
    """Draws the curves, that of the run `chosen` on top with its raw values behind it; None if there is no room.

    Values outside the y range `y` are arrows at the edge, and are counted. With `log` None the y axis is logarithmic if
    that shows more of a curve.
    """
    if width < _MIN_WIDTH or height < _MIN_HEIGHT or not any(curve.xs for curve in curves):
        return None
    rows = height - 2
    series = [values for curve in curves for values in (curve.values, curve.raw, curve.train)]
    scale = scale_of_all(series, y, rows, log=bool(log))
    if log is None and y.kind != "manual" and any(suggests_log(curve.values, scale) for curve in curves):
        log, scale = True, scale_of_all(series, y, rows, log=True)
    labels = y_labels(scale, rows)
    left = axis.left_of(labels)
    axes = Axes(_x_axis(curves, kind, (width - left) * DOTS_X), scale, labels, left, width - left, rows)
    at = axes.x.dot(cursor) // DOTS_X if cursor is not None else None
    cut = outside_of((point for curve in curves for point in zip(curve.xs, curve.values, strict=True)), scale)
    body = with_arrows(_body(curves, axes, chosen, at), [(axes.x.dot(x), y, y) for x, y in cut], scale)
    outside = note_of(cut, scale)
    bad = axis.bad_signs([axes.x.dot(x) for curve in curves for x in curve.bad])
    lines = [*axis.sided(body, axes), *axis.ruler_lines(axes, bad, at)]
    return Chart(lines, axes, hidden=sum(_below(curve) for curve in curves) if log else 0, outside=outside)


def _below(curve: RunCurve) -> int:
    return sum(value <= 0 for value in curve.values)


def _x_axis(curves: Sequence[RunCurve], kind: XKind, width: int) -> XAxis:
    """The x axis that holds every curve, `width` dots wide."""
    x_axis = XAxis([], kind, AxisInfo(), width)
    x_axis.low = min(curve.xs[0] for curve in curves if curve.xs)
    x_axis.high = max(curve.xs[-1] for curve in curves if curve.xs)
    return x_axis


def _body(curves: Sequence[RunCurve], axes: Axes, chosen: int, cursor: int | None) -> list[Line]:
    scale = axes.y
    ordered = sorted(curves, key=lambda curve: curve.run == chosen)
    if scale is None:
        return empty_body([value for curve in curves for value in curve.values], axes)
    row = dot_of(scale, axes.rows * DOTS_Y)
    drawn: list[DotLayer] = []
    letters: dict[tuple[int, int], Span] = {}
    for curve in ordered:
        behind = curve.raw or curve.train
        if behind and curve.run == chosen:
            drawn.append(line_of(_points(curve.xs, behind, axes.x, scale.log), row, axes, "dim", is_behind=True))
        points = _points(curve.xs, curve.values, axes.x, scale.log)
        drawn.append(line_of(points, row, axes, curve.tone))
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


def _letters(
    curve: RunCurve, points: Sequence[tuple[int, float]], row: Row, num_curves: int
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


class Curves(NamedTuple):
    """The curves of the visible runs."""

    curves: list[RunCurve]
    missing: list[tuple[str, str]]
    """Label of each visible run without a curve, and the reason."""


def known_meters(snapshots: Sequence[Snapshot]) -> list[MeterKey]:
    """The metrics of all runs by epoch, validation before training."""
    keys = dict.fromkeys(key for snapshot in snapshots for key in meter_points(snapshot))
    keys |= dict.fromkeys((view.split, view.name) for snapshot in snapshots for view in snapshot.logged)
    return sorted(keys, key=lambda key: key[0] == "train")


def curves_of(snapshots: Sequence[Snapshot], view: CompareView) -> Curves:
    """The curves of the runs that are not hidden."""
    curves: list[RunCurve] = []
    missing: list[tuple[str, str]] = []
    for index, snapshot in enumerate(snapshots):
        if index in view.hidden:
            continue
        curve = _loss_curve(index, snapshot, view) if view.meter is None else _meter_curve(index, snapshot, view)
        if isinstance(curve, RunCurve):
            curves.append(curve)
        else:
            missing.append((LABELS[index], curve))
    return Curves(curves, missing)


def _loss_curve(index: int, snapshot: Snapshot, view: CompareView) -> RunCurve | str:
    segments, axis_info = snapshot.loss, axis_info_of(snapshot)
    if not segments:
        return _no_data(snapshot, "loss")
    why_not = axis_info.why_not(view.x, segments)
    if why_not:
        return why_not
    xs = XAxis(segments, view.x, axis_info, 1).xs
    means = [segment.mean for segment in segments]
    bad = [x for x, segment in zip(xs, segments, strict=True) if segment.num_bad]
    if not view.weight:
        return RunCurve(index, xs, means, [], bad)
    return RunCurve(index, xs, smoothed(segments, view.weight), means, bad)


def _meter_curve(index: int, snapshot: Snapshot, view: CompareView) -> RunCurve | str:
    """One point per finished epoch, at its last training step; never smoothed."""
    assert view.meter is not None
    points = meter_points(snapshot).get(view.meter)
    if not points:
        logged = next((metric for metric in snapshot.logged if (metric.split, metric.name) == view.meter), None)
        if logged is not None:
            return _logged_curve(index, snapshot, logged, view)
        return _no_data(snapshot, f"{view.meter[1]} of an epoch")
    axis_info = axis_info_of(snapshot)
    if view.x == "epoch":
        xs = [float(epoch) for epoch, _ in points]
    else:
        why_not = axis_info.why_not(view.x, snapshot.loss) or _no_steps(snapshot, axis_info, view.x)
        if why_not:
            return why_not
        x_axis = XAxis(snapshot.loss, view.x, axis_info, 1)
        xs = [x_axis.at(epoch * axis_info.steps_per_epoch) for epoch, _ in points]
    values = [value for _, value in points]
    bad = [x for x, value in zip(xs, values, strict=True) if not math.isfinite(value)]
    trained = dict(meter_points(snapshot).get(("train", view.meter[1]), ())) if view.meter[0] == "valid" else {}
    train = [trained.get(epoch, math.nan) for epoch, _ in points] if trained else []
    return RunCurve(index, xs, values, [], bad, train)


def _logged_curve(index: int, snapshot: Snapshot, logged: LoggedView, view: CompareView) -> RunCurve | str:
    """The values of a metric that the script logged, without epochs; never smoothed."""
    axis_info, segments = axis_info_of(snapshot), MetricSource.of(snapshot).axis_segments()
    if why_not := axis_info.why_not(view.x, segments):
        return why_not
    x_axis = XAxis(segments, view.x, axis_info, 1)
    xs, values = [x_axis.at(point.last_step) for point in logged.points], [point.mean for point in logged.points]
    bad = [x for x, point in zip(xs, logged.points, strict=True) if point.num_bad]
    return RunCurve(index, xs, values, [], bad)


def _no_steps(snapshot: Snapshot, axis_info: AxisInfo, x: XKind) -> str:
    if not axis_info.steps_per_epoch:
        return "steps per epoch not known yet"
    return "step times not available" if x == "time" and not snapshot.loss else ""


def _no_data(snapshot: Snapshot, subject: str) -> str:
    return f"no {subject}" if snapshot.condition in ENDED else f"no {subject} yet"


_ENTRY = 13
"""Cells of one run's value above the chart."""
_TITLE = 15
"""Cells of the upper frame that are not for the note."""
_POSITION = 17
"""Cells of the cursor position above the chart."""

_AXES: dict[XKind, str] = {"step": "step", "epoch": "epoch", "time": "time from the start", "examples": "examples"}


class ComparedCurvesPanel(Panel[ComparedPart]):
    """Curves of several runs."""

    key = "2"
    name_shown = "curves"
    what = (
        "training loss of every run (mean over cores), or with `m` a metric by epoch; `x` changes the x axis, "
        "`l` and `L` the y axis, `+` and `-` the smoothing; the arrow keys read values"
    )

    class PositionClicked(Message):
        """The user clicked at a position of the x axis."""

        def __init__(self, x: float) -> None:
            super().__init__()
            self.x = x

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cached: tuple[Sequence[Snapshot], object, Curves] | None = None
        self._drawn: Chart | None = None

    @property
    def cells(self) -> tuple[float, float, int] | None:
        """Both ends of the x axis and its width in cells; None without a chart."""
        drawn = self._drawn
        return (drawn.axes.x.low, drawn.axes.x.high, drawn.axes.across) if drawn is not None else None

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends of the y axis."""
        scale = self._drawn.axes.y if self._drawn is not None else None
        return (scale.low, scale.high) if scale is not None else (0.0, 1.0)

    @property
    def is_log(self) -> bool:
        """Whether the y axis is logarithmic."""
        scale = self._drawn.axes.y if self._drawn is not None else None
        return scale is not None and scale.log

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The values of the runs, and the chart below them."""
        view, shown = part.view, self._curves(part)
        head = _values(shown, part, width)
        self._drawn = draw_chart(
            shown.curves,
            view.x,
            width,
            height - len(head),
            log=view.log,
            chosen=view.chosen,
            cursor=view.cursor,
            y=view.y,
        )
        if self._drawn is None:
            text = "; ".join(f"{label}: {reason}" for label, reason in shown.missing) or "no room for a chart"
            return Drawing(paragraph(text, width, height), note=_note(part, None, width))
        has_train = any(curve.train and curve.run == view.chosen for curve in shown.curves)
        note = _note(part, self._drawn, width, has_train, shown.missing)
        return Drawing(self._drawn.lines, head=tuple(head), note=note)

    def figures(self) -> Figures:
        """The raw values of the visible curves over the selected axis."""
        axis: XKind = self._part.view.x if self._part is not None else "step"
        head = ("run", "label", "time_s" if axis == "time" else axis, "value", "train_value")
        rows: list[tuple[Figure, ...]] = []
        if self._part is not None:
            runs = self._part.comparison.runs
            for curve in self._curves(self._part).curves:
                run = runs[curve.run].run
                train: Sequence[float | None] = curve.train or [None] * len(curve.xs)
                values = zip(curve.xs, curve.raw or curve.values, train, strict=True)
                rows += [(run, curve.label, x, value, trained) for x, value, trained in values]
        return Figures(head, rows)

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the clicked position."""
        drawn = self._drawn
        cell = event.x - 1 - (drawn.axes.left if drawn is not None else 0)
        if drawn is not None and 0 <= cell < drawn.axes.across:
            self.post_message(
                self.PositionClicked(position_of(drawn.axes.x.low, drawn.axes.x.high, drawn.axes.across, cell))
            )

    def _curves(self, part: ComparedPart) -> Curves:
        """The curves, cached while the data and the settings that affect them are unchanged."""
        view = part.view
        settings = (view.hidden, view.meter, view.x, view.smoothing)
        if self._cached is None or self._cached[0] is not part.snapshots or self._cached[1] != settings:
            self._cached = (part.snapshots, settings, curves_of(part.snapshots, view))
        return self._cached[2]


def position_of(low: float, high: float, across: int, cell: int) -> float:
    """The x value at the middle of a cell."""
    return low + (high - low) * min(max((cell * DOTS_X + 0.5) / max(across * DOTS_X - 1, 1), 0.0), 1.0)


def cell_at(low: float, high: float, across: int, x: float) -> int:
    """The cell of an x value."""
    return round((x - low) / (high - low) * (across * DOTS_X - 1)) // DOTS_X if high > low else across // 2


def position_text(x: float, kind: XKind) -> str:
    """A position on the x axis with its unit."""
    if kind == "time":
        return f"at {clock(x, max(x, 120.0))}"
    if kind == "examples":
        return f"{compact(x)} examples"
    return f"epoch {x:.2f}" if kind == "epoch" else f"step {x:,.0f}"


def metric_text(view: CompareView) -> str:
    """The charted metric: `loss`, `valid auc by epoch`."""
    return "loss" if view.meter is None else f"{clean(meter_name(*view.meter))} by epoch"


def _values(shown: Curves, part: ComparedPart, width: int) -> list[Line]:
    """The value of every run at the cursor, or the newest one. The number of lines does not depend on the values."""
    view = part.view
    newest = "newest" if view.meter or view.weight else "last step"
    position = position_text(view.cursor, view.x) if view.cursor is not None else newest
    drawn = {curve.run: curve for curve in shown.curves}
    entries = [_entry(run, drawn.get(run), view.cursor, part) for run in range(len(part.snapshots))]
    per_line = max((width - _POSITION) // _ENTRY, 1)
    lines: list[Line] = []
    for start in range(0, len(entries), per_line):
        first = Span(
            f" {position if not start else '':<{_POSITION - 1}}", "strong" if view.cursor is not None else "label"
        )
        lines.append([first, *(span for entry in entries[start : start + per_line] for span in entry)])
    return lines


def _entry(run: int, curve: RunCurve | None, cursor: float | None, part: ComparedPart) -> Line:
    """A letter and a value, padded to a fixed width."""
    label, tone = part.comparison.runs[run].label, TONES[run]
    if curve is None:
        return [Span(f"{label} {'hidden' if run in part.view.hidden else fmt.UNKNOWN:<{_ENTRY - 2}}", "dim")]
    if cursor is not None:
        value = curve.value_at(cursor)
    elif part.view.meter is None and not part.view.weight:
        # The last segment of a long curve covers many steps.
        value = part.snapshots[run].newest_loss
    else:
        value = curve.values[-1]
    text = fmt.number(value)
    if value is not None and value - value != 0.0:
        text += f" {NON_FINITE_MARK}"
    return [Span(f"{label} ", tone), Span(f"{text:<{_ENTRY - 2}}", tone if value is not None else "dim")]


def _note(
    part: ComparedPart,
    drawn: Chart | None,
    width: int,
    has_train: bool = False,
    missing: Sequence[tuple[str, str]] = (),
) -> str:
    """What the chart shows and the settings that are not the default, as many as fit."""
    view = part.view
    is_by_epoch = view.meter is not None and view.x == "epoch"
    parts = [metric_text(view) if is_by_epoch else f"{metric_text(view)} over {_AXES[view.x]}"]
    parts += ["log axis"] if view.log or (drawn is not None and drawn.axes.y is not None and drawn.axes.y.log) else []
    parts += list(filter(None, (view.y.note, drawn.outside if drawn is not None else "")))
    if drawn is not None and drawn.hidden:
        parts.append(f"{fmt.counted(drawn.hidden, 'point')} of 0 or less not shown")
    if view.weight and view.meter is None:
        parts.append(f"smoothed {view.weight:g}")
    for reason in dict.fromkeys(reason for _, reason in missing):
        parts.append(f"{' '.join(label for label, of in missing if of == reason)}: {reason}")
    parts += [f"dim: train of {LABELS[view.chosen]}"] if has_train else []
    while len(parts) > 1 and cells_of(", ".join(parts)) >= width - _TITLE:
        parts.pop()
    return ", ".join(parts)

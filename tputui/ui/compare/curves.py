"""Curves of several runs in one chart: training loss by step or a metric by epoch, over the selected x axis.

A terminal cell has one colour, so the run drawn last owns it; letters along the lines identify the runs without colour.
A run without data for the metric or the axis has no curve but a reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.compare.compare import LABELS, meter_points
from tputui.compare.table import meter_name
from tputui.state.chart_data import LoggedView
from tputui.state.metric_series import MetricSource
from tputui.state.snapshot import ENDED, Snapshot
from tputui.ui.base.export import Figure, Figures
from tputui.ui.charts.axis import NON_FINITE_MARK, AxisInfo, XAxis, XKind, axis_info_of, clock, compact
from tputui.ui.charts.chart_view import Chart
from tputui.ui.charts.columns import smoothed
from tputui.ui.compare.chart import Curve, draw_chart
from tputui.ui.compare.compare_view import TONES, ComparedPart, CompareView, MeterKey
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line, Span, cells_of, clean, paragraph
from tputui.ui.widgets.panel import Drawing, Panel


class Curves(NamedTuple):
    """The curves of the visible runs."""

    curves: list[Curve]
    missing: list[tuple[str, str]]
    """Label of each visible run without a curve, and the reason."""


def known_meters(snapshots: Sequence[Snapshot]) -> list[MeterKey]:
    """The metrics of all runs by epoch, validation before training."""
    keys = dict.fromkeys(key for snapshot in snapshots for key in meter_points(snapshot))
    keys |= dict.fromkeys((view.split, view.name) for snapshot in snapshots for view in snapshot.logged)
    return sorted(keys, key=lambda key: key[0] == "train")


def curves_of(snapshots: Sequence[Snapshot], view: CompareView) -> Curves:
    """The curves of the runs that are not hidden."""
    curves: list[Curve] = []
    missing: list[tuple[str, str]] = []
    for index, snapshot in enumerate(snapshots):
        if index in view.hidden:
            continue
        curve = _loss_curve(index, snapshot, view) if view.meter is None else _meter_curve(index, snapshot, view)
        if isinstance(curve, Curve):
            curves.append(curve)
        else:
            missing.append((LABELS[index], curve))
    return Curves(curves, missing)


def _loss_curve(index: int, snapshot: Snapshot, view: CompareView) -> Curve | str:
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
        return Curve(index, xs, means, [], bad)
    return Curve(index, xs, smoothed(segments, view.weight), means, bad)


def _meter_curve(index: int, snapshot: Snapshot, view: CompareView) -> Curve | str:
    """One point per finished epoch, at its last training step; never smoothed."""
    assert view.meter is not None
    points = meter_points(snapshot).get(view.meter)
    if not points:
        logged = next((one for one in snapshot.logged if (one.split, one.name) == view.meter), None)
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
    return Curve(index, xs, values, [], bad, train)


def _logged_curve(index: int, snapshot: Snapshot, logged: LoggedView, view: CompareView) -> Curve | str:
    """The values of a metric that the script logged, without epochs; never smoothed."""
    axis_info, segments = axis_info_of(snapshot), MetricSource.of(snapshot).axis_segments()
    if why_not := axis_info.why_not(view.x, segments):
        return why_not
    x_axis = XAxis(segments, view.x, axis_info, 1)
    xs, values = [x_axis.at(point.last_step) for point in logged.points], [point.mean for point in logged.points]
    bad = [x for x, point in zip(xs, logged.points, strict=True) if point.num_bad]
    return Curve(index, xs, values, [], bad)


def _no_steps(snapshot: Snapshot, axis_info: AxisInfo, x: XKind) -> str:
    if not axis_info.steps_per_epoch:
        return "steps per epoch not known yet"
    return "step times not available" if x == "time" and not snapshot.loss else ""


def _no_data(snapshot: Snapshot, what: str) -> str:
    return f"no {what}" if snapshot.condition in ENDED else f"no {what} yet"


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
    position = position_text(view.cursor, view.x) if view.cursor is not None else "newest"
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


def _entry(run: int, curve: Curve | None, cursor: float | None, part: ComparedPart) -> Line:
    """A letter and a value, padded to a fixed width."""
    label, tone = part.comparison.runs[run].label, TONES[run]
    if curve is None:
        return [Span(f"{label} {'hidden' if run in part.view.hidden else fmt.UNKNOWN:<{_ENTRY - 2}}", "dim")]
    if cursor is not None:
        value = curve.value_at(cursor)
    elif part.view.meter is None and not part.view.weight:
        # The last segment of a long curve covers many steps; the run list shows the newest step, so this does too.
        value = part.comparison.runs[run].loss
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
    parts += ["log axis"] if view.log else []
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

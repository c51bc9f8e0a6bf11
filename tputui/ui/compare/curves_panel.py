"""The panel with the curves of the compared runs and a cursor that reads their values."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.compare.table import meter_name
from tputui.state.snapshot import Snapshot
from tputui.ui.base.export import Figure, Figures
from tputui.ui.charts.axis import XKind, clock, compact
from tputui.ui.charts.frame import NON_FINITE_MARK
from tputui.ui.compare import multi_run_chart
from tputui.ui.compare.compare_view import TONES, ComparedPart, CompareView
from tputui.ui.compare.multi_run_chart import Curve, Curves, MultiRunChart, curves_of
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line, Span, clean, paragraph
from tputui.ui.widgets.panel import Drawing, Panel

_ENTRY = 13
"""Cells of one run's value above the chart."""
_POSITION = 17
"""Cells of the cursor position above the chart."""

_AXES: dict[XKind, str] = {"step": "step", "epoch": "epoch", "time": "time from the start", "examples": "examples"}


class ComparedCurvesPanel(Panel[ComparedPart]):
    """Curves of several runs."""

    key = "2"
    name_shown = "curves"
    what = (
        "training loss of every run (mean over cores), or with `m` a metric by epoch; `x` changes the x axis, "
        "`l` the y axis, `+` and `-` the smoothing; the arrow keys read values"
    )

    class PositionClicked(Message):
        """The user clicked at a position of the x axis."""

        def __init__(self, x: float) -> None:
            super().__init__()
            self.x = x

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cached: tuple[Sequence[Snapshot], object, Curves] | None = None
        self._drawn: MultiRunChart | None = None

    @property
    def cells(self) -> tuple[float, float, int] | None:
        """Both ends of the x axis and its width in cells; None without a chart."""
        drawn = self._drawn
        return (drawn.domain.low, drawn.domain.high, drawn.area.across) if drawn is not None else None

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The values of the runs, and the chart below them."""
        view, found = part.view, self._curves(part)
        head = _values(found, part, width)
        self._drawn = multi_run_chart.draw(
            found.curves,
            view.x,
            width,
            height - len(head),
            log=view.log,
            chosen=view.chosen,
            cursor=view.cursor,
        )
        if self._drawn is None:
            text = "; ".join(f"{label}: {reason}" for label, reason in found.missing) or "no room for a chart"
            return Drawing(paragraph(text, width, height), note=_note(part, None))
        return Drawing(self._drawn.lines, head=tuple(head), note=_note(part, self._drawn))

    def figures(self) -> Figures:
        """The raw values of the visible curves over the selected axis."""
        axis: XKind = self._part.view.x if self._part is not None else "step"
        head = ("run", "label", "time_s" if axis == "time" else axis, "value")
        rows: list[tuple[Figure, ...]] = []
        if self._part is not None:
            runs = self._part.comparison.runs
            for curve in self._curves(self._part).curves:
                run = runs[curve.run].run
                rows += [(run, curve.label, x, y) for x, y in zip(curve.xs, curve.raw or curve.values, strict=True)]
        return Figures(head, rows)

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the clicked position."""
        drawn = self._drawn
        cell = event.x - 1 - (drawn.area.left if drawn is not None else 0)
        if drawn is not None and 0 <= cell < drawn.area.across:
            self.post_message(
                self.PositionClicked(position_of(drawn.domain.low, drawn.domain.high, drawn.area.across, cell))
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


def _values(found: Curves, part: ComparedPart, width: int) -> list[Line]:
    """The value of every run at the cursor, or the newest one. The number of lines does not depend on the values."""
    view = part.view
    position = position_text(view.cursor, view.x) if view.cursor is not None else "newest"
    drawn = {curve.run: curve for curve in found.curves}
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
        value = curve.at(cursor)
    elif part.view.meter is None and not part.view.weight:
        # The last segment of a long curve covers many steps; the run list shows the newest step, so this does too.
        value = part.comparison.runs[run].loss
    else:
        value = curve.values[-1]
    text = fmt.number(value)
    if value is not None and value - value != 0.0:
        text += f" {NON_FINITE_MARK}"
    return [Span(f"{label} ", tone), Span(f"{text:<{_ENTRY - 2}}", tone if value is not None else "dim")]


def _note(part: ComparedPart, drawn: MultiRunChart | None) -> str:
    view = part.view
    parts = [f"{metric_text(view)} over {_AXES[view.x]}"]
    parts += ["log axis"] if view.log else []
    if drawn is not None and drawn.hidden:
        parts.append(f"{drawn.hidden:,} points of 0 or less not shown")
    if view.weight and view.meter is None:
        parts.append(f"smoothed {view.weight:g}")
    return ", ".join(parts)

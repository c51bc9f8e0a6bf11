"""The curves of the runs that are compared, with a cursor that reads every one of them."""

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
from tputui.ui.compare.multi_run_chart import Curve, Curves, MultiRunChart, curves
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line, Span, clean, paragraph
from tputui.ui.widgets.panel import Drawing, Panel

_ENTRY = 13
"""Cells of a run's value above the chart."""
_PLACE = 17
"""Cells of the place that is read."""

_AXES: dict[XKind, str] = {"step": "step", "epoch": "epoch", "time": "time from the start", "examples": "examples"}


class ComparedCurvesPanel(Panel[ComparedPart]):
    """Curves of several runs."""

    key = "2"
    name_shown = "curves"
    what = (
        "the loss of every run, mean of its cores, or with `m` a meter by epoch; a letter stands on each line; `x` "
        "changes the x axis, `l` the y axis, `+` and `-` smooth, the arrows read values"
    )

    class Read(Message):
        """A place of the x axis was clicked."""

        def __init__(self, x: float) -> None:
            super().__init__()
            self.x = x

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._known: tuple[Sequence[Snapshot], object, Curves] | None = None
        self._drawn: MultiRunChart | None = None

    @property
    def cells(self) -> tuple[float, float, int] | None:
        """Both ends of the x axis and the cells between; None where nothing is drawn."""
        drawn = self._drawn
        return (drawn.domain.low, drawn.domain.high, drawn.area.across) if drawn is not None else None

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The values above the curves."""
        sight, found = part.sight, self._curves(part)
        head = _values(found, part, width)
        self._drawn = multi_run_chart.draw(
            found.shown,
            sight.x,
            width,
            height - len(head),
            log=sight.log,
            chosen=sight.chosen,
            cursor=sight.cursor,
        )
        if self._drawn is None:
            why = "; ".join(f"{label}: {why}" for label, why in found.why_not) or "there is no room for a chart"
            return Drawing(paragraph(why, width, height), note=_note(part, None))
        return Drawing(self._drawn.lines, head=tuple(head), note=_note(part, self._drawn))

    def figures(self) -> Figures:
        """What is drawn, as it was measured, over the axis that is chosen."""
        axis: XKind = self._part.sight.x if self._part is not None else "step"
        head = ("run", "label", "time_s" if axis == "time" else axis, "value")
        rows: list[tuple[Figure, ...]] = []
        if self._part is not None:
            runs = self._part.comparison.runs
            for curve in self._curves(self._part).shown:
                run = runs[curve.run].run
                rows += [(run, curve.label, x, y) for x, y in zip(curve.xs, curve.raw or curve.values, strict=True)]
        return Figures(head, rows)

    def on_click(self, event: events.Click) -> None:
        """Reads the values at a place."""
        drawn = self._drawn
        cell = event.x - 1 - (drawn.area.left if drawn is not None else 0)
        if drawn is not None and 0 <= cell < drawn.area.across:
            self.post_message(self.Read(place_of(drawn.domain.low, drawn.domain.high, drawn.area.across, cell)))

    def _curves(self, part: ComparedPart) -> Curves:
        """The curves, worked out once for every look that does not change them."""
        sight = part.sight
        look = (sight.hidden, sight.meter, sight.x, sight.smoothing)
        if self._known is None or self._known[0] is not part.snapshots or self._known[1] != look:
            self._known = (part.snapshots, look, curves(part.snapshots, sight))
        return self._known[2]


def place_of(low: float, high: float, across: int, cell: int) -> float:
    """The place on the x axis in the middle of a cell."""
    return low + (high - low) * min(max((cell * DOTS_X + 0.5) / max(across * DOTS_X - 1, 1), 0.0), 1.0)


def cell_at(low: float, high: float, across: int, x: float) -> int:
    """The cell of a place on the x axis."""
    return round((x - low) / (high - low) * (across * DOTS_X - 1)) // DOTS_X if high > low else across // 2


def told(x: float, kind: XKind) -> str:
    """A place on the x axis in words."""
    if kind == "time":
        return f"at {clock(x, max(x, 120.0))}"
    if kind == "examples":
        return f"{compact(x)} examples"
    return f"epoch {x:.2f}" if kind == "epoch" else f"step {x:,.0f}"


def charted(sight: CompareView) -> str:
    """What is charted: `loss`, `valid auc by epoch`."""
    return "loss" if sight.meter is None else f"{clean(meter_name(*sight.meter))} by epoch"


def _values(found: Curves, part: ComparedPart, width: int) -> list[Line]:
    """The value of every run at the cursor, or its newest; as many lines whatever is read."""
    sight = part.sight
    place = told(sight.cursor, sight.x) if sight.cursor is not None else "newest"
    drawn = {curve.run: curve for curve in found.shown}
    entries = [_entry(run, drawn.get(run), sight.cursor, part) for run in range(len(part.snapshots))]
    a_line = max((width - _PLACE) // _ENTRY, 1)
    lines: list[Line] = []
    for start in range(0, len(entries), a_line):
        first = Span(f" {place if not start else '':<{_PLACE - 1}}", "strong" if sight.cursor is not None else "label")
        lines.append([first, *(span for entry in entries[start : start + a_line] for span in entry)])
    return lines


def _entry(run: int, curve: Curve | None, cursor: float | None, part: ComparedPart) -> Line:
    """A letter and a value, always of the same width."""
    label, tone = part.comparison.runs[run].label, TONES[run]
    if curve is None:
        return [Span(f"{label} {'hidden' if run in part.sight.hidden else fmt.UNKNOWN:<{_ENTRY - 2}}", "dim")]
    if cursor is not None:
        value = curve.at(cursor)
    elif part.sight.meter is None and not part.sight.weight:
        # The last piece of a long curve spans steps: the newest step is told as in the list above.
        value = part.comparison.runs[run].loss
    else:
        value = curve.values[-1]
    text = fmt.number(value)
    if value is not None and value - value != 0.0:
        text += f" {NON_FINITE_MARK}"
    return [Span(f"{label} ", tone), Span(f"{text:<{_ENTRY - 2}}", tone if value is not None else "dim")]


def _note(part: ComparedPart, drawn: MultiRunChart | None) -> str:
    sight = part.sight
    parts = [f"{charted(sight)} over {_AXES[sight.x]}"]
    parts += ["log axis"] if sight.log else []
    if drawn is not None and drawn.hidden:
        parts.append(f"{drawn.hidden:,} points of 0 or less left out")
    if sight.weight and sight.meter is None:
        parts.append(f"smoothed {sight.weight:g}")
    return ", ".join(parts)

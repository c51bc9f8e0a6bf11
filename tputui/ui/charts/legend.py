"""What is said around the chart of the loss: the lines above it, and the note in its frame. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tputui.state.chart_data import Mark
from tputui.ui.charts import loss
from tputui.ui.charts.domain import XKind
from tputui.ui.charts.visible_data import Chart, VisibleData, Whole
from tputui.ui.render.lines import Line, fit, width_of


def legend(
    scene: VisibleData, newest: float | None, num_cores: int, num_non_finite: int, width: int, *, short: bool
) -> list[Line]:
    """What the lines of the chart are, then which core stands out; both in the first line where room is `short`."""
    first = loss.legend(scene, newest, num_cores, num_non_finite, width)
    odd = loss.odd_in_short(scene.outlier)
    if short and odd:
        mean = first[:2]
        first = next((line for line in ([*first, *odd], [*mean, *odd]) if width_of(line) <= width), first)
    bad = sorted({core for column in scene.cores for core in column.bad_cores})
    return [first, loss.odd_core(scene.outlier, num_cores, width, bad)]


def readout(
    scene: VisibleData, marks: list[Mark], width: int, *, short: bool, rows: Sequence[range] = ()
) -> list[Line]:
    """Place and values under the cursor, and the nearest event where there is room; `rows` are those of a map."""
    where, values = loss.readout(scene, next((cores for cores in rows if scene.look.core in cores), None))
    event = loss.nearest_mark(marks, scene.look.cursor or 0)
    if short:
        return [fit([*where[:1], *values], width)]
    return [[*where, *event] if width_of(where) + 12 < width else where, values]


def note(whole: Whole, scene: VisibleData, chart: Chart | None, wanted: XKind, width: int) -> str:
    """What is not as usual, the most important first, as much as fits; `wanted` is the x axis that was asked for."""
    look = scene.look
    why_not = whole.grounds.why_not(wanted, whole.segments)
    hidden = f", {chart.hidden:,} points <= 0 not shown" if chart is not None and chart.hidden else ""
    parts = [
        f"log axis{hidden}" if look.log else "",
        f"EMA {look.weight:g}" if look.weight else "",
        why_not or (f"by {look.x}" if look.x != "step" else ""),
        f"steps {scene.segments[0].first_step:,} to {scene.segments[-1].last_step:,}"
        if look.window is not None and scene.segments
        else "",
        *(chart.notes if chart is not None else ()),
    ]
    said: str = look.view if look.view != "band" else ""
    for text in filter(None, parts):
        longer = f"{said} \u00b7 {text}" if said else text
        if len(longer) < width - 14:
            said = longer
    return said

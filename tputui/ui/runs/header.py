"""The head of the list of runs, and the words that stand where there is no run to show."""

from __future__ import annotations

from pathlib import Path

from tputui.ui.render.lines import Line, Span, clean, fit, spread
from tputui.ui.runs import filter
from tputui.ui.runs.filter import RunFilter
from tputui.ui.runs.reader import Listing
from tputui.ui.runs.rows import RunRow
from tputui.ui.runs.sort_order import Order
from tputui.ui.widgets.line_widget import Drawn


class RunsHead(Drawn):
    """Where the runs are, how many train, and a sentence on what is looked at."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__(id="head")
        self._runs_dir = runs_dir
        self._counts = ""
        self._said: Line = []

    def show(self, counts: str, said: Line) -> None:
        """Takes newer counts and the sentence."""
        self._counts, self._said = counts, said
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        left: Line = [Span(" runs ", "strong"), Span(f"in {clean(str(self._runs_dir))}", "label")]
        return [spread(left, [Span(f"{self._counts} ", "dim")], width), fit([Span(" "), *self._said], width)]


def counts(listing: Listing | None, num_marked: int, order: Order) -> str:
    """How many runs there are, train, are still to be read and are marked, and how they are ordered."""
    if listing is None:
        return "looking"
    rows = listing.rows.values()
    unread = sum(row.state == "reading" for row in rows)
    parts = [f"{len(rows):,} run{'' if len(rows) == 1 else 's'}"]
    parts += [f"{sum(not row.ended and row.state != 'reading' for row in rows)} in training"]
    parts += [f"{unread:,} to be read"] if unread else []
    parts += [f"{num_marked} marked"] if num_marked else []
    return f"{', '.join(parts)} \u00b7 {order.words}"


def of_run(row: RunRow | None) -> Line:
    """What is wrong with the chosen run, first, since a narrow terminal cuts the end; and why it is as it is."""
    if row is None or not (row.why or row.alarms):
        return []
    alarms = [Span(f"! {', '.join(row.alarms)}  ", "alert")] if row.alarms else []
    return [*alarms, Span(clean(row.path.name), "label"), Span(f": {clean(row.why)}", "dim")]


def empty(runs_dir: Path, listing: Listing | None, found: RunFilter, *, may_start: bool) -> tuple[str, ...]:
    """What stands where there is no run to show: why, and what to do next."""
    where = clean(str(runs_dir))
    if listing is None:
        return (f"looking for runs in {where} ...",)
    if listing.why_not:
        return (clean(listing.why_not), "name another directory: tputui --runs-dir DIR, or $TPUTUI_RUNS")
    known = list(listing.rows.values())
    if known:
        lacking = filter.unknown_keys(found, known)
        why = f"no run has a key called {', '.join(lacking)}" if lacking else "no run is like that"
        return (f"{why}: esc shows all {len(known)} runs again",)
    here = "n starts one: pick a configuration, see every field of it, press ctrl+s."
    return (f"no run in {where} yet.", here if may_start else "`tputui run CONFIG` starts one.")

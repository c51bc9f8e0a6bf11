"""The comparison: 2 to 8 runs side by side, read live. Leaving it never touches a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.compare.compare import RUNS_MAX, RUNS_MIN, compare
from tputui.session.session import Session
from tputui.ui.base import keymap
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.base_app import BaseApp
from tputui.ui.compare.compare_view import ComparedPart, CompareView
from tputui.ui.compare.curves_panel import ComparedCurvesPanel, cell_at, charted, place_of
from tputui.ui.compare.multi_run_chart import known_meters
from tputui.ui.compare.reader import CompareReader, Reading, Source
from tputui.ui.compare.runs import ComparedRunsPanel, CompareHead
from tputui.ui.compare.tables import ComparedConfigPanel, ComparedFiguresPanel
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.screen import MonitorResult, MonitorScreen
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.notices import Notices
from tputui.ui.widgets.panel import Panel
from tputui.ui.widgets.panel_grid import Box, Panels

PANELS = ("runs", "curves", "figures", "config")
"""In the order of their keys, from 1."""

_TINY_WIDTH, _TINY_HEIGHT = 50, 10
_WIDE_WIDTH, _WIDE_HEIGHT = 110, 26
_BESIDE_WIDTH = 150
"""From here on the tables stand beside the curves."""
_LEAST_STACKED = 24
"""Lines below the runs from which curves and tables stand on top of each other."""


def arrange(width: int, height: int, selected: str, *, maximised: bool, num_runs: int) -> dict[str, Box]:
    """The boxes of the panels in sight, which tile `width` by `height` cells."""
    if width < 1 or height < 1:
        return {}
    if maximised or width < _TINY_WIDTH or height < _TINY_HEIGHT:
        return {selected: Box(0, 0, width, height)}
    top = min(num_runs + 3, max(5, height * 2 // 5))
    boxes = {"runs": Box(0, 0, width, top)}
    stacked = width < _BESIDE_WIDTH
    if width < _WIDE_WIDTH or height < _WIDE_HEIGHT or (stacked and height - top < _LEAST_STACKED):
        below = selected if selected != "runs" else "curves"
        return boxes | {below: Box(0, top, width, height - top)}
    return boxes | (_stacked(width, height, top) if stacked else _beside(width, height, top))


def _beside(width: int, height: int, top: int) -> dict[str, Box]:
    """Curves at the left, the tables at the right."""
    left, rest = width * 54 // 100, height - top
    upper = rest * 60 // 100
    return {
        "curves": Box(0, top, left, rest),
        "figures": Box(left, top, width - left, upper),
        "config": Box(left, top + upper, width - left, rest - upper),
    }


def _stacked(width: int, height: int, top: int) -> dict[str, Box]:
    """Curves above, the tables below."""
    upper, left = (height - top) * 52 // 100, width // 2
    return {
        "curves": Box(0, top, width, upper),
        "figures": Box(0, top + upper, left, height - top - upper),
        "config": Box(left, top + upper, width - left, height - top - upper),
    }


PANEL_TYPES: tuple[type[Panel[ComparedPart]], ...] = (
    ComparedRunsPanel,
    ComparedCurvesPanel,
    ComparedFiguresPanel,
    ComparedConfigPanel,
)
"""In the order of their keys."""


class CompareBody(Panels[Panel[ComparedPart]]):
    """Holds every panel; `comparelayout` says where they stand."""

    def __init__(self, num_runs: int, *, id: str | None = None) -> None:
        super().__init__(
            {name: panel(id=name) for name, panel in zip(PANELS, PANEL_TYPES, strict=True)}, "curves", id=id
        )
        self._num_runs = num_runs

    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """Where the panels in sight stand, in cells."""
        return arrange(width, height, self.selected, maximised=self.maximised, num_runs=self._num_runs)

    def show(self, part: ComparedPart) -> None:
        """Hands every panel what it shows."""
        for panel in self.panels():
            panel.show(part)


class CompareScreen(Screen[MonitorResult]):
    """Runs side by side."""

    BINDINGS = keymap.bindings(keymap.COMPARE)
    CSS_PATH = "../compare.tcss"

    class Read(Message):
        """The reading thread knows more."""

        def __init__(self, reading: Reading) -> None:
            super().__init__()
            self.reading = reading

    def __init__(
        self,
        run_dirs: Sequence[Path],
        *,
        base: int = 0,
        read_only: bool = False,
        open_run: Callable[[Path], Source] = Session.live,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`base` is the index of the run that the others stand beside at first; `clock` gives unix time.

        Raises `ValueError` unless there are 2 to 8 runs and the base is one of them.
        """
        if not RUNS_MIN <= len(run_dirs) <= RUNS_MAX or not 0 <= base < len(run_dirs):
            raise ValueError(f"{len(run_dirs)} runs with base {base}: it takes {RUNS_MIN} to {RUNS_MAX}")
        super().__init__()
        self._run_dirs = list(run_dirs)
        self._num_runs = len(run_dirs)
        self._read_only = read_only
        self._clock = clock
        self.sight = CompareView(len(run_dirs), base=base, chosen=(base + 1) % len(run_dirs))
        """How the runs are looked at."""
        self.reading: Reading | None = None
        """What was read; None before anything was."""
        self.notices = Notices(self, self._put_notice)
        self._part: ComparedPart | None = None
        self._reader = CompareReader(run_dirs, self._deliver, open_run, clock)

    def compose(self) -> ComposeResult:
        """Head, panels, keys."""
        yield CompareHead(id="head")
        yield CompareBody(self._num_runs, id="body")
        yield KeyBar(keymap.COMPARE, panels="1-4", id="keys")

    def on_mount(self) -> None:
        """Looks as the user looked last, and starts to read."""
        views = views_of(self.app)
        self.sight = self.sight.kept(
            x=views.get("compare.x", "step"),
            log=views.get("compare.log", False),
            smoothing=views.get("compare.smoothing", 0),
        )
        self.query_one(CompareBody).select("curves")
        self.run_worker(self._reader.run, thread=True, group="compare")

    def on_unmount(self) -> None:
        """Stops reading; the reader closes the sessions."""
        self._reader.stop()

    def _deliver(self, reading: Reading) -> None:
        self.post_message(self.Read(reading))

    def on_compare_screen_read(self, message: Read) -> None:
        """Shows what was read."""
        message.stop()
        self.reading = message.reading
        self._show()
        self._reader.drawn()

    def _show(self) -> None:
        """Draws the runs as they are looked at: the only place from which widgets learn something."""
        if self.reading is None or not self.is_attached:
            return
        snapshots, unread = self.reading
        before = self._part
        known = before is not None and before.snapshots is snapshots and before.comparison.base == self.sight.base
        comparison = before.comparison if known and before is not None else compare(snapshots, self.sight.base)
        ascii_only = isinstance(self.app, BaseApp) and self.app.ascii_only
        self._part = ComparedPart(comparison, snapshots, self.sight, unread, ascii_only)
        with self.app.batch_update():
            self.query_one(CompareHead).show(self._part)
            self.query_one(CompareBody).show(self._part)
            self.query_one(ComparedRunsPanel).keep_in_sight(self.sight.chosen)

    def look(self, sight: CompareView, what: str = "") -> None:
        """Looks at the runs in another way; with a name for it, it can be undone."""
        before = self.sight
        if what and sight != before:
            undo_of(self.app).push(what, lambda: self.look(before))
        self.sight = sight
        views = views_of(self.app)
        views.set("compare.x", sight.x)
        views.set("compare.log", sight.log)
        views.set("compare.smoothing", sight.smoothing)
        self._show()

    def _put_notice(self, sentence: str) -> None:
        self.query_one(CompareHead).tell(sentence)

    # The runs.

    def action_choose(self, by: int) -> None:
        """Chooses another run."""
        self.look(self.sight.choose(by))

    def on_compared_runs_panel_chosen(self, event: ComparedRunsPanel.Chosen) -> None:
        """A run was clicked."""
        event.stop()
        self.look(self.sight._replace(chosen=event.run))

    def action_open(self) -> None:
        """Opens the chosen run."""
        run_dir = self._run_dirs[self.sight.chosen]
        self.app.push_screen(MonitorScreen(Session.live(run_dir, self._clock), run_dir, read_only=self._read_only))

    def action_rebase(self) -> None:
        """Has the others stand beside the chosen run."""
        self.look(self.sight.rebase(), "base")

    def action_hide(self) -> None:
        """Hides or shows a curve."""
        sight = self.sight.toggle()
        if sight == self.sight:
            self.notices.show("hide: it is the only curve that is left")
        self.look(sight, "hidden curves")

    def action_show_all(self) -> None:
        """Shows every curve."""
        self.look(self.sight._replace(hidden=frozenset()), "hidden curves")

    # The chart.

    def action_next_meter(self, by: int) -> None:
        """Charts another meter."""
        known = known_meters(self.reading.snapshots) if self.reading is not None else []
        if not known:
            self.notices.show("meter: no run has ended an epoch yet; this is the loss of the steps")
            return
        sight = self.sight.next_meter(known, by)
        self.look(sight, f"chart of {charted(self.sight)}")

    def action_next_x(self) -> None:
        """The next x axis."""
        self.look(self.sight.next_x(), "x axis")

    def action_toggle_log(self) -> None:
        """The y axis linear or logarithmic."""
        self.look(self.sight._replace(log=not self.sight.log), "y axis")

    def action_smooth(self, by: int) -> None:
        """More or less smoothing."""
        if self.sight.meter is not None:
            self.notices.show("smooth: a meter by epoch is shown as it is")
            return
        self.look(self.sight.smoother(by), "smoothing")

    def action_cursor(self, by: int) -> None:
        """Moves the cursor by cells; the first press puts it at the end that it comes from."""
        cells = self.query_one(ComparedCurvesPanel).cells
        if cells is None:
            return
        low, high, across = cells
        if self.sight.cursor is None:
            cell = across - 1 if by < 0 else 0
        else:
            cell = cell_at(low, high, across, self.sight.cursor) + by
        self._read_at(place_of(low, high, across, min(max(cell, 0), across - 1)))

    def on_compared_curves_panel_read(self, event: ComparedCurvesPanel.Read) -> None:
        """A place was clicked."""
        event.stop()
        self._read_at(event.x)

    def _read_at(self, x: float | None) -> None:
        self.look(self.sight._replace(cursor=x))

    # The panels.

    def action_restore(self) -> None:
        """Takes the cursor away, else goes back from the full screen, else leaves."""
        body = self.query_one(CompareBody)
        if self.sight.cursor is not None:
            self._read_at(None)
        elif body.maximised:
            body.maximise(False)
        else:
            self.action_leave()

    def action_scroll(self, rows: int) -> None:
        """Scrolls the selected panel; in the runs it chooses."""
        body = self.query_one(CompareBody)
        if body.selected == "runs":
            chosen = min(max(self.sight.chosen + rows, 0), self._num_runs - 1)
            self.look(self.sight._replace(chosen=chosen))
        else:
            body.action_scroll(rows)

    def panels_told(self) -> list[tuple[str, str]]:
        """The key of each panel, and its name with what it shows."""
        return self.query_one(CompareBody).descriptions()

    def keys_in_force(self) -> list[keymap.Key]:
        """The keys that do something."""
        return list(keymap.COMPARE)

    def action_help(self) -> None:
        """Shows the keys and the panels."""
        self.app.push_screen(HelpScreen(keymap.COMPARE, self.panels_told()))

    def action_leave(self) -> None:
        """Leaves; the runs go on."""
        self.dismiss(MonitorResult("quit", None))

"""The comparison screen and the layout of its panels. Reads 2-8 runs live; leaving it never affects them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.screen import Screen

from tputui import user_cache
from tputui.compare.compare import RUNS_MAX, RUNS_MIN, compare
from tputui.diagnosis.diagnose import RecentVerdicts
from tputui.session.session import Session
from tputui.telemetry import code_record
from tputui.ui.base import keymap
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.base_app import BaseApp
from tputui.ui.charts.scale import YRange, limits_of, limits_text, lines_of
from tputui.ui.compare.compare_view import ComparedPart, ComparedSession, CompareReader, CompareView, RunStates
from tputui.ui.compare.curves import ComparedCurvesPanel, cell_at, known_meters, metric_text, position_of
from tputui.ui.compare.tables import ComparedConfigPanel, ComparedFiguresPanel, ComparedRunsPanel, CompareHeader
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.screen import MonitorResult, MonitorScreen
from tputui.ui.render.lines import clean
from tputui.ui.widgets.dialogs import Notices, PromptScreen
from tputui.ui.widgets.panel import Box, Panel, Panels
from tputui.ui.widgets.player_bar import KeyBar

PANELS = ("runs", "curves", "figures", "config")
"""Ids of the panels in the order of their keys, from 1."""

_TINY_WIDTH, _TINY_HEIGHT = 50, 10
_WIDE_WIDTH, _WIDE_HEIGHT = 110, 26
_SIDE_BY_SIDE_WIDTH = 150
"""From this width on, the tables are right of the curves."""
_MIN_STACKED_HEIGHT = 24
"""Lines below the runs that curves above tables need."""


def arrange(width: int, height: int, selected: str, *, maximised: bool, num_runs: int) -> dict[str, Box]:
    """The boxes of the visible panels, which tile `width` by `height` cells.

    The runs are always on top, as they are the legend of the rest. Small terminals show one more panel, the selected
    one.
    """
    if width < 1 or height < 1:
        return {}
    if maximised or width < _TINY_WIDTH or height < _TINY_HEIGHT:
        return {selected: Box(0, 0, width, height)}
    top = min(num_runs + 3, max(5, height * 2 // 5))
    boxes = {"runs": Box(0, 0, width, top)}
    stacked = width < _SIDE_BY_SIDE_WIDTH
    if width < _WIDE_WIDTH or height < _WIDE_HEIGHT or (stacked and height - top < _MIN_STACKED_HEIGHT):
        below = selected if selected != "runs" else "curves"
        return boxes | {below: Box(0, top, width, height - top)}
    return boxes | (_stacked(width, height, top) if stacked else _side_by_side(width, height, top))


def _side_by_side(width: int, height: int, top: int) -> dict[str, Box]:
    """Curves on the left, tables on the right."""
    left, below = width * 54 // 100, height - top
    upper = below * 60 // 100
    return {
        "curves": Box(0, top, left, below),
        "figures": Box(left, top, width - left, upper),
        "config": Box(left, top + upper, width - left, below - upper),
    }


def _stacked(width: int, height: int, top: int) -> dict[str, Box]:
    """Curves above, tables below."""
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
    """Holds the panels and arranges them."""

    def __init__(self, num_runs: int, *, id: str | None = None) -> None:
        super().__init__(
            {name: panel(id=name) for name, panel in zip(PANELS, PANEL_TYPES, strict=True)}, "curves", id=id
        )
        self._num_runs = num_runs

    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """The boxes of the visible panels, in cells."""
        return arrange(width, height, self.selected, maximised=self.maximised, num_runs=self._num_runs)

    def show(self, part: ComparedPart) -> None:
        """Updates every panel."""
        for panel in self.panels():
            panel.show(part)


class CompareScreen(Screen[MonitorResult]):
    """Compares 2-8 runs."""

    BINDINGS = keymap.bindings(keymap.COMPARE)
    CSS_PATH = "../compare.tcss"

    def __init__(
        self,
        run_dirs: Sequence[Path],
        *,
        base: int = 0,
        read_only: bool = False,
        open_run: Callable[[Path], ComparedSession] = Session.live,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`base` is the index of the run that the others are compared to; `clock` returns unix time.

        Raises `ValueError` unless there are 2-8 runs and the base is one of them.
        """
        if not RUNS_MIN <= len(run_dirs) <= RUNS_MAX or not 0 <= base < len(run_dirs):
            raise ValueError(f"{len(run_dirs)} runs with base {base}: expected {RUNS_MIN}-{RUNS_MAX} runs")
        super().__init__()
        self._run_dirs = list(run_dirs)
        self._codes = [code_record.summary(run_dir) for run_dir in run_dirs]
        """Records of the code, which never change."""
        self._recent = [RecentVerdicts() for _ in run_dirs]
        self._num_runs = len(run_dirs)
        self._read_only = read_only
        self._clock = clock
        self.view = CompareView(len(run_dirs), base=base, chosen=(base + 1) % len(run_dirs))
        """The view settings."""
        self.reading: RunStates | None = None
        """The newest reading."""
        self.notices = Notices(self, self._put_notice)
        self._part: ComparedPart | None = None
        self._reader = CompareReader(run_dirs, partial(self.call_later, self._take_reading), open_run, clock)

    def compose(self) -> ComposeResult:
        """Header, panels, keys."""
        yield CompareHeader(id="head")
        yield CompareBody(self._num_runs, id="body")
        yield KeyBar(keymap.COMPARE, panels="1-4", id="keys")

    def on_mount(self) -> None:
        """Restores the stored view settings and starts the reading thread."""
        views = views_of(self.app)
        self.view = self.view.with_stored(
            x=views.get("compare.x", "step"),
            y_axis=views.get("compare.y_axis", "auto"),
            smoothing=views.get("compare.smoothing", 0),
            ranges=views.get("compare.y_ranges", list[str]()),
        )
        self.query_one(CompareBody).select("curves")
        self.run_worker(self._reader.run, thread=True, group="compare")

    def on_unmount(self) -> None:
        """Stops the reading thread, which closes the sessions."""
        self._reader.stop()

    def _take_reading(self, reading: RunStates) -> None:
        """Shows the newest reading."""
        self.reading = reading
        self._show()
        self._reader.drawn()

    def _show(self) -> None:
        """Updates every widget. Compares the runs again only if they or the base changed."""
        if self.reading is None or not self.is_attached:
            return
        snapshots, unread = self.reading
        before = self._part
        if before is not None and before.snapshots is snapshots and before.comparison.base == self.view.base:
            comparison = before.comparison
        else:
            comparison = compare(snapshots, self.view.base, self._codes, self._recent)
        ascii_only = isinstance(self.app, BaseApp) and self.app.ascii_only
        self._part = ComparedPart(comparison, snapshots, self.view, unread, ascii_only)
        with self.app.batch_update():
            self.query_one(CompareHeader).show(self._part)
            self.query_one(CompareBody).show(self._part)
            self.query_one(ComparedRunsPanel).scroll_to_run(self.view.chosen)

    def set_view(self, view: CompareView, undo_name: str = "") -> None:
        """Changes the view settings; a change with a name can be undone."""
        before = self.view
        if undo_name and view != before:
            undo_of(self.app).push(undo_name, lambda: self.set_view(before))
        self.view = view
        views = views_of(self.app)
        views.set("compare.x", view.x)
        views.set("compare.y_axis", "auto" if view.log is None else "log" if view.log else "linear")
        views.set("compare.smoothing", view.smoothing)
        if lines := lines_of(view.ranges):
            views.set("compare.y_ranges", lines)
        else:
            views.remove("compare.y_ranges")
        self._show()

    def _put_notice(self, sentence: str) -> None:
        self.query_one(CompareHeader).tell(sentence)

    # The runs.

    @property
    def _in_list(self) -> bool:
        """Whether the run list is the selected panel."""
        return isinstance(self.focused, ComparedRunsPanel)

    def on_descendant_focus(self) -> None:
        """Shows the keys of the panel that is now selected."""
        self.query_one(KeyBar).show(self.keys_in_force())

    def action_choose(self, by: int) -> None:
        """Selects another run."""
        self.set_view(self.view.choose(by))

    def on_compared_runs_panel_run_chosen(self, event: ComparedRunsPanel.RunChosen) -> None:
        """Selects the run that was clicked."""
        event.stop()
        self.set_view(self.view._replace(chosen=event.run))

    def action_open(self) -> None:
        """Opens the selected run if the run list is selected; else toggles full screen."""
        if not self._in_list:
            self.query_one(CompareBody).action_maximise()
            return
        run_dir = self._run_dirs[self.view.chosen]
        read_only = self._read_only or user_cache.holds(run_dir, "imports", os.environ)
        self.app.push_screen(MonitorScreen(Session.live(run_dir, self._clock), run_dir, read_only=read_only))

    def action_rebase(self) -> None:
        """Makes the selected run the base."""
        self.set_view(self.view.rebase(), "base")

    def action_hide(self) -> None:
        """Hides or shows the curve of the selected run."""
        view = self.view.toggle()
        if view == self.view:
            self.notices.show("hide: this is the last visible curve")
        self.set_view(view, "hidden curves")

    def action_show_all(self) -> None:
        """Shows every curve."""
        self.set_view(self.view._replace(hidden=frozenset()), "hidden curves")

    # The chart.

    def action_next_meter(self, by: int) -> None:
        """Charts another metric."""
        meters = known_meters(self.reading.snapshots) if self.reading is not None else []
        if not meters:
            self.notices.show("metric: no run has finished an epoch yet; this is the training loss")
            return
        view = self.view.next_meter(meters, by)
        self.set_view(view, f"chart of {metric_text(self.view)}")

    def action_next_x(self) -> None:
        """Changes the x axis."""
        self.set_view(self.view.next_x(), "x axis")

    def action_toggle_log(self) -> None:
        """Switches the y axis between linear and logarithmic."""
        self.set_view(self.view._replace(log=not self.query_one(ComparedCurvesPanel).is_log), "y axis")

    def action_next_range(self) -> None:
        """Shows the next y range of the charted metric: without outliers, of all values, or as typed by the user."""
        metric, y = self.view.metric, self.view.y
        y = y._replace(kind=y.next_kind)
        if y.kind != "manual":
            self._set_range(metric, y)
            return
        text = limits_text(*self.query_one(ComparedCurvesPanel).limits)
        title = f"lower and upper y limit of {metric_text(self.view)}"
        self.app.push_screen(PromptScreen(title, limits_of, text), partial(self._take_limits, metric))

    def _take_limits(self, metric: str, limits: tuple[float, float] | None) -> None:
        """Uses the typed limits; after esc the default range, so that the key always goes on."""
        self._set_range(metric, YRange("manual", *limits) if limits is not None else YRange())

    def _set_range(self, metric: str, y: YRange) -> None:
        self.set_view(self.view.with_y(metric, y), f"{clean(metric)}: y range")

    def action_smooth(self, by: int) -> None:
        """Smooths more or less."""
        if self.view.meter is not None:
            self.notices.show("smooth: metrics by epoch are never smoothed")
            return
        self.set_view(self.view.smoothed(by), "smoothing")

    def action_cursor(self, by: int) -> None:
        """Moves the cursor by cells; the first key press puts it at the end it comes from."""
        cells = self.query_one(ComparedCurvesPanel).cells
        if cells is None:
            return
        low, high, across = cells
        if self.view.cursor is None:
            cell = across - 1 if by < 0 else 0
        else:
            cell = cell_at(low, high, across, self.view.cursor) + by
        self._set_cursor(position_of(low, high, across, min(max(cell, 0), across - 1)))

    def on_compared_curves_panel_position_clicked(self, event: ComparedCurvesPanel.PositionClicked) -> None:
        """Moves the cursor to the clicked position."""
        event.stop()
        self._set_cursor(event.x)

    def _set_cursor(self, x: float | None) -> None:
        self.set_view(self.view._replace(cursor=x))

    # The panels.

    def action_restore(self) -> None:
        """Removes the cursor, else leaves full screen, else leaves the comparison."""
        body = self.query_one(CompareBody)
        if self.view.cursor is not None:
            self._set_cursor(None)
        elif body.maximised:
            body.maximise(False)
        else:
            self.action_leave()

    def action_scroll(self, rows: int) -> None:
        """Scrolls the selected panel; in the run list, selects another run."""
        body = self.query_one(CompareBody)
        if body.selected == "runs":
            chosen = min(max(self.view.chosen + rows, 0), self._num_runs - 1)
            self.set_view(self.view._replace(chosen=chosen))
        else:
            body.action_scroll(rows)

    def panel_descriptions(self) -> list[tuple[str, str]]:
        """Key and description of each panel."""
        return self.query_one(CompareBody).descriptions()

    def keys_in_force(self) -> list[keymap.Key]:
        """The keys of this screen, in the words of the selected panel."""
        word = "open" if self._in_list else "full"
        return [key._replace(footer=word) if key.action == "open" else key for key in keymap.COMPARE]

    def action_help(self) -> None:
        """Shows the keys and the panels."""
        self.app.push_screen(HelpScreen(keymap.COMPARE, self.panel_descriptions()))

    def action_leave(self) -> None:
        """Leaves the comparison; the runs go on."""
        self.dismiss(MonitorResult("quit", None))

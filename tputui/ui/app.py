"""The application: one of its two doors opens a run, the other the list of runs. Blocks until it is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from textual.screen import Screen

from tputui.ui.hands.hands import HandsApp
from tputui.ui.hands.viewstate import Views, state_path
from tputui.ui.launch.desk import Desk
from tputui.ui.out.looks import Looks, looks_of
from tputui.ui.out.terminal import ending_with_it
from tputui.ui.pump import Source
from tputui.ui.screens.compare import CompareScreen
from tputui.ui.screens.monitor import MonitorResult, MonitorScreen
from tputui.ui.screens.runs import RunsScreen


class ViewOptions(NamedTuple):
    """What a command line says of the view."""

    ascii_only: bool = False
    reset_view: bool = False


NO_OPTIONS = ViewOptions()


class ScreenApp(HandsApp[MonitorResult]):
    """Opens one screen and ends with it."""

    CSS_PATH = "tones.tcss"
    TITLE = "tputui"

    def __init__(
        self,
        open_screen: Callable[[], Screen[MonitorResult]],
        *,
        looks: Looks | None = None,
        views: Views | None = None,
        export_to: Path | None = None,
    ) -> None:
        """Without `views` nothing is kept; without `looks` the terminal shows everything."""
        super().__init__(looks or Looks(), views or Views(), export_to=export_to)
        self._open_screen = open_screen

    def on_mount(self) -> None:
        """Opens the screen."""
        self.push_screen(self._open_screen(), self.exit)
        self.call_after_refresh(self.keep_views)


def run_monitor(
    session: Source, run_dir: Path, *, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> MonitorResult:
    """Shows a run, live or replayed, until the user leaves; closes the session. Training goes on."""
    result = _run(lambda: MonitorScreen(session, run_dir, read_only=read_only), options)
    return result or MonitorResult("quit", None)


def run_list(
    runs_dir: Path, *, desk: Desk | None = None, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> None:
    """Shows the runs of a directory until the user leaves; Enter opens one. `desk` starts runs."""
    _run(lambda: RunsScreen(runs_dir, desk=desk, read_only=read_only), options)


def run_compare(
    run_dirs: Sequence[Path], *, base: int = 0, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> None:
    """Shows 2 to 8 runs side by side until the user leaves; `base` is the index of the run that others stand beside."""
    _run(lambda: CompareScreen(run_dirs, base=base, read_only=read_only), options)


def _run(open_screen: Callable[[], Screen[MonitorResult]], options: ViewOptions) -> MonitorResult | None:
    views = Views.opened(state_path(os.environ))
    if options.reset_view:
        views.reset()
    looks = looks_of(os.environ, ascii_only=options.ascii_only)
    with ending_with_it():
        try:
            return ScreenApp(open_screen, looks=looks, views=views).run()
        finally:
            views.write()

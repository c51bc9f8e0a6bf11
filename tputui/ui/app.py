"""The application: one of its two doors opens a run, the other the list of runs. Blocks until it is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.screen import Screen

from tputui.ui.pump import Source
from tputui.ui.screens.monitor import MonitorResult, MonitorScreen
from tputui.ui.screens.runs import RunsScreen
from tputui.ui.terminal import ending_with_it
from tputui.ui.theme import DARK


class ScreenApp(App[MonitorResult]):
    """Opens one screen and ends with it."""

    CSS_PATH = "tones.tcss"
    TITLE = "tputui"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = True

    def __init__(self, open_screen: Callable[[], Screen[MonitorResult]]) -> None:
        super().__init__()
        self._open_screen = open_screen
        self.register_theme(DARK)
        self.theme = DARK.name

    def on_mount(self) -> None:
        """Opens the screen."""
        self.push_screen(self._open_screen(), self.exit)


def run_monitor(session: Source, run_dir: Path, *, read_only: bool = False) -> MonitorResult:
    """Shows a run, live or replayed, until the user leaves; closes the session. Training goes on."""
    with ending_with_it():
        result = ScreenApp(lambda: MonitorScreen(session, run_dir, read_only=read_only)).run()
    return result or MonitorResult("quit", None)


def run_list(runs_dir: Path, *, read_only: bool = False) -> None:
    """Shows the runs of a directory until the user leaves; Enter opens one."""
    with ending_with_it():
        ScreenApp(lambda: RunsScreen(runs_dir, read_only=read_only)).run()

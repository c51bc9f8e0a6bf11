"""The way from the list to a run that was started: a configuration is picked, its fields are seen, the run begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tputui.ui.runs.rows import RunRow
from tputui.ui.runs.table import how_in_words

if TYPE_CHECKING:
    from textual.app import App

    from tputui.ui.launch.form_state import Picked
    from tputui.ui.launch.service import LaunchService


class Launching:
    """One screen after the other. Both are imported when they are needed: the list stands sooner without them."""

    def __init__(self, desk: LaunchService, start: Path, rows: Callable[[], Sequence[RunRow]]) -> None:
        """Configurations are looked for below `start`; `rows` gives the runs that there are, newest first."""
        self._desk = desk
        self._start = start
        self._rows = rows

    def begin(self, app: App[object], started: Callable[[Path], None]) -> None:
        """Asks which configuration to begin with; `started` takes the directory of the run, if there comes one."""
        from tputui.ui.launch.picker import PickScreen

        told = [(row.path, how_in_words(row)) for row in self._rows() if row.state != "unreadable"]
        app.push_screen(PickScreen(self._start, told), lambda picked: self._prepare(app, started, picked))

    def _prepare(self, app: App[object], started: Callable[[Path], None], picked: Picked | None) -> None:
        from tputui.ui.launch.screen import LauncherScreen

        def launched(run_dir: Path | None) -> None:
            if run_dir is not None:
                started(run_dir)
            else:
                # Back to the configurations: perhaps it shall be another one.
                self.begin(app, started)

        if picked is not None:
            taken = {row.path.name for row in self._rows()}
            app.push_screen(LauncherScreen(self._desk, picked, self._start, taken), launched)

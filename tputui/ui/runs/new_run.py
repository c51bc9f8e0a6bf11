"""Starting a run from the list: choose a configuration, edit it, start it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from tputui.ui.launch.service import LaunchService
from tputui.ui.runs.filter import SortOrder, sort_rows
from tputui.ui.runs.rows import RunRow
from tputui.ui.runs.table import summary_text

if TYPE_CHECKING:
    from tputui.ui.launch.form import PickedConfig


class NewRun:
    """Opens the screens that start a run."""

    def __init__(
        self,
        screen: Screen[Any],
        service: LaunchService,
        config_dir: Path,
        rows: Callable[[], Sequence[RunRow]],
        on_started: Callable[[Path], object],
    ) -> None:
        """`rows` returns the known runs; `on_started` is called with the directory of the new run."""
        self._screen = screen
        self._service = service
        self._config_dir = config_dir
        self._rows = rows
        self._on_started = on_started

    def choose(self, now: float) -> None:
        """Opens the list of configurations. `now` is unix time."""
        # Imported here so that the list opens faster.
        from tputui.ui.launch.picker import ConfigPicker

        rows = sort_rows(self._rows(), SortOrder(), now)
        runs = [(row.path, summary_text(row)) for row in rows if row.state not in ("unreadable", "log")]

        def edit(picked: PickedConfig | None) -> None:
            if picked is not None:
                self._edit(picked, now)

        self._screen.app.push_screen(ConfigPicker(self._config_dir, runs, self._service.data_sets), edit)

    def edit_demo(self, now: float) -> None:
        """Opens the launcher with the digits sample. `now` is unix time."""
        from tputui.ui.launch import configs
        from tputui.ui.launch.form import PickedConfig

        self._edit(PickedConfig(configs.demo(self._config_dir), resume=False), now)

    def _edit(self, picked: PickedConfig, now: float) -> None:
        """Opens the launcher with a configuration; leaving it leads back to the configurations."""
        from tputui.ui.launch.screen import LauncherScreen

        def closed(run_dir: Path | None) -> None:
            if run_dir is not None:
                self._on_started(run_dir)
            else:
                self.choose(now)

        taken = {row.path.name for row in self._rows()}
        self._screen.app.push_screen(LauncherScreen(self._service, picked, self._config_dir, taken), closed)

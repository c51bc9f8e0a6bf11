"""Opens runs and logs from the run list, one or several to compare.

A log is read by a process of its own for as long as it is shown, so that the view follows a log that grows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from tputui.session.session import Session
from tputui.ui.launch.checker import LaunchService
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.render.lines import clean
from tputui.ui.runs.rows import RunRow
from tputui.ui.runs.sort_order import SortOrder, sort_rows
from tputui.ui.runs.table import summary_text
from tputui.ui.widgets.dialogs import Notices

if TYPE_CHECKING:
    from tputui.child_process import ChildProcess
    from tputui.ui.launch.form import PickedConfig

_UNTIL_REPLACED_S = 3_600.0

_Opened = Mapping[Path, "ChildProcess"]


class _Reading:
    """Logs that are being opened."""

    def __init__(self, rows: Sequence[RunRow], show: Callable[[_Opened], None]) -> None:
        self.rows = rows
        self.show = show
        self.cancelled = threading.Event()


class RunOpener:
    """Opens the screens that show runs and logs."""

    def __init__(
        self,
        screen: Screen[Any],
        notices: Notices,
        on_closed: Callable[[], object],
        clock: Callable[[], float],
        *,
        read_only: bool,
        replay: Callable[[Path], Session] | None = None,
    ) -> None:
        """`on_closed` is called after a screen was closed. With `read_only` no request can be made of a run. `replay`
        opens a run at its start; without it, a run that is over opens at its end."""
        self._screen = screen
        self._notices = notices
        self._on_closed = on_closed
        self._clock = clock
        self._read_only = read_only
        self._replay = replay
        self._reading: _Reading | None = None
        self._shown: list[ChildProcess] = []
        """The logs that are read for the screen that is shown."""

    def open(self, row: RunRow) -> None:
        """Opens a run, or a log."""
        if row.state == "unreadable":
            self._notices.show(f"{row.name}: {row.reason}")
        elif row.is_log or row.host:
            read_only = row.is_log or self._read_only
            self._read([row], lambda opened: self._show_run(opened[row.path].run_dir, read_only=read_only))
        else:
            self._show_run(row.path, read_only=self._read_only)

    def compare(self, rows: Sequence[RunRow], base: int) -> None:
        """Compares runs and logs; `base` is the index of the one to compare with."""
        # Imported here so that the list opens faster.
        from tputui.compare.compare import RUNS_MAX, RUNS_MIN

        if not RUNS_MIN <= len(rows) <= RUNS_MAX:
            marked = f"{len(rows)} visible run{' is' if len(rows) == 1 else 's are'} marked"
            self._notices.show(f"compare: {marked}; mark {RUNS_MIN}-{RUNS_MAX} with space")
        elif logs := [row for row in rows if row.is_log or row.host]:
            self._read(logs, partial(self._show_comparison, rows, base))
        else:
            self._show_comparison(rows, base, {})

    def cancel(self, key: str = "") -> None:
        """Does not open logs that are still read: the next key must not go to a sudden screen. Enter waits for them."""
        if self._reading is not None and key != "enter":
            self._reading.cancelled.set()
            kind = "run" if self._reading.rows[0].host else "log"
            self._reading = None
            self._notices.show(f"opening the {kind} was cancelled by another key")

    def close(self) -> None:
        """Ends reading."""
        if self._reading is not None:
            self._reading.cancelled.set()
        while self._shown:
            self._shown.pop().close()

    def _show_run(self, run_dir: Path, *, read_only: bool) -> None:
        session = self._replay(run_dir) if self._replay is not None else Session.live(run_dir, self._clock)
        self._screen.app.push_screen(MonitorScreen(session, run_dir, read_only=read_only), self._closed)

    def _show_comparison(self, rows: Sequence[RunRow], base: int, opened: _Opened) -> None:
        from tputui.ui.compare.screen import CompareScreen

        run_dirs = [opened[row.path].run_dir if row.path in opened else row.path for row in rows]
        self._screen.app.push_screen(CompareScreen(run_dirs, base=base, read_only=self._read_only), self._closed)

    def _closed(self, _: object) -> None:
        logs, self._shown = self._shown, []
        self._end(logs)
        self._on_closed()

    def _end(self, logs: Sequence[ChildProcess]) -> None:
        """Ends the processes that read logs, in a thread."""
        if logs:
            self._screen.run_worker(partial(_close, logs), thread=True, group="logs")

    def _read(self, rows: Sequence[RunRow], show: Callable[[_Opened], None]) -> None:
        """Reads the beginning of logs in a thread, then shows them."""
        paths = [row.path for row in rows]
        if self._reading is not None and [row.path for row in self._reading.rows] == paths:
            return
        if self._reading is not None:
            self._reading.cancelled.set()
        self._reading = reading = _Reading(rows, show)
        names = rows[0].name if len(rows) == 1 else f"{len(rows)} {'runs' if rows[0].host else 'logs'}"
        self._notices.show(f"reading {names} ... (any key cancels)", _UNTIL_REPLACED_S)
        self._screen.run_worker(partial(self._open_logs, reading), thread=True, group="logs")

    def _open_logs(self, reading: _Reading) -> None:
        from tputui.child_process import Cancelled
        from tputui.log_import import place as logs
        from tputui.logs.rows import UnknownLog
        from tputui.remote import opening as mirrors
        from tputui.remote.address import RunAddress, parse_host

        opened: dict[Path, ChildProcess] = {}
        problem = ""
        try:
            for row in reading.rows:
                path = row.path
                if row.host:
                    address = RunAddress(hosts=(parse_host(row.host),), run=str(path))
                    opened[path] = mirrors.OpenedMirror(address, cancelled=reading.cancelled)
                else:
                    opened[path] = logs.OpenedLog(path, follow=True, cancelled=reading.cancelled)
        except (UnknownLog, mirrors.Unreachable) as error:
            problem = str(error)
        except OSError as error:
            problem = f"{path}: cannot be opened: {error.strerror or error}"
        except Cancelled:
            pass
        if problem or reading.cancelled.is_set() or not self._screen.call_later(self._opened, reading, opened):
            _close(list(opened.values()))
        if problem:
            self._screen.call_later(self._failed, reading, problem)

    def _opened(self, reading: _Reading, opened: _Opened) -> None:
        is_wanted = reading is self._reading and self._screen.is_current
        if reading is self._reading:
            self._reading = None
            self._notices.clear()
        if is_wanted:
            self._shown += opened.values()
            reading.show(opened)
        else:
            self._end(list(opened.values()))

    def _failed(self, reading: _Reading, problem: str) -> None:
        if reading is self._reading:
            self._reading = None
            self._notices.show(clean(problem))


def _close(logs: Sequence[ChildProcess]) -> None:
    for log in logs:
        log.close()


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

"""The list of runs. Enter opens one: live while it trains, as a replay once it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.model.snapshot import ENDED, Snapshot
from tputui.session import Session, load
from tputui.telemetry import rundir
from tputui.ui import keys
from tputui.ui.lines import Line, Span, clean, spread
from tputui.ui.screens.help import HelpScreen
from tputui.ui.screens.monitor import MonitorResult, MonitorScreen
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.base import Drawn
from tputui.ui.widgets.runs import RunsTable

REFRESH_S = 2.0
"""Seconds between two looks at the directory and at the runs that train."""


class RunsHead(Drawn):
    """Where the runs are, and how many train."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__(id="head")
        self._runs_dir = runs_dir
        self._counts = ""

    def show(self, counts: str) -> None:
        """Takes newer counts."""
        self._counts = counts
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """One line."""
        left: Line = [Span(" runs ", "strong"), Span(f"in {clean(str(self._runs_dir))}", "label")]
        return [spread(left, [Span(f"{self._counts} ", "dim")], width)]


class RunsScreen(Screen[MonitorResult]):
    """Every run of a directory."""

    BINDINGS = keys.bindings(keys.RUNS)
    CSS_PATH = "../runs.tcss"

    class Read(Message):
        """What the reading thread knows now."""

        def __init__(self, paths: list[Path], snapshots: dict[Path, Snapshot]) -> None:
            super().__init__()
            self.paths, self.snapshots = paths, snapshots

    class Ready(Message):
        """A session was opened."""

        def __init__(self, session: Session) -> None:
            super().__init__()
            self.session = session

    def __init__(self, runs_dir: Path, *, read_only: bool = False, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives unix time."""
        super().__init__()
        self._runs_dir = runs_dir
        self._read_only = read_only
        self._clock = clock
        self._reader = RunsReader(runs_dir, self._tell, clock)

    def compose(self) -> ComposeResult:
        """Head, table, keys."""
        yield RunsHead(self._runs_dir)
        yield RunsTable(self._runs_dir, id="runs")
        yield KeyBar(keys.RUNS, id="keys")

    def on_mount(self) -> None:
        """Starts to read."""
        self.query_one(RunsTable).focus()
        self._read()

    def on_unmount(self) -> None:
        """Stops reading."""
        self._reader.stop()

    @work(thread=True, group="runs")
    def _read(self) -> None:
        self._reader.run()

    def _tell(self, paths: list[Path], snapshots: dict[Path, Snapshot]) -> None:
        self.post_message(self.Read(paths, snapshots))

    def on_runs_screen_read(self, message: Read) -> None:
        """Shows what was read."""
        self.query_one(RunsTable).show(message.paths, message.snapshots)
        training = sum(snapshot.condition not in ENDED for snapshot in message.snapshots.values())
        runs = f"{len(message.paths):,} run{'' if len(message.paths) == 1 else 's'}"
        self.query_one(RunsHead).show(f"{runs}, {training} in training")

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self.query_one(RunsTable).move(by)

    def action_reload(self) -> None:
        """Looks again now."""
        self._reader.wake()

    def action_open(self) -> None:
        """Opens the chosen run."""
        chosen = self.query_one(RunsTable).chosen
        if chosen is not None:
            self._open(chosen)

    def on_runs_table_opened(self) -> None:
        """Opens the chosen run."""
        self.action_open()

    @work(thread=True, group="open", exclusive=True)
    def _open(self, run_dir: Path) -> None:
        ended = load(run_dir, self._clock).condition in ENDED
        self.post_message(self.Ready(Session.replay(run_dir) if ended else Session.live(run_dir)))

    def on_runs_screen_ready(self, message: Ready) -> None:
        """Shows the run."""
        session = message.session
        self.app.push_screen(MonitorScreen(session, session.run_dir, read_only=self._read_only))

    def action_help(self) -> None:
        """Shows the keys."""
        self.app.push_screen(HelpScreen(keys.RUNS))

    def action_leave(self) -> None:
        """Leaves the list."""
        self.dismiss(MonitorResult("quit", None))


class RunsReader:
    """Reads the runs of a directory in a thread, newest first; runs that ended are read once."""

    def __init__(
        self, runs_dir: Path, tell: Callable[[list[Path], dict[Path, Snapshot]], None], clock: Callable[[], float]
    ) -> None:
        self._runs_dir = runs_dir
        self._tell = tell
        self._clock = clock
        self._snapshots: dict[Path, Snapshot] = {}
        self._stopped = threading.Event()
        self._awake = threading.Event()

    def run(self) -> None:
        """The body of the thread."""
        while not self._stopped.is_set():
            self._awake.clear()
            paths = rundir.listing(self._runs_dir)
            self._tell(paths, dict(self._snapshots))
            for path in paths:
                if self._stopped.is_set():
                    return
                known = self._snapshots.get(path)
                if known is None or known.condition not in ENDED:
                    self._snapshots[path] = load(path, self._clock)
                    self._tell(paths, dict(self._snapshots))
            self._awake.wait(REFRESH_S)

    def wake(self) -> None:
        """Reads again now, those that ended included."""
        self._snapshots = {}
        self._awake.set()

    def stop(self) -> None:
        """Ends the thread soon."""
        self._stopped.set()
        self._awake.set()

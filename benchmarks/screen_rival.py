"""A screen of ready-made widgets, Textual's DataTable and textual-plotext, on the same frames as ours.

    python -m benchmarks.screen_rival {nothing,ready-made} RUN_DIR [PATH_OF_TEXTUAL_PLOTEXT]

`nothing` reads the run at the same rate and draws one line: the cost of reading.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from textual import work
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable, Static

from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.ui.base.reader_thread import Frame, ReaderThread

COLUMNS = ("core", "loss", "step", "state")


class FrameTaken(Message):
    """The pump has a frame."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class Rival(App[None]):
    """A header, a table of cores, a chart of the loss."""

    CSS = "#table { width: 48; } #plot { width: 1fr; } #head { height: 3; }"

    def __init__(self, run_dir: Path, plot: Widget | None) -> None:
        super().__init__()
        self._plot: Any = plot
        self._pump = ReaderThread(Session.live(run_dir), lambda frame: void(self.post_message(FrameTaken(frame))))

    def compose(self) -> ComposeResult:
        yield Static("reading", id="head")
        if self._plot is not None:
            with Horizontal():
                yield DataTable(id="table")
                yield self._plot

    def on_mount(self) -> None:
        if self._plot is not None:
            self.query_one(DataTable).add_columns(*COLUMNS)
        self._read()

    def on_unmount(self) -> None:
        self._pump.stop()

    @work(thread=True)
    def _read(self) -> None:
        self._pump.run()

    def on_frame_taken(self, message: FrameTaken) -> None:
        snapshot = message.frame.snapshot
        with self.batch_update():
            self.query_one("#head", Static).update(f"{snapshot.run}  {snapshot.condition}  step {snapshot.steps:,}")
            if self._plot is not None:
                self._fill(snapshot)
                self._draw(snapshot)
        self._pump.drawn()

    def _fill(self, snapshot: Snapshot) -> None:
        """Updates every cell and keeps the rows, as the documentation of DataTable recommends."""
        table: DataTable[str] = self.query_one(DataTable)
        for core in snapshot.cores:
            cells = (str(core.core), f"{core.loss:.4f}", str(core.step), "running")
            if table.row_count <= core.core:
                table.add_row(*cells)
            else:
                for column, cell in enumerate(cells):
                    table.update_cell_at((core.core, column), cell)  # type: ignore[arg-type]  # a plain pair is allowed

    def _draw(self, snapshot: Snapshot) -> None:
        """Plots min, mean and max of each segment, at most one segment per dot."""
        plot = self._plot.plt
        plot.clear_data()
        every = 1 + len(snapshot.loss) // max(1, 2 * self._plot.size.width)
        pieces = snapshot.loss[::every]
        steps = [piece.last_step for piece in pieces]
        for name in ("min", "mean", "max"):
            plot.plot(steps, [getattr(piece, name) for piece in pieces], marker="braille", label=name)
        self._plot.refresh()


def void(_: object) -> None:
    """Discards a value."""


def main() -> None:
    """Shows the run until the program is killed."""
    kind, run_dir, *where = sys.argv[1:]
    plot: Widget | None = None
    if kind == "ready-made":
        # At the end of the path, so that both programs use the same Textual.
        sys.path.extend(where)
        plot = import_module("textual_plotext").PlotextPlot(id="plot")
    Rival(Path(run_dir), plot).run()


if __name__ == "__main__":
    main()

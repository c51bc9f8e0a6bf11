"""The screen that ready-made widgets give: Textual's DataTable and textual-plotext, on the frames that ours draws.

    python -m benchmarks.screen_rival {nothing,ready-made} RUN_DIR [WHERE_TEXTUAL_PLOTEXT_IS]

`nothing` reads the run at the same pace and draws one line of it: what reading alone costs.
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
    """A head, a table of cores, a chart of the loss."""

    CSS = "#table { width: 48; } #plot { width: 1fr; } #head { height: 3; }"

    def __init__(self, run_dir: Path, plot: Widget | None) -> None:
        super().__init__()
        self._plot: Any = plot
        self._pump = ReaderThread(Session.live(run_dir), lambda frame: void(self.post_message(FrameTaken(frame))))

    def compose(self) -> ComposeResult:
        """The widgets."""
        yield Static("reading", id="head")
        if self._plot is not None:
            with Horizontal():
                yield DataTable(id="table")
                yield self._plot

    def on_mount(self) -> None:
        """Starts to read."""
        if self._plot is not None:
            self.query_one(DataTable).add_columns(*COLUMNS)
        self._read()

    def on_unmount(self) -> None:
        """Stops reading."""
        self._pump.stop()

    @work(thread=True)
    def _read(self) -> None:
        self._pump.run()

    def on_frame_taken(self, message: FrameTaken) -> None:
        """Draws."""
        snapshot = message.frame.snapshot
        with self.batch_update():
            self.query_one("#head", Static).update(f"{snapshot.run}  {snapshot.condition}  step {snapshot.steps:,}")
            if self._plot is not None:
                self._fill(snapshot)
                self._draw(snapshot)
        self._pump.drawn()

    def _fill(self, snapshot: Snapshot) -> None:
        """Every cell of the table, as its documentation has it: rows stay, cells are updated."""
        table: DataTable[str] = self.query_one(DataTable)
        for core in snapshot.cores:
            cells = (str(core.core), f"{core.loss:.4f}", str(core.step), "running")
            if table.row_count <= core.core:
                table.add_row(*cells)
            else:
                for column, cell in enumerate(cells):
                    table.update_cell_at((core.core, column), cell)  # type: ignore[arg-type]  # a plain pair is allowed

    def _draw(self, snapshot: Snapshot) -> None:
        """Least, mean and greatest of each piece of the series, no more pieces than there are dots."""
        plot = self._plot.plt
        plot.clear_data()
        every = 1 + len(snapshot.loss) // max(1, 2 * self._plot.size.width)
        pieces = snapshot.loss[::every]
        steps = [piece.last_step for piece in pieces]
        for name in ("min", "mean", "max"):
            plot.plot(steps, [getattr(piece, name) for piece in pieces], marker="braille", label=name)
        self._plot.refresh()


def void(_: object) -> None:
    """Takes a value that nobody needs."""


def main() -> None:
    """Shows the run until the program is ended."""
    kind, run_dir, *where = sys.argv[1:]
    plot: Widget | None = None
    if kind == "ready-made":
        # Behind everything else, so that both programs run on one Textual.
        sys.path.extend(where)
        plot = import_module("textual_plotext").PlotextPlot(id="plot")
    Rival(Path(run_dir), plot).run()


if __name__ == "__main__":
    main()

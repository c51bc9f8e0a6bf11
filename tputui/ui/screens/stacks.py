"""Where every process of the run is: its Python stacks, the user's own code first."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from tputui.model import xray
from tputui.model.snapshot import ProcessStacks, Snapshot, StacksView
from tputui.ui.draw.lines import Line, Span, Tone, clean, paragraph, wrap
from tputui.ui.screens.sheet import RunSheet
from tputui.ui.widgets.panel import Drawing, Panel

NOTE = "X asks again, esc closes"


class StacksPanel(Panel[StacksView | None]):
    """The stacks that were asked for last."""

    key = "X"
    name_shown = "stacks"
    what = "where every process is, your own code first"

    @staticmethod
    def pick(snapshot: Snapshot) -> StacksView | None:
        """The stacks, once some were taken."""
        return snapshot.stacks

    def draw(self, part: StacksView | None, width: int, height: int) -> Drawing:
        """A process after the other."""
        if part is None:
            return Drawing(paragraph("asked; every process answers where it is ...", width, height), note=NOTE)
        rows: list[Line] = []
        for process in part.processes:
            rows += [*([[]] if rows else []), *_process(process, width)]
        return Drawing(rows, note=NOTE)


class StacksScreen(RunSheet):
    """The stacks over the monitor, which hands it what it reads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", show=False),
        Binding("X,shift+x", "again", show=False),
    ]

    def __init__(self, snapshot: Snapshot | None, ask: Callable[[], None]) -> None:
        """`ask` asks the run once more."""
        super().__init__(StacksPanel(id="stacks"), snapshot)
        self._ask = ask

    def action_again(self) -> None:
        """Asks again."""
        self._ask()


def _process(process: ProcessStacks, width: int) -> list[Line]:
    """Its head, then its threads; the lines in the user's own code stand out."""
    own = {xray.call(frame) for thread in process.threads for frame in thread.frames if frame.owner == "user"}
    head, *rest = xray.process_lines(process)
    rows: list[Line] = [[Span(f" {piece}", "strong")] for piece in wrap(clean(head), width - 2)]
    for line in rest:
        text = line.strip()
        tone: Tone = "accent" if text in own else "warn" if text.startswith("in your code") else "dim"
        indent = " " * (1 + len(line) - len(line.lstrip()))
        rows += [[Span(indent + piece, tone)] for piece in wrap(clean(text), max(width - len(indent) - 1, 8))]
    return rows

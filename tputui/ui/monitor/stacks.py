"""Where every process of the run is: its Python stacks, the user's own code first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from tputui.state import process_stacks
from tputui.state.snapshot import ProcessStacks, Snapshot, StacksView
from tputui.ui.base import status_text
from tputui.ui.render.lines import Line, Span, Tone, clean, paragraph, wrap
from tputui.ui.widgets.overlay import RunOverlay
from tputui.ui.widgets.panel import Drawing, Panel

NOTE = "X asks again, esc closes"
NOTE_UNASKED = "esc closes"


class StacksPart(NamedTuple):
    """What the panel shows; ages in whole seconds, so that it is drawn once in each."""

    view: StacksView | None
    age_s: int = 0
    again_s: int | None = None
    """Since when an answer to a newer request is awaited; None where none is."""


class StacksPanel(Panel[StacksPart]):
    """The stacks that were asked for last."""

    key = "X"
    name_shown = "stacks"
    what = "where every process is, your own code first"

    def __init__(self, why_not: Callable[[], str], *, id: str | None = None) -> None:
        """`why_not` tells why nothing can be asked of the run; empty where it can."""
        super().__init__(id=id)
        self._why_not = why_not

    @staticmethod
    def pick(snapshot: Snapshot) -> StacksPart:
        """The stacks, once some were taken."""
        view = snapshot.stacks
        if view is None:
            return StacksPart(None)
        again_s = _age_s(snapshot.now, view.again_t) if view.again_t is not None else None
        return StacksPart(view, _age_s(snapshot.now, view.t), again_s)

    def draw(self, part: StacksPart, width: int, height: int) -> Drawing:
        """How old they are, then a process after the other."""
        why_not = self._why_not()
        note = NOTE_UNASKED if why_not else NOTE
        if part.view is None:
            return Drawing(paragraph("asked; every process answers where it is ...", width, height), note=note)
        rows: list[Line] = []
        for process in part.view.processes:
            rows += [*([[]] if rows else []), *_process(process, width)]
        return Drawing(rows, head=_head(part, part.view, why_not, width), note=note)


class StacksScreen(RunOverlay):
    """The stacks over the monitor, which hands it what it reads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", show=False),
        Binding("X,shift+x", "again", show=False),
    ]

    def __init__(self, snapshot: Snapshot | None, ask: Callable[[], None], why_not: Callable[[], str]) -> None:
        """`ask` asks the run once more; `why_not` tells why it cannot be asked, empty where it can."""
        super().__init__(StacksPanel(why_not, id="stacks"), snapshot)
        self._ask = ask

    def action_again(self) -> None:
        """Asks again."""
        self._ask()


def _head(part: StacksPart, view: StacksView, why_not: str, width: int) -> tuple[Line, ...]:
    """When they were taken, and what became of asking again: what stands below may be old."""
    asked = f"not asked again: {why_not}" if why_not else ""
    if part.again_s is not None and not why_not:
        asked = f"asked again {status_text.seconds(part.again_s)} ago, no answer yet"
    taken = f"taken {status_text.seconds(part.age_s)} ago, at {status_text.time_of_day(view.t)}"
    told = "; ".join(text for text in (taken, asked) if text)
    tone: Tone = "warn" if asked else "label"
    return tuple([Span(f" {piece}", tone)] for piece in wrap(clean(told), width - 2))


def _age_s(now: float, t: float) -> int:
    """Whole seconds; a stranger's run may claim any moment."""
    return max(int(now - t), 0) if math.isfinite(now - t) else 0


def _process(process: ProcessStacks, width: int) -> list[Line]:
    """Its head, then its threads; the lines in the user's own code stand out."""
    own = {process_stacks.call(frame) for thread in process.threads for frame in thread.frames if frame.owner == "user"}
    head, *rest = process_stacks.process_lines(process)
    rows: list[Line] = [[Span(f" {piece}", "strong")] for piece in wrap(clean(head), width - 2)]
    for line in rest:
        text = line.strip()
        tone: Tone = "accent" if text in own else "warn" if text.startswith("in your code") else "dim"
        indent = " " * (1 + len(line) - len(line.lstrip()))
        rows += [[Span(indent + piece, tone)] for piece in wrap(clean(text), max(width - len(indent) - 1, 8))]
    return rows

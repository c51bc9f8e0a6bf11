"""The events panel: the events of a run, newest last. Choosing one moves the cursor of the charts, or the player."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui.state.chart_data import Mark
from tputui.state.snapshot import Snapshot
from tputui.ui.base import status_text
from tputui.ui.base.export import Figures, of_marks
from tputui.ui.charts import events_line
from tputui.ui.render.lines import Line, Span, clean, paragraph, wrap
from tputui.ui.widgets.panel import FRAME, Drawing, RunPanel


class EventsPart(NamedTuple):
    """The content of the panel."""

    marks: list[Mark]
    num_marks: int
    started: float | None
    why_none: str


class EventsPanel(RunPanel[EventsPart]):
    """The list of events."""

    key = "8"
    name_shown = "events"
    what = f"events of the run; enter or a click goes to one, `f` shows one kind. {events_line.legend()}"
    follows_end = True

    class Chosen(Message):
        """The user wants to go to an event."""

        def __init__(self, mark: Mark) -> None:
            super().__init__()
            self.mark = mark

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.kind: str | None = None
        """The only kind shown; None shows all."""
        self._chosen: Mark | None = None
        self._rows: list[Mark] = []
        """The event of each row that is drawn."""

    @staticmethod
    def pick(snapshot: Snapshot) -> EventsPart:
        why = "" if snapshot.marks else status_text.nothing_yet(snapshot, "event")
        return EventsPart(snapshot.marks, snapshot.num_marks, snapshot.started, why)

    @property
    def shown(self) -> list[Mark]:
        """The events of the kind that is shown."""
        return self.of_kind(self._part.marks if self._part is not None else [])

    @property
    def chosen(self) -> Mark | None:
        """The chosen event, if there is one."""
        return self._chosen

    def draw(self, part: EventsPart, width: int, height: int) -> Drawing:
        """One row per event; in full screen long events are wrapped."""
        if not part.marks:
            return Drawing(paragraph(part.why_none, width, height))
        rows: list[Line] = []
        self._rows = []
        steps = max(len(f"{mark.step:,}") for mark in part.marks)
        for mark in self.shown:
            lines = _lines(mark, part.started, steps, width, chosen=mark == self._chosen)
            lines = lines if self.has_class("-maximised") else [_first_line(lines)]
            rows += lines
            self._rows += [mark] * len(lines)
        return Drawing(rows, note=self._note(part))

    def figures(self) -> Figures:
        """The events of the kind that is shown as a table."""
        shown, marks = self.shown, self._part.marks if self._part is not None else []
        return of_marks(shown, f"{len(shown):,} of {len(marks):,} events, as shown" if self.kind is not None else "")

    def of_kind(self, marks: list[Mark]) -> list[Mark]:
        """The events of the kind that is shown."""
        return marks if self.kind is None else [mark for mark in marks if mark.kind == self.kind]

    def action_next_kind(self) -> None:
        """Show the next kind of events that occurred, after the last one all kinds."""
        found = {mark.kind for mark in (self._part.marks if self._part is not None else [])}
        kinds: list[str | None] = [None, *(kind for kind in events_line.KINDS if kind in found)]
        at = kinds.index(self.kind) if self.kind in kinds else -1
        self.kind = kinds[(at + 1) % len(kinds)]
        self.choose(None)

    def choose(self, mark: Mark | None) -> None:
        """Choose an event and scroll to it; None follows the newest."""
        self._chosen = mark
        self._top = None
        self.redraw()
        if mark is not None:
            self._scroll_to_mark(mark)

    def scroll_rows(self, rows: int) -> None:
        """Choose the event so many rows away."""
        shown = self.shown
        if not shown:
            return
        if self._chosen not in shown:
            self.choose(shown[-1] if rows < 0 else shown[0])
            return
        at = min(max(shown.index(self._chosen) + rows, 0), len(shown) - 1)
        self.choose(shown[at])

    def follow(self) -> None:
        """Choose no event, and follow the newest."""
        self.choose(None)

    def go(self) -> bool:
        """Request to go to the chosen event; returns whether there is one."""
        if self._chosen is None:
            return False
        self.post_message(self.Chosen(self._chosen))
        return True

    def on_click(self, event: events.Click) -> None:
        """Choose the event that is clicked, and go to it."""
        row = event.y - FRAME // 2 + self._first_row()
        if self.is_inside(event.x, event.y) and 0 <= row < len(self._rows):
            self._chosen = self._rows[row]
            self.redraw()
            self.go()

    def _scroll_to_mark(self, mark: Mark) -> None:
        row = self._rows.index(mark) if mark in self._rows else 0
        room = max(self.size.height - FRAME, 1)
        top = min(max(row - room // 2, 0), self._hidden_rows)
        self._top = None if top == self._hidden_rows else top
        self.redraw()

    def _note(self, part: EventsPart) -> str:
        if self.kind is not None:
            return f"{events_line.sign_of(self.kind).word} only: {len(self.shown):,} of {len(part.marks):,}"
        kept = len(part.marks)
        return f"{kept:,} of {part.num_marks:,}, thinned" if part.num_marks > kept else f"{kept:,}"


def _first_line(lines: list[Line]) -> Line:
    """The first line, with an ellipsis if there are more."""
    first, *rest = lines
    return [*first, Span("\u2026", "dim")] if rest else first


def _lines(mark: Mark, started: float | None, steps: int, width: int, *, chosen: bool) -> list[Line]:
    sign = events_line.sign_of(mark.kind)
    when = status_text.clock(max(mark.t - started, 0.0)) if started is not None else ""
    head = f" {when:>7} {mark.step:>{steps},} "
    if width < 40:
        head = f" {mark.step:>{steps},} "
    first, *rest = wrap(clean(mark.text), max(width - len(head) - 3, 8))
    text, place = ("chosen", "chosen") if chosen else ("plain", "dim")
    tone = "chosen" if chosen else sign.tone
    indent = " " * (len(head) + 2)
    lines: list[Line] = [[Span(head, place), Span(f"{sign.mark} ", tone), Span(first, text)]]  # type: ignore[arg-type]
    return lines + [[Span(indent, place), Span(piece, text)] for piece in rest]  # type: ignore[arg-type]

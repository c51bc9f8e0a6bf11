"""The events panel: the events of a run, newest last. Choosing one moves the cursor of the charts, or the player."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tputui import formatting as fmt
from tputui.state import process_stacks, root_cause
from tputui.state.chart_data import Mark
from tputui.state.snapshot import Failure, SkippedView, Snapshot, StacksView
from tputui.ui.base import status_text
from tputui.ui.base.export import Figures, of_marks
from tputui.ui.charts import events_line
from tputui.ui.render.lines import Line, Span, Tone, clean, paragraph, wrap
from tputui.ui.widgets.panel import FRAME, Drawing, RunOverlay, RunPanel


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

    class EventChosen(Message):
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
        present = {mark.kind for mark in (self._part.marks if self._part is not None else [])}
        kinds: list[str | None] = [None, *(kind for kind in events_line.KINDS if kind in present)]
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
        self.post_message(self.EventChosen(self._chosen))
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
    first, *others = lines
    return [*first, Span("\u2026", "dim")] if others else first


def _lines(mark: Mark, started: float | None, steps: int, width: int, *, chosen: bool) -> list[Line]:
    sign = events_line.sign_of(mark.kind)
    when = status_text.clock(max(mark.t - started, 0.0)) if started is not None else ""
    head = f" {when:>7} {mark.step:>{steps},} "
    if width < 40:
        head = f" {mark.step:>{steps},} "
    first, *continued = wrap(clean(mark.text), max(width - len(head) - 3, 8))
    text, place = ("chosen", "chosen") if chosen else ("plain", "dim")
    tone = "chosen" if chosen else sign.tone
    indent = " " * (len(head) + 2)
    lines: list[Line] = [[Span(head, place), Span(f"{sign.mark} ", tone), Span(first, text)]]  # type: ignore[arg-type]
    return lines + [[Span(indent, place), Span(piece, text)] for piece in continued]  # type: ignore[arg-type]


NOTE = "X: dump again, esc: close"
NOTE_CLOSE = "esc: close"


class FailurePanel(RunPanel[Failure | None]):
    """The failure of the run; visible only if there is one."""

    key = "0"
    name_shown = "failure"
    what = "first error of a failed run, with its traceback, and what failed after it"

    @staticmethod
    def pick(snapshot: Snapshot) -> Failure | None:
        return snapshot.failure

    def draw(self, part: Failure | None, width: int, height: int) -> Drawing:
        """The error and its location; then calls in the user's code, the traceback, the last output, what followed."""
        if part is None:
            return Drawing([[Span(" training has not failed", "dim")]])
        error = f"\u2716 {clean(part.error)}: {clean(part.message.splitlines()[0] if part.message else '')}"
        where = ", ".join([clean(root_cause.place_of(part)), *fmt.failure_moment(part.step, part.phase)])
        head: list[Line] = [[Span(f" {piece}", "bad")] for piece in wrap(error, width - 2, 3)]
        head += [[Span(f" {piece}", "label")] for piece in wrap(where, width - 2, 2)]
        rows: list[Line] = []
        if (manner := root_cause.how(part)) != root_cause.KINDS["exception"]:
            rows += _wrapped([manner, *([part.memory] if part.memory else [])], width, "warn")
        for name, lines, tone in _failure_parts(part):
            if lines:
                rows += [*([[]] if rows else []), [Span(f" {name}", "label")], *_wrapped(lines, width, tone)]
        return Drawing(rows, head=tuple(head), note=part.path or "")


def _failure_parts(part: Failure) -> Iterable[tuple[str, list[str], Tone]]:
    yield "your code, newest call first", root_cause.your_code(part), "strong"
    yield "traceback", part.traceback.rstrip().splitlines(), "plain"
    yield "stack at the end in native code", part.stack.splitlines(), "plain"
    yield "last lines printed before", part.log, "plain"
    yield "what followed", part.followers, "dim"


def _wrapped(lines: list[str], width: int, tone: Tone) -> list[Line]:
    return [[Span(f" {piece}", tone)] for text in lines for piece in wrap(clean(text), width - 2)]


class StacksPart(NamedTuple):
    """The content of the panel; ages in whole seconds, so that it is redrawn once a second."""

    view: StacksView | None
    age_s: int = 0
    again_s: int | None = None
    """Seconds since a newer request that was not answered yet; None if there is none."""


class StacksPanel(RunPanel[StacksPart]):
    """The newest stacks."""

    key = "X"
    name_shown = "stacks"
    what = "Python stacks of every process, your own code first"

    def __init__(self, refusal: Callable[[], str | None], *, id: str | None = None) -> None:
        """`refusal` returns the reason why the stacks cannot be requested now, or None."""
        super().__init__(id=id)
        self._refusal = refusal

    @staticmethod
    def pick(snapshot: Snapshot) -> StacksPart:
        """The stacks and their age."""
        view = snapshot.stacks
        if view is None:
            return StacksPart(None)
        again_s = _age_s(snapshot.now, view.again_t) if view.again_t is not None else None
        return StacksPart(view, _age_s(snapshot.now, view.t), again_s)

    def draw(self, part: StacksPart, width: int, height: int) -> Drawing:
        """Their age, then one process after the other."""
        refusal = self._refusal()
        note = NOTE_CLOSE if refusal is not None else NOTE
        if part.view is None:
            return Drawing(
                paragraph("requested; waiting for the stacks of every process ...", width, height), note=note
            )
        blocks: list[list[Line]] = []
        for process in part.view.processes:
            frames = [frame for thread in process.threads for frame in thread.frames]
            own = {process_stacks.call(frame) for frame in frames if frame.owner == "user"}
            lines = process_stacks.process_lines(process, process_stacks.own_cores(part.view, process))
            blocks.append(_block([*lines], own, width))
        blocks.append(_block([*process_stacks.core_lines(part.view)], set(), width))
        rows = [line for block in blocks if block for line in [*block, []]][:-1]
        return Drawing(rows, head=_head(part, part.view, refusal, width), note=note)


class StacksScreen(RunOverlay):
    """The stacks of every process."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", show=False),
        Binding("X,shift+x", "again", show=False),
    ]

    def __init__(
        self, snapshot: Snapshot | None, request: Callable[[], None], refusal: Callable[[], str | None]
    ) -> None:
        """`request` requests the stacks again; `refusal` returns the reason why that is not possible now, or None."""
        super().__init__(StacksPanel(refusal, id="stacks"), snapshot)
        self._request = request

    def action_again(self) -> None:
        """Request the stacks again."""
        self._request()


def _head(part: StacksPart, view: StacksView, refusal: str | None, width: int) -> tuple[Line, ...]:
    """The age of the stacks, and the state of a newer request: the stacks below may be old."""
    request = f"not requested again: {refusal}" if refusal is not None else ""
    if part.again_s is not None and refusal is None:
        request = f"requested again {status_text.seconds(part.again_s)} ago, no answer yet"
    age = status_text.seconds(part.age_s) if part.age_s < 60 else fmt.age(part.age_s)
    taken = f"taken {age} ago, at {status_text.time_of_day(view.t)}"
    text = "; ".join(part for part in (taken, request) if part)
    tone: Tone = "warn" if request else "label"
    return tuple([Span(f" {piece}", tone)] for piece in wrap(clean(text), width - 2))


def _age_s(now: float, t: float) -> int:
    """Age in whole seconds; an untrusted run may contain any time."""
    return max(int(now - t), 0) if math.isfinite(now - t) else 0


def _block(lines: list[str], own: set[str], width: int) -> list[Line]:
    """A process and its threads, or the TPU cores; calls in the user's own code are highlighted."""
    rows: list[Line] = [[Span(f" {piece}", "strong")] for line in lines[:1] for piece in wrap(clean(line), width - 2)]
    for line in lines[1:]:
        text = line.strip()
        is_core = text.startswith("core") and len(line) - len(text) == 2
        tone: Tone = "accent" if text in own else "warn" if text.startswith("in your code") else "dim"
        tone = "plain" if is_core else tone
        indent = " " * (1 + len(line) - len(line.lstrip()))
        rows += [[Span(indent + piece, tone)] for piece in wrap(clean(text), max(width - len(indent) - 1, 8))]
    return rows


class SkippedPanel(RunPanel[SkippedView]):
    """The examples that were left out, each with its problem."""

    key = "d"
    name_shown = "left out"
    what = "examples left out of training and validation, each with its problem"

    @staticmethod
    def pick(snapshot: Snapshot) -> SkippedView:
        return snapshot.skipped

    def draw(self, part: SkippedView, width: int, height: int) -> Drawing:
        """The location of each example, then its problem."""
        if not part.count:
            return Drawing(paragraph("no example was left out", width, height), note=NOTE_CLOSE)
        rows: list[Line] = []
        for number, example in enumerate(part.examples, start=1):
            split = "validation" if example.split == "valid" else "training"
            head = f" {number:>3}  "
            where, *more = wrap(clean(example.where), max(width - len(head) - len(split) - 3, 8))
            rows.append([Span(head, "dim"), Span(where, "strong"), Span(f"  {split}", "label")])
            rows += [[Span(" " * len(head)), Span(piece, "strong")] for piece in more]
            why = wrap(clean(example.why), max(width - len(head) - 1, 8))
            rows += [[Span(" " * len(head)), Span(piece, "warn")] for piece in why]
        rows += [[], *_rest(part, width)] if part.count > len(part.examples) else []
        head_line: Line = [Span(f" {status_text.left_out(part)}; in training another example replaces each", "label")]
        return Drawing(rows, head=(head_line,), note=NOTE_CLOSE)


class SkippedScreen(RunOverlay):
    """The list of examples left out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,d", "dismiss", show=False),
    ]

    def __init__(self, snapshot: Snapshot | None) -> None:
        super().__init__(SkippedPanel(id="skipped"), snapshot)


def _rest(part: SkippedView, width: int) -> list[Line]:
    num_hidden = part.count - len(part.examples)
    return paragraph(f"and {fmt.count(num_hidden)} more: each is a warning in the log (7)", width, 3)

"""Dialogs that confirm an action, choose how to stop a run, or choose an export format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen

from tputui.telemetry.events import RequestKind
from tputui.ui.base.export import Form
from tputui.ui.render.lines import Line, Span, clean, fit
from tputui.ui.terminal.capabilities import keys_told
from tputui.ui.widgets.line_widget import Drawn

ValueT = TypeVar("ValueT")


class Choice(NamedTuple, Generic[ValueT]):
    """An answer: the key that gives it, its text, what it results in; None is to do nothing."""

    key: str
    text: str
    value: ValueT | None


CANCEL_KEY = "esc"


class Choices(Drawn):
    """A question with its answers, one of them chosen."""

    can_focus = True

    class Taken(Message):
        """An answer was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, question: str, answers: Sequence[tuple[str, str]], note: str = "") -> None:
        """`answers` are keys and texts; `note` stands below the question."""
        super().__init__(id="choices")
        self._question = question
        self._answers = answers
        self._note = note
        self.chosen = 0

    @property
    def lines_needed(self) -> int:
        """Lines of the whole dialog without its frame."""
        return len(self._head()) + len(self._answers) + 2

    def choose(self, by: int) -> None:
        """Moves the choice."""
        self.chosen = (self.chosen + by) % len(self._answers)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """A question and its answers."""
        lines = [fit(line, width) for line in self._head()]
        for index, (key, text) in enumerate(self._answers):
            here = index == self.chosen
            mark = Span(" \u276f " if here else "   ", "accent")
            lines.append([mark, Span(f"{key:>3}  ", "accent"), Span(text, "strong" if here else "plain")])
        return [*lines, [], [Span(keys_told(self.app, "\u2191 \u2193 choose, enter confirms"), "label")]]

    def _head(self) -> list[Line]:
        note: list[Line] = [[Span(self._note, "label")]] if self._note else []
        return [[Span(self._question, "strong")], *note, []]

    def on_click(self, event: events.Click) -> None:
        """Takes the answer that is clicked."""
        content = event.get_content_offset(self)
        index = content.y - len(self._head()) if content is not None else -1
        if 0 <= index < len(self._answers):
            self.post_message(self.Taken(index))


class ChoiceScreen(ModalScreen[ValueT | None], Generic[ValueT]):
    """Asks a question; results in the value of the answer, or None. The last choice is to cancel."""

    CSS_PATH = "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "confirm", show=False),
        Binding("down,j,tab", "choose(1)", show=False),
        Binding("up,k,shift+tab", "choose(-1)", show=False),
    ]

    def __init__(self, question: str, choices: Sequence[Choice[ValueT]], note: str = "", first: int = 0) -> None:
        """`first` is the choice that stands chosen."""
        super().__init__()
        self._first = first
        self._question = question
        self._choices = choices
        self._note = note

    def compose(self) -> ComposeResult:
        """The dialog."""
        yield Choices(self._question, [(choice.key, choice.text) for choice in self._choices], self._note)

    def on_mount(self) -> None:
        """As high as what it says."""
        choices = self.query_one(Choices)
        choices.styles.height = choices.lines_needed + 4
        choices.choose(self._first)
        choices.focus()

    def take_key(self, event: events.Key) -> bool:
        """A key of an answer takes it; those that leave a screen cancel."""
        pressed = CANCEL_KEY if event.key in ("escape", "q") else event.key
        for index, choice in enumerate(self._choices):
            if choice.key == pressed:
                self.action_take(index)
                return True
        return False

    def on_choices_taken(self, message: Choices.Taken) -> None:
        """An answer was clicked."""
        self.action_take(message.index)

    def action_choose(self, by: int) -> None:
        """Moves the choice."""
        self.query_one(Choices).choose(by)

    def action_confirm(self) -> None:
        """Takes what is chosen."""
        self.action_take(self.query_one(Choices).chosen)

    def action_take(self, index: int) -> None:
        """Takes an answer."""
        self.dismiss(self._choices[index].value)


STOPS: tuple[Choice[RequestKind], ...] = (
    Choice("s", "finish this step, save a checkpoint, end", "stop"),
    Choice("e", "finish this epoch, save a checkpoint, end", "stop_after_epoch"),
    Choice("n", "end now, without saving", "stop_now"),
    Choice(CANCEL_KEY, "cancel: training goes on", None),
)


class ConfirmStop(ChoiceScreen[RequestKind]):
    """Asks how to stop; results in the request to make, or None."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Stop {clean(run)}?", STOPS)


Leave = Literal["write", "discard"]


class LeaveChanged(ChoiceScreen[Leave]):
    """Asks what becomes of edited fields when a form is left. Staying, None, is what is chosen first."""

    def __init__(self, fields: str) -> None:
        """`fields` says how many were edited: `2 changed fields`."""
        choices: tuple[Choice[Leave], ...] = (
            Choice("w", f"write {fields} to a new file", "write"),
            Choice("y", f"discard {fields} and leave", "discard"),
            Choice(CANCEL_KEY, "stay", None),
        )
        super().__init__("Leave without starting?", choices, first=2)


class Confirm(ChoiceScreen[bool]):
    """Asks whether to do something that destroys; results in True, or None. Cancelling is what is chosen first."""

    def __init__(self, question: str, yes: str, no: str = "cancel: nothing is done", note: str = "") -> None:
        """`yes` says what will be done; its key is `y`."""
        super().__init__(question, (Choice("y", yes, True), Choice(CANCEL_KEY, no, None)), note, first=1)


FORMS: tuple[Choice[Form], ...] = (
    Choice("t", "text: the panel as it is drawn, every line of it", "txt"),
    Choice("c", "CSV: the figures behind it, not rounded", "csv"),
    Choice("s", "SVG: a picture of the whole screen", "svg"),
    Choice(CANCEL_KEY, "cancel: nothing is written", None),
)


class ExportScreen(ChoiceScreen[Form]):
    """Asks for a form; results in it, or None."""

    def __init__(self, name: str) -> None:
        """`name` is what the panel is called."""
        note = "a new file in the current folder; none is overwritten"
        super().__init__(f"Write {name} as", FORMS, note)

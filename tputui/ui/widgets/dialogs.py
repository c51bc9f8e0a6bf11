"""What a screen asks and reports besides its panels: dialogs with a question, and notices of one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.timer import Timer

from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind
from tputui.telemetry.journal import SUFFIX
from tputui.ui.base.status_text import REQUEST_NAMES
from tputui.ui.render.lines import Line, Span, clean, fit
from tputui.ui.terminal.themes import key_names
from tputui.ui.widgets.line_widget import Drawn, LineInput, spans

if TYPE_CHECKING:
    from tputui.ui.base.export import Form

ValueT = TypeVar("ValueT")

NOTICE_S = 6.0
"""Seconds for which a notice is shown."""


class Choice(NamedTuple, Generic[ValueT]):
    """An answer: its key, its text and the result of the dialog; None cancels."""

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
        """`answers` are pairs of key and text; `note` is shown below the question."""
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
        """Move the selection."""
        self.chosen = (self.chosen + by) % len(self._answers)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The question and its answers."""
        lines = [fit(line, width) for line in self._head()]
        for index, (key, text) in enumerate(self._answers):
            here = index == self.chosen
            mark = Span(" \u276f " if here else "   ", "accent")
            lines.append([mark, Span(f"{key:>3}  ", "accent"), Span(text, "strong" if here else "plain")])
        return [*lines, [], [Span(key_names(self.app, "\u2191 \u2193 choose, enter confirms"), "label")]]

    def _head(self) -> list[Line]:
        note: list[Line] = [[Span(self._note, "label")]] if self._note else []
        return [[Span(self._question, "strong")], *note, []]

    def on_click(self, event: events.Click) -> None:
        """Choose the answer that is clicked."""
        content = event.get_content_offset(self)
        index = content.y - len(self._head()) if content is not None else -1
        if 0 <= index < len(self._answers):
            self.post_message(self.Taken(index))


class ChoiceScreen(ModalScreen[ValueT | None], Generic[ValueT]):
    """Asks a question; the result is the value of the answer, or None. The last choice must cancel."""

    CSS_PATH = "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "confirm", show=False),
        Binding("down,j,tab", "choose(1)", show=False),
        Binding("up,k,shift+tab", "choose(-1)", show=False),
    ]

    def __init__(self, question: str, choices: Sequence[Choice[ValueT]], note: str = "", first: int = 0) -> None:
        """`first` is the index of the preselected choice."""
        super().__init__()
        self._first = first
        self._question = question
        self._choices = choices
        self._note = note

    def compose(self) -> ComposeResult:
        """The question with its answers."""
        yield Choices(self._question, [(choice.key, choice.text) for choice in self._choices], self._note)

    def on_mount(self) -> None:
        """Fit the height, and preselect a choice."""
        choices = self.query_one(Choices)
        choices.styles.height = choices.lines_needed + 4
        choices.choose(self._first)
        choices.focus()

    def take_key(self, event: events.Key) -> bool:
        """Accept an answer by its key; keys that leave a screen cancel."""
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
        """Move the selection."""
        self.query_one(Choices).choose(by)

    def action_confirm(self) -> None:
        """Accept the selected answer."""
        self.action_take(self.query_one(Choices).chosen)

    def action_take(self, index: int) -> None:
        """Close the dialog with an answer."""
        self.dismiss(self._choices[index].value)


STOPS: tuple[Choice[RequestKind], ...] = (
    Choice("s", "finish this step, save a checkpoint, end", "stop"),
    Choice("e", "finish this epoch, save a checkpoint, end", "stop_after_epoch"),
    Choice("n", "end now, without saving", "stop_now"),
    Choice(CANCEL_KEY, "cancel: training continues", None),
)


COMMAND_STOPS: tuple[Choice[RequestKind], ...] = (
    Choice("s", "ask it to stop, as Ctrl-C does", "stop"),
    Choice("e", "after this epoch, if the script can", "stop_after_epoch"),
    Choice("n", "end now: SIGTERM, then SIGKILL", "stop_now"),
    Choice(CANCEL_KEY, "cancel: the command continues", None),
)


class ConfirmStop(ChoiceScreen[RequestKind]):
    """Asks how to stop a run; the result is the request to send, or None."""

    def __init__(self, run: str, stops: tuple[Choice[RequestKind], ...]) -> None:
        super().__init__(f'Stop run "{clean(run)}"?', stops)


Leave = Literal["write", "discard"]


class LeaveChanged(ChoiceScreen[Leave]):
    """Asks what to do with changed fields when a form is closed. Staying (None) is preselected."""

    def __init__(self, fields: str) -> None:
        """`fields` is the number of changed fields as text: `2 changed fields`."""
        choices: tuple[Choice[Leave], ...] = (
            Choice("w", f"write {fields} to a new file", "write"),
            Choice("y", f"discard {fields} and leave", "discard"),
            Choice(CANCEL_KEY, "stay", None),
        )
        super().__init__("Leave without starting?", choices, first=2)


class Confirm(ChoiceScreen[bool]):
    """Confirms a destructive action; the result is True, or None. Cancelling is preselected."""

    def __init__(self, question: str, yes: str, note: str = "") -> None:
        """`yes` describes the action; its key is `y`."""
        super().__init__(
            question, (Choice("y", yes, True), Choice(CANCEL_KEY, "cancel: nothing is done", None)), note, first=1
        )


FORMS: tuple[Choice[Form], ...] = (
    Choice("t", "text: the whole panel as drawn", "txt"),
    Choice("c", "CSV: the values behind it, not rounded", "csv"),
    Choice("s", "SVG: a picture of the whole screen", "svg"),
    Choice(CANCEL_KEY, "cancel: nothing is written", None),
)


class ExportScreen(ChoiceScreen["Form"]):
    """Asks for an export format; the result is the format, or None."""

    def __init__(self, name: str) -> None:
        """`name` is the name of the panel."""
        note = "a new file in the current folder; nothing is overwritten"
        super().__init__(f"Write {name} as", FORMS, note)


class PromptScreen(ModalScreen[ValueT | None], Generic[ValueT]):
    """Asks for a value in one line; the result is the value, or None. The dialog stays until the text is valid."""

    CSS_PATH = "../dialogs.tcss"

    def __init__(self, question: str, parse: Callable[[str], ValueT], text: str = "") -> None:
        """`parse` raises ValueError with a sentence for the user; `text` is the first text, which typing replaces."""
        super().__init__()
        self._question = question
        self._parse = parse
        self._text = text

    def compose(self) -> ComposeResult:
        """The text, and the reason why it is not valid."""
        yield PromptInput(self._question, id="prompt")

    def on_mount(self) -> None:
        """Start editing."""
        self.query_one(PromptInput).begin(self._text, is_selected=True)

    def on_line_input_changed(self, message: LineInput.Changed) -> None:
        """Forget the reason why the previous text was not valid."""
        message.stop()
        self.query_one(PromptInput).reason = ""

    def on_line_input_done(self, message: LineInput.Done) -> None:
        """Close the dialog with the value, or show why the text has none."""
        message.stop()
        if not message.accepted:
            self.dismiss(None)
            return
        try:
            value = self._parse(message.text)
        except ValueError as error:
            self.query_one(PromptInput).reason = str(error)
            self.query_one(PromptInput).begin(message.text)
        else:
            self.dismiss(value)


class PromptInput(LineInput):
    """A question, the text below it, and the reason why the text is not valid, else the keys."""

    reason = ""

    def paint(self, width: int, height: int) -> list[Line]:
        foot = Span(self.reason, "bad") if self.reason else Span("enter accepts, esc cancels", "label")
        text: Line = [Span("\u276f ", "accent"), *spans(self._edited, max(width - 2, 8))]
        return [[Span(self._prompt, "strong")], [], text, [], [foot]]


class Notices:
    """The notices of one screen: one sentence for a few seconds. A newer one replaces it."""

    def __init__(self, screen: Screen[Any], put: Callable[[str], None], shown_s: float = NOTICE_S) -> None:
        """`put` displays a sentence; an empty one removes the sentence displayed before."""
        self._screen = screen
        self._put = put
        self._shown_s = shown_s
        self._timer: Timer | None = None

    def show(self, sentence: str, shown_s: float | None = None) -> None:
        """Show a sentence for `shown_s` seconds, by default as long as the screen shows all of its notices."""
        self._stop_timer()
        self._put(sentence)
        self._timer = self._screen.set_timer(self._shown_s if shown_s is None else shown_s, self.clear)

    def clear(self) -> None:
        """Remove the sentence now, for example because it describes a moment that is no longer shown."""
        self._stop_timer()
        self._put("")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None


REQUEST_ACTIONS: dict[str, RequestKind] = {"checkpoint": "checkpoint", "stop": "stop", "trace": "trace"}
"""The request that each action of the key map makes."""


class RequestSender:
    """Writes requests and reports each one by a notice of the screen."""

    def __init__(
        self,
        screen: Screen[Any],
        notices: Notices,
        refusal: Callable[[Path, RequestKind], str | None],
        *,
        written: str = "requested",
        written_s: float | None = None,
        names_run: bool = False,
        on_written: Callable[[], object] = lambda: None,
    ) -> None:
        """`refusal` returns why a request cannot be made of a run now, or None. `written` is the notice after a request
        was written, shown for `written_s` seconds; with `names_run` every notice begins with the run's name.
        """
        self._screen = screen
        self._notices = notices
        self._refusal = refusal
        self._written = written
        self._written_s = written_s
        self._names_run = names_run
        self._on_written = on_written

    def submit(self, run_dir: Path, kind: RequestKind) -> None:
        """Write a request, or show why it cannot be made."""
        if self._is_possible(run_dir, kind):
            self._screen.run_worker(partial(self._write, run_dir, kind), thread=True, group="requests")

    def confirm_stop(self, run_dir: Path) -> None:
        """Ask how to stop a run, then submit that request."""

        def stop_as(kind: RequestKind | None) -> None:
            if kind is not None:
                self.submit(run_dir, kind)

        if self._is_possible(run_dir, "stop"):
            # The supervisor writes a journal about a command that need not report by itself.
            stops = COMMAND_STOPS if (run_dir / f"logs-0{SUFFIX}").exists() else STOPS
            self._screen.app.push_screen(ConfirmStop(run_dir.name, stops), stop_as)

    def _is_possible(self, run_dir: Path, kind: RequestKind) -> bool:
        reason = self._refusal(run_dir, kind)
        if reason is not None:
            self._notify(run_dir, kind, reason)
        return reason is None

    def _write(self, run_dir: Path, kind: RequestKind) -> None:
        result, shown_s = self._written, self._written_s
        try:
            requests.submit(run_dir, kind, by="screen", now=time.time())
        except OSError as error:
            result, shown_s = f"the request cannot be written: {error}", None
        self._screen.call_later(self._finish, run_dir, kind, result, shown_s)

    def _finish(self, run_dir: Path, kind: RequestKind, result: str, shown_s: float | None) -> None:
        self._notify(run_dir, kind, result, shown_s)
        self._on_written()

    def _notify(self, run_dir: Path, kind: RequestKind, result: str, shown_s: float | None = None) -> None:
        run = f"{run_dir.name}: " if self._names_run else ""
        self._notices.show(f"{run}{REQUEST_NAMES[kind]}: {result}", shown_s)

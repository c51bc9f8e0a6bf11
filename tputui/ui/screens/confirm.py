"""The dialog that asks how to stop a run. Cancelling is always one key away."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tputui.telemetry.events import RequestKind
from tputui.ui.lines import Line, Span, clean, fit
from tputui.ui.widgets.base import Drawn


class Choice(NamedTuple):
    """A way to stop, or none."""

    key: str
    text: str
    kind: RequestKind | None


CHOICES = (
    Choice("s", "finish this step, save a checkpoint, end", "stop"),
    Choice("e", "finish this epoch, save a checkpoint, end", "stop_after_epoch"),
    Choice("n", "end now, without saving", "stop_now"),
    Choice("esc", "cancel: training goes on", None),
)


class Choices(Drawn):
    """The ways to stop, one of them chosen."""

    can_focus = True

    def __init__(self, run: str) -> None:
        super().__init__(id="choices")
        self._run = run
        self.chosen = 0

    def choose(self, by: int) -> None:
        """Moves the choice."""
        self.chosen = (self.chosen + by) % len(CHOICES)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """A question and its answers."""
        lines: list[Line] = [fit([Span(f"Stop {clean(self._run)}?", "strong")], width), []]
        for index, choice in enumerate(CHOICES):
            here = index == self.chosen
            lines.append(
                [
                    Span(" \u276f " if here else "   ", "accent"),
                    Span(f"{choice.key:>3}  ", "accent"),
                    Span(choice.text, "strong" if here else "plain"),
                ]
            )
        return [*lines, [], [Span("\u2191 \u2193 choose, enter confirms", "label")]]


class ConfirmStop(ModalScreen[RequestKind | None]):
    """Asks how to stop; results in the request to make, or None."""

    CSS_PATH = "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(choice.key, f"take({index})", show=False) for index, choice in enumerate(CHOICES[:-1])),
        Binding("escape,q", "take(3)", show=False),
        Binding("enter", "confirm", show=False),
        Binding("down,j,tab", "choose(1)", show=False),
        Binding("up,k,shift+tab", "choose(-1)", show=False),
    ]

    def __init__(self, run: str) -> None:
        super().__init__()
        self._run = run

    def compose(self) -> ComposeResult:
        """The dialog."""
        yield Choices(self._run)

    def action_choose(self, by: int) -> None:
        """Moves the choice."""
        self.query_one(Choices).choose(by)

    def action_confirm(self) -> None:
        """Takes what is chosen."""
        self.action_take(self.query_one(Choices).chosen)

    def action_take(self, index: int) -> None:
        """Takes a choice."""
        self.dismiss(CHOICES[index].kind)

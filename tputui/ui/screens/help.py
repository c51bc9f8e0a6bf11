"""The help: made from the key map, so that it cannot tell what is not so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tputui.model.snapshot import Snapshot
from tputui.ui.keys import Key
from tputui.ui.lines import Line, Span, wrap
from tputui.ui.widgets.panel import Drawing, Panel

HelpPart = tuple[tuple[str, str], ...]
"""Heads (with an empty second text) and pairs of key and sentence."""

_KEY_WIDTH = 12


class HelpPanel(Panel[HelpPart]):
    """Keys with what they do."""

    key = "?"
    name_shown = "help"
    what = "this help"

    @staticmethod
    def pick(snapshot: Snapshot) -> HelpPart:
        """Nothing of a snapshot is help."""
        return ()

    def draw(self, part: HelpPart, width: int, height: int) -> Drawing:
        """A line a key."""
        rows: list[Line] = []
        for shown, sentence in part:
            if not sentence:
                rows += [[], [Span(f" {shown}", "title")]] if rows else [[Span(f" {shown}", "title")]]
                continue
            first, *rest = wrap(sentence, max(width - _KEY_WIDTH - 3, 10))
            rows.append([Span(f"  {shown:<{_KEY_WIDTH}}", "accent"), Span(first)])
            rows += [[Span(" " * (_KEY_WIDTH + 2)), Span(piece)] for piece in rest]
        return Drawing(rows, note="esc closes")


class HelpScreen(ModalScreen[None]):
    """Help over the screen that asked for it."""

    CSS_PATH = "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
    ]

    def __init__(self, keys: Sequence[Key], panels: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__()
        self._part = help_part(keys, panels)

    def compose(self) -> ComposeResult:
        """The panel."""
        yield HelpPanel(id="help")

    def on_mount(self) -> None:
        """Fills it."""
        self.query_one(HelpPanel).show(self._part)

    def action_scroll(self, rows: int) -> None:
        """Scrolls."""
        self.query_one(HelpPanel).scroll_rows(rows)


def help_part(keys: Sequence[Key], panels: Sequence[tuple[str, str]]) -> HelpPart:
    """The keys by group, then the panels with what they show."""
    found: list[tuple[str, str]] = []
    for group in dict.fromkeys(key.group for key in keys):
        found.append((group, ""))
        found += [(key.shown, key.help) for key in keys if key.group == group and not key.shown.isdigit()]
        if group == "panels":
            found += list(panels)
    return tuple(found)

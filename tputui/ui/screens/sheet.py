"""A sheet: one panel over the screen that asked for it, which scrolls."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tputui.ui.widgets.panel import Panel


class Sheet(ModalScreen[None]):
    """Holds one panel. Subclasses say which, and what closes it."""

    CSS_PATH = "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("home", "scroll(-1000000)", show=False),
        Binding("end", "scroll(1000000)", show=False),
    ]

    def action_scroll(self, rows: int) -> None:
        """Scrolls."""
        self.query_one(Panel).scroll_rows(rows)

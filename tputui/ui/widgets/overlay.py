"""A sheet: one panel over the screen that asked for it, which scrolls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tputui.state.snapshot import Snapshot
from tputui.ui.base import keymap
from tputui.ui.widgets.bars import NoticeBar
from tputui.ui.widgets.notices import Notices
from tputui.ui.widgets.panel import Panel


class Overlay(ModalScreen[None]):
    """Holds one panel. Subclasses say which, and what closes it."""

    # Absolute: Textual resolves a relative path against the file of the subclass.
    CSS_PATH = Path(__file__).parent / "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home", "scroll(-1000000)", show=False),
        Binding("end", "scroll(1000000)", show=False),
        *keymap.bindings(keymap.HANDS),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.notices = Notices(self, lambda sentence: self.query_one(NoticeBar).show_notice(sentence))

    def action_scroll(self, rows: int) -> None:
        """Scrolls."""
        self.query_one(Panel).scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scrolls by pages."""
        self.query_one(Panel).page(pages)


class RunOverlay(Overlay):
    """Holds a panel of a run, over a screen that hands it what it reads."""

    def __init__(self, panel: Panel[Any], snapshot: Snapshot | None) -> None:
        super().__init__()
        self._panel = panel
        self._first = snapshot

    def compose(self) -> ComposeResult:
        """The panel, and where sentences go."""
        yield self._panel
        yield NoticeBar()

    def on_mount(self) -> None:
        """Fills it."""
        if self._first is not None:
            self.show(self._first)

    def show(self, snapshot: Snapshot) -> None:
        """Takes a newer snapshot."""
        self._panel.show(self._panel.pick(snapshot))

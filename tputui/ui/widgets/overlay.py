"""Overlays: one scrolling panel over a screen."""

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
    """Shows one panel. Subclasses define the panel and the keys that close it."""

    # Absolute: Textual resolves a relative path against the file of the subclass.
    CSS_PATH = Path(__file__).parent / "../dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home", "scroll(-1000000)", show=False),
        Binding("end", "scroll(1000000)", show=False),
        *keymap.bindings(keymap.COMMON),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.notices = Notices(self, lambda sentence: self.query_one(NoticeBar).show_notice(sentence))

    def action_scroll(self, rows: int) -> None:
        """Scroll the panel."""
        self.query_one(Panel).scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scroll the panel by pages."""
        self.query_one(Panel).page(pages)


class RunOverlay(Overlay):
    """Shows a panel of a run. The screen below calls `show` with every snapshot."""

    def __init__(self, panel: Panel[Any], snapshot: Snapshot | None) -> None:
        super().__init__()
        self._panel = panel
        self._first = snapshot

    def compose(self) -> ComposeResult:
        """The panel and the notices."""
        yield self._panel
        yield NoticeBar()

    def on_mount(self) -> None:
        """Show the first snapshot."""
        if self._first is not None:
            self.show(self._first)

    def show(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot."""
        self._panel.show(self._panel.pick(snapshot))

"""Panels on one screen, placed by the size of the terminal, one of them selected; and a panel over a screen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widget import Widget

from tputui.state.snapshot import Snapshot
from tputui.ui.base import keymap
from tputui.ui.widgets.bars import NoticeBar
from tputui.ui.widgets.dialogs import Notices
from tputui.ui.widgets.panel import Panel, RunPanel

PanelT = TypeVar("PanelT", bound=Panel[Any])


class Box(NamedTuple):
    """A rectangle of terminal cells."""

    x: int
    y: int
    width: int
    height: int


class Panels(Widget, Generic[PanelT]):
    """Contains every panel of a screen. Subclasses define `boxes`, and call `place` when it changes."""

    # Textual renders every visible widget for every frame; what the panels leave free is blank.
    BLANK = True

    def __init__(self, panels: Mapping[str, PanelT], selected: str, *, id: str | None = None) -> None:
        """`panels` by name, in the order of their keys."""
        super().__init__(id=id)
        self._panels = dict(panels)
        self.selected = selected
        self.maximised = False
        self._placed: dict[str, Box] = {}

    @abstractmethod
    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """The boxes of the visible panels, in cells."""

    def names(self) -> Sequence[str]:
        """The panels that can be selected, in the order of their keys."""
        return list(self._panels)

    def compose(self) -> ComposeResult:
        """The panels."""
        yield from self._panels.values()

    @property
    def panel(self) -> PanelT:
        """The selected panel."""
        return self._panels[self.selected]

    def panels(self) -> Iterable[PanelT]:
        """Every panel."""
        return self._panels.values()

    def select(self, name: str) -> None:
        """Show a panel and focus it; does nothing if it cannot be selected."""
        if name not in self.names():
            return
        self.selected = name
        self.place()
        self.screen.set_focus(self._panels[name])

    def descriptions(self) -> list[tuple[str, str]]:
        """The key of each panel, and its name with what it shows."""
        return [(panel.key, f"{panel.name_shown}: {panel.what}") for panel in self.panels()]

    def action_select(self, key: int | str) -> None:
        """Select the panel of a key; the selected one again fills the screen."""
        name = next(name for name, panel in self._panels.items() if panel.key == str(key))
        if self.selected == name:
            self.maximise(not self.maximised)
        else:
            self.select(name)

    def action_cycle(self, by: int) -> None:
        """Select a neighbour of the selected panel."""
        names = self.names()
        self.select(names[(names.index(self.selected) + by) % len(names)])

    def action_maximise(self) -> None:
        """Show the selected panel in full screen, or all of them again."""
        self.maximise(not self.maximised)

    def action_scroll(self, rows: int) -> None:
        """Scroll the selected panel."""
        self.panel.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scroll the selected panel by pages."""
        self.panel.page(pages)

    def action_follow(self) -> None:
        """Let the selected panel follow the newest rows again."""
        self.panel.follow()

    def maximise(self, maximised: bool) -> None:
        """Set whether the selected panel fills the widget."""
        self.maximised = maximised
        self.place()

    def on_resize(self, _: events.Resize) -> None:
        self.place()

    def on_panel_selected(self, event: Panel.Selected) -> None:
        """Remember the panel that has the focus."""
        event.stop()
        if event.control.id is not None:
            self.selected = event.control.id

    def place(self) -> None:
        """Lay out the panels for the current size."""
        width, height = self.size
        boxes = self.boxes(width, height)
        if boxes == self._placed:
            return
        self._placed = boxes
        for name, panel in self._panels.items():
            box = boxes.get(name)
            panel.display = box is not None
            panel.set_class(self.maximised, "-maximised")
            if box is not None:
                panel.styles.offset = (box.x, box.y)
                panel.styles.width, panel.styles.height = box.width, box.height


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

    @property
    def _shown_panel(self) -> Panel[Any]:
        panel: Panel[Any] = self.query_one(Panel)  # type: ignore[type-abstract]
        return panel

    def action_scroll(self, rows: int) -> None:
        """Scroll the panel."""
        self._shown_panel.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scroll the panel by pages."""
        self._shown_panel.page(pages)


class RunOverlay(Overlay):
    """Shows a panel of a run. The screen below calls `show` with every snapshot."""

    def __init__(self, panel: RunPanel[Any], snapshot: Snapshot | None) -> None:
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

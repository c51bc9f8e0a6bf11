"""The panels, placed by the size of the terminal and by which of them is selected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.widget import Widget

from tputui.model.snapshot import Snapshot
from tputui.ui import layout
from tputui.ui.widgets.chart import LossPanel
from tputui.ui.widgets.cores import CoresPanel
from tputui.ui.widgets.epochs import EpochsPanel
from tputui.ui.widgets.events import EventsPanel
from tputui.ui.widgets.failure import FailurePanel
from tputui.ui.widgets.log import LogPanel
from tputui.ui.widgets.memory import MemoryPanel
from tputui.ui.widgets.meters import MetersPanel
from tputui.ui.widgets.pace import PacePanel
from tputui.ui.widgets.panel import Panel
from tputui.ui.widgets.xla import XlaPanel

PANEL_TYPES: tuple[type[Panel[Any]], ...] = (
    CoresPanel,
    LossPanel,
    MetersPanel,
    EpochsPanel,
    XlaPanel,
    MemoryPanel,
    LogPanel,
    EventsPanel,
    PacePanel,
    FailurePanel,
)
"""In the order of their keys, the failure at the end with 0."""

PanelT = TypeVar("PanelT", bound=Panel[Any])

NAMES = (*layout.PANELS, layout.FAILURE)


class Body(Widget):
    """Holds every panel; `layout` says where they stand."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._panels: dict[str, Panel[Any]] = {
            name: panel(id=name) for name, panel in zip(NAMES, PANEL_TYPES, strict=True)
        }
        self.selected = "cores"
        self.maximised = False
        self._failed = False
        self._num_cores = 0
        self._placed: dict[str, layout.Box] = {}

    def compose(self) -> ComposeResult:
        """The panels."""
        yield from self._panels.values()

    @property
    def panel(self) -> Panel[Any]:
        """The selected panel."""
        return self._panels[self.selected]

    def panels(self) -> Iterable[Panel[Any]]:
        """Every panel."""
        return self._panels.values()

    def show(self, snapshot: Snapshot) -> None:
        """Hands each panel its part."""
        failed = snapshot.failure is not None
        num_cores = len(snapshot.cores)
        if (failed, num_cores) != (self._failed, self._num_cores):
            self._failed, self._num_cores = failed, num_cores
            self.place()
        for panel in self._panels.values():
            panel.show(panel.pick(snapshot))

    def select(self, name: str) -> None:
        """Brings a panel into sight and gives it the focus."""
        if name == layout.FAILURE and not self._failed:
            return
        self.selected = name
        self.place()
        self.screen.set_focus(self._panels[name])

    def cycle(self, by: int) -> None:
        """Selects a neighbour of the selected panel."""
        names = [name for name in NAMES if name != layout.FAILURE or self._failed]
        self.select(names[(names.index(self.selected) + by) % len(names)])

    def maximise(self, maximised: bool) -> None:
        """Has the selected panel fill the body, or not."""
        self.maximised = maximised
        self.place()

    def get(self, panel: type[PanelT]) -> PanelT:
        """The panel of a kind, whether it is in sight or not."""
        return next(one for one in self._panels.values() if isinstance(one, panel))

    def on_resize(self, _: events.Resize) -> None:
        """Places the panels for the new size."""
        self.place()

    def on_panel_selected(self, event: Panel.Selected) -> None:
        """A panel was clicked."""
        event.stop()
        if event.control.id is not None:
            self.selected = event.control.id

    def on_panel_opened(self, event: Panel.Opened) -> None:
        """A panel was clicked twice."""
        event.stop()
        self.maximise(not self.maximised)

    def place(self) -> None:
        """Places the panels."""
        width, height = self.size
        boxes = layout.arrange(
            width,
            height,
            self.selected,
            maximised=self.maximised,
            failed=self._failed,
            num_cores=self._num_cores,
        )
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

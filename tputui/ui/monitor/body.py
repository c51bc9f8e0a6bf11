"""The panels of the monitor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tputui.state.snapshot import Snapshot
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.epochs import EpochsPanel
from tputui.ui.monitor.events import EventsPanel
from tputui.ui.monitor.failure import FailurePanel
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.memory import MemoryPanel
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.pace import PacePanel
from tputui.ui.monitor.xla import XlaPanel
from tputui.ui.widgets import layout
from tputui.ui.widgets.panel import Panel
from tputui.ui.widgets.panel_grid import Panels

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


class Body(Panels[Panel[Any]]):
    """Holds every panel; `layout` says where they stand."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__({name: panel(id=name) for name, panel in zip(NAMES, PANEL_TYPES, strict=True)}, "cores", id=id)
        self._failed = False
        self._num_cores = 0

    def boxes(self, width: int, height: int) -> dict[str, layout.Box]:
        """Where the panels in sight stand, in cells."""
        return layout.arrange(
            width,
            height,
            self.selected,
            maximised=self.maximised,
            failed=self._failed,
            num_cores=self._num_cores,
        )

    def names(self) -> Sequence[str]:
        """The panels that can be selected: the failure only where there is one."""
        return [name for name in NAMES if name != layout.FAILURE or self._failed]

    def show(self, snapshot: Snapshot) -> None:
        """Hands each panel its part."""
        failed = snapshot.failure is not None
        num_cores = len(snapshot.cores)
        if (failed, num_cores) != (self._failed, self._num_cores):
            self._failed, self._num_cores = failed, num_cores
            self.place()
        for panel in self.panels():
            panel.show(panel.pick(snapshot))

    def get(self, panel: type[PanelT]) -> PanelT:
        """The panel of a kind, whether it is in sight or not."""
        return next(one for one in self.panels() if isinstance(one, panel))

    def on_panel_opened(self, event: Panel.Opened) -> None:
        """A panel was clicked twice."""
        event.stop()
        self.maximise(not self.maximised)

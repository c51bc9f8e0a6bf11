"""The panels of the monitor, and how they share the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tputui.state.snapshot import Snapshot
from tputui.ui.monitor.cores import CoresPanel, strip_rows
from tputui.ui.monitor.epochs import EpochsPanel
from tputui.ui.monitor.events import EventsPanel
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.memory import MemoryPanel
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.pace import PacePanel
from tputui.ui.monitor.problems import FailurePanel
from tputui.ui.monitor.xla import XlaPanel
from tputui.ui.widgets.panel import FRAME, Panel, RunPanel
from tputui.ui.widgets.panel_grid import Box, Panels

PANELS = ("cores", "loss", "meters", "epochs", "xla", "memory", "log", "events", "pace")
"""In the order of their keys, from 1 to 9."""

FAILURE = "failure"
"""Shown above the others if the run failed."""

_TINY_WIDTH, _TINY_HEIGHT = 60, 13
_WIDE_WIDTH, _WIDE_HEIGHT = 110, 26
_FEW_CORES = 32
_THREE_FROM, _FOUR_FROM = 16, 22
"""Rows of the body from which a narrow terminal shows a third panel, and the epochs beside the meters."""
_MIDDLE = ("meters", "epochs")
_BOTH_FROM = 140
"""Width in cells from which log and events are beside each other."""

_TALL = 56
"""Rows of the body from which cores and loss take half of them."""

PANEL_TYPES: tuple[type[RunPanel[Any]], ...] = (
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
"""In the order of their keys; the failure, with key 0, is the last."""

PanelT = TypeVar("PanelT", bound=RunPanel[Any])

NAMES = (*PANELS, FAILURE)


class Body(Panels[RunPanel[Any]]):
    """Contains every panel, placed by `arrange`."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__({name: panel(id=name) for name, panel in zip(NAMES, PANEL_TYPES, strict=True)}, "cores", id=id)
        self._failed = False
        self._num_cores = 0

    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """The boxes of the visible panels, in cells."""
        return arrange(
            width,
            height,
            self.selected,
            maximised=self.maximised,
            failed=self._failed,
            num_cores=self._num_cores,
        )

    def names(self) -> Sequence[str]:
        """The panels that can be selected: the failure only if there is one."""
        return [name for name in NAMES if name != FAILURE or self._failed]

    def show(self, snapshot: Snapshot) -> None:
        """Give each panel its part."""
        failed = snapshot.failure is not None
        num_cores = len(snapshot.cores) or (snapshot.topology.num_cores if snapshot.topology is not None else 0)
        if (failed, num_cores) != (self._failed, self._num_cores):
            self._failed, self._num_cores = failed, num_cores
            self.place()
        for panel in self.panels():
            panel.show(panel.pick(snapshot))

    def get(self, panel: type[PanelT]) -> PanelT:
        """The panel of a type."""
        return next(one for one in self.panels() if isinstance(one, panel))

    def action_open(self) -> None:
        """Go to the chosen event; else show the selected panel in full screen, or all panels again."""
        if not (isinstance(self.panel, EventsPanel) and self.panel.go()):
            self.action_maximise()

    def on_panel_opened(self, event: Panel.Opened) -> None:
        """Show a panel that was double-clicked in full screen, or all panels again."""
        event.stop()
        self.maximise(not self.maximised)


def arrange(width: int, height: int, selected: str, *, maximised: bool, failed: bool, num_cores: int) -> dict[str, Box]:
    """The boxes of the visible panels, which tile `width` by `height` cells."""
    if width < 1 or height < 1:
        return {}
    if maximised or width < _TINY_WIDTH or height < _TINY_HEIGHT:
        return {selected: Box(0, 0, width, height)}
    boxes: dict[str, Box] = {}
    top = 0
    if failed:
        top = max(8, height * 2 // 5)
        boxes[FAILURE] = Box(0, 0, width, top)
    panel = "cores" if selected == FAILURE else selected
    rest = height - top
    if width >= _WIDE_WIDTH and rest >= _WIDE_HEIGHT:
        return boxes | _wide(width, rest, top, panel, num_cores)
    if rest < _TINY_HEIGHT:
        return boxes | {panel: Box(0, top, width, rest)}
    return boxes | _narrow(width, rest, top, panel, num_cores)


def _narrow(width: int, height: int, top: int, selected: str, num_cores: int) -> dict[str, Box]:
    """A strip of cores, the loss, and the selected panel or the log; meters and epochs too if there is room."""
    strip = strip_rows(num_cores, width - FRAME, max(height // 4, 4)) + FRAME
    rest, y = height - strip, top + strip
    boxes = {"cores": Box(0, top, width, strip)}
    if height < _THREE_FROM:
        return boxes | {selected if selected != "cores" else "loss": Box(0, y, width, rest)}
    last = selected if selected not in ("cores", "loss") else "log"
    if height < _FOUR_FROM:
        lower = max(5, rest * 3 // 8)
        return boxes | {"loss": Box(0, y, width, rest - lower), last: Box(0, y + rest - lower, width, lower)}
    lower, middle = max(5, rest // 4), max(6, rest // 4)
    upper = rest - lower - middle
    boxes["loss"] = Box(0, y, width, upper)
    last = last if last not in _MIDDLE else "log"
    widths = (min(max(width // 2, 40), width - 30),)
    return boxes | _beside(_MIDDLE, widths, width, y + upper, middle) | {last: Box(0, y + rest - lower, width, lower)}


def _wide(width: int, height: int, top: int, selected: str, num_cores: int) -> dict[str, Box]:
    """Everything, in three rows."""
    share = 31 if num_cores <= _FEW_CORES else 38
    left = min(max(42, width * share // 100), 90)
    most = height * 45 // 100
    upper = max(height * (50 if height >= _TALL else 42) // 100, min(_lines_for_cores(num_cores), most))
    if 2 * num_cores + 3 <= most:
        # A sparkline below each core, and the head of the table.
        upper = max(upper, 2 * num_cores + 3)
    middle = max(9, (height - upper) * 45 // 100)
    y, z = top + upper, top + upper + middle
    boxes = {"cores": Box(0, top, left, upper), "loss": Box(left, top, width - left, upper)}
    boxes |= _beside(
        ("pace", "meters", "epochs"), (max(34, width * 25 // 100), max(40, width * 33 // 100)), width, y, middle
    )
    lower = height - upper - middle
    xla, memory = max(30, width * 19 // 100), max(36, width * 23 // 100)
    if width >= _BOTH_FROM:
        widths = (xla, memory, width * 27 // 100)
        return boxes | _beside(("xla", "memory", "events", "log"), widths, width, z, lower)
    last = "events" if selected == "events" else "log"
    return boxes | _beside(("xla", "memory", last), (xla, memory), width, z, lower)


def _beside(names: tuple[str, ...], widths: tuple[int, ...], width: int, y: int, height: int) -> dict[str, Box]:
    """Panels in a row; the last one takes the rest of the width."""
    boxes, x = {}, 0
    for name, wide in zip(names, (*widths, width - sum(widths)), strict=True):
        boxes[name] = Box(x, y, wide, height)
        x += wide
    return boxes


def _lines_for_cores(num_cores: int) -> int:
    """Height of the cores panel as a table, at most 16 cores, with head and frame."""
    return min(max(num_cores, 4), 16) + 3

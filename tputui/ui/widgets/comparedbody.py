"""The panels of the comparison, placed by the size of the terminal and by which of them is selected."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events
from textual.app import ComposeResult
from textual.widget import Widget

from tputui.ui.comparison import comparelayout
from tputui.ui.comparison.comparelayout import PANELS
from tputui.ui.layout import Box
from tputui.ui.widgets.compared import ComparedPart, ComparedRunsPanel
from tputui.ui.widgets.comparedcurves import ComparedCurvesPanel
from tputui.ui.widgets.comparedtables import ComparedConfigPanel, ComparedFiguresPanel
from tputui.ui.widgets.panel import Panel

PANEL_TYPES: tuple[type[Panel[ComparedPart]], ...] = (
    ComparedRunsPanel,
    ComparedCurvesPanel,
    ComparedFiguresPanel,
    ComparedConfigPanel,
)
"""In the order of their keys."""


class CompareBody(Widget):
    """Holds every panel; `comparelayout` says where they stand."""

    def __init__(self, num_runs: int, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._num_runs = num_runs
        self._panels: dict[str, Panel[ComparedPart]] = {
            name: panel(id=name) for name, panel in zip(PANELS, PANEL_TYPES, strict=True)
        }
        self.selected = "curves"
        self.maximised = False
        self._placed: dict[str, Box] = {}

    def compose(self) -> ComposeResult:
        """The panels."""
        yield from self._panels.values()

    @property
    def panel(self) -> Panel[ComparedPart]:
        """The selected panel."""
        return self._panels[self.selected]

    def panels(self) -> Iterable[Panel[ComparedPart]]:
        """Every panel."""
        return self._panels.values()

    def show(self, part: ComparedPart) -> None:
        """Hands every panel what it shows."""
        for panel in self._panels.values():
            panel.show(part)

    def select(self, name: str) -> None:
        """Brings a panel into sight and gives it the focus."""
        self.selected = name
        self.place()
        self.screen.set_focus(self._panels[name])

    def cycle(self, by: int) -> None:
        """Selects a neighbour of the selected panel."""
        self.select(PANELS[(PANELS.index(self.selected) + by) % len(PANELS)])

    def maximise(self, maximised: bool) -> None:
        """Has the selected panel fill the body, or not."""
        self.maximised = maximised
        self.place()

    def on_resize(self, _: events.Resize) -> None:
        """Places the panels for the new size."""
        self.place()

    def on_panel_selected(self, event: Panel.Selected) -> None:
        """A panel was clicked."""
        event.stop()
        if isinstance(event.control, Panel) and event.control.id is not None:
            self.selected = event.control.id

    def place(self) -> None:
        """Places the panels."""
        width, height = self.size
        boxes = comparelayout.arrange(width, height, self.selected, maximised=self.maximised, num_runs=self._num_runs)
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

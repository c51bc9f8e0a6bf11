"""The panels of the comparison."""

from __future__ import annotations

from tputui.ui.compare import layout
from tputui.ui.compare.curves_panel import ComparedCurvesPanel
from tputui.ui.compare.layout import PANELS
from tputui.ui.compare.runs import ComparedPart, ComparedRunsPanel
from tputui.ui.compare.tables import ComparedConfigPanel, ComparedFiguresPanel
from tputui.ui.widgets.layout import Box
from tputui.ui.widgets.panel import Panel
from tputui.ui.widgets.panel_grid import Panels

PANEL_TYPES: tuple[type[Panel[ComparedPart]], ...] = (
    ComparedRunsPanel,
    ComparedCurvesPanel,
    ComparedFiguresPanel,
    ComparedConfigPanel,
)
"""In the order of their keys."""


class CompareBody(Panels[Panel[ComparedPart]]):
    """Holds every panel; `comparelayout` says where they stand."""

    def __init__(self, num_runs: int, *, id: str | None = None) -> None:
        super().__init__(
            {name: panel(id=name) for name, panel in zip(PANELS, PANEL_TYPES, strict=True)}, "curves", id=id
        )
        self._num_runs = num_runs

    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """Where the panels in sight stand, in cells."""
        return layout.arrange(width, height, self.selected, maximised=self.maximised, num_runs=self._num_runs)

    def show(self, part: ComparedPart) -> None:
        """Hands every panel what it shows."""
        for panel in self.panels():
            panel.show(part)

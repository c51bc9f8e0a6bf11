"""What the keys of the panels do, on a screen that has some. Must not know what the panels show."""

from __future__ import annotations

from typing import Any, Generic

from textual.screen import Screen, ScreenResultType

from tputui.ui.widgets.panel_grid import Panels


class PanelKeys(Screen[ScreenResultType], Generic[ScreenResultType]):
    """A screen with panels, one of which is selected."""

    @property
    def _body(self) -> Panels[Any]:
        return self.query_one(Panels)

    def panels_told(self) -> list[tuple[str, str]]:
        """Each panel with what it shows."""
        return [(panel.key, f"{panel.name_shown}: {panel.what}") for panel in self._body.panels()]

    def action_select(self, number: int) -> None:
        """Selects a panel; the selected one again fills the screen."""
        self._body.press(number)

    def action_cycle(self, by: int) -> None:
        """Selects a neighbour."""
        self._body.cycle(by)

    def action_maximise(self) -> None:
        """Full screen and back."""
        self._body.maximise(not self._body.maximised)

    def action_scroll(self, rows: int) -> None:
        """Scrolls the selected panel."""
        self._body.panel.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scrolls the selected panel by pages."""
        self._body.panel.page(pages)

    def action_follow(self) -> None:
        """Has the selected panel follow the newest again."""
        self._body.panel.follow()

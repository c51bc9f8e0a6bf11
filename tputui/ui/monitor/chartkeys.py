"""What the keys of the chart do, on a screen that has one. Must not know what else is on the screen."""

from __future__ import annotations

from typing import Generic

from textual.screen import Screen, ScreenResultType

from tputui.ui.monitor.loss import LossPanel


class ChartKeys(Screen[ScreenResultType], Generic[ScreenResultType]):
    """A screen with the chart of the loss, whose keys work whichever panel is selected."""

    @property
    def _loss(self) -> LossPanel:
        return self.query_one(LossPanel)

    def action_toggle_log(self) -> None:
        """Switches the y axis of the loss."""
        self._loss.toggle_log()

    def action_next_view(self, by: int) -> None:
        """The next view of the loss."""
        self._loss.next_view(by)

    def action_next_x(self) -> None:
        """The next x axis."""
        self._loss.next_x()

    def action_smooth(self, by: int) -> None:
        """More smoothing, or less."""
        self._loss.smooth(by)

    def action_zoom(self, closer: int) -> None:
        """Zooms in or out."""
        self._loss.zoom(bool(closer))

    def action_pan(self, by: int) -> None:
        """Moves what is in sight of the run."""
        self._loss.pan(by)

    def action_show_all(self) -> None:
        """The whole run."""
        self._loss.show_all()

    def action_cursor(self, by: int) -> None:
        """Moves the cursor that reads values."""
        self._loss.move_cursor(by)

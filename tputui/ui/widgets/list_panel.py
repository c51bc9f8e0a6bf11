"""A framed panel of rows with a cursor, which is always in sight."""

from __future__ import annotations

from typing import TypeVar

from textual import events

from tputui.ui.render.lines import Line
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

PartT = TypeVar("PartT")


class ListPanel(Panel[PartT]):
    """Rows, one of which the cursor is on. Subclasses move it, and say `cursor_row` when they draw."""

    key = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor_row = 0
        """Index of the row with the cursor in what was drawn last."""
        self._first = 0

    def draw_rows(self, part: PartT, width: int, height: int) -> list[Line]:
        """Every row, and sets `cursor_row`."""
        raise NotImplementedError

    def draw(self, part: PartT, width: int, height: int) -> Drawing:
        """The rows."""
        return Drawing(self.draw_rows(part, width, height))

    def move(self, by: int) -> None:
        """Moves the cursor, down if positive."""
        raise NotImplementedError

    def row_at(self, event: events.Click) -> int:
        """The row that was clicked; negative above the first one."""
        return self._first_row() + event.y - 1

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves with the wheel."""
        event.stop()
        self.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves with the wheel."""
        event.stop()
        self.move(-3)

    @property
    def page_rows(self) -> int:
        """By how many rows a page moves."""
        return max(self.size.height - FRAME - 2, 1)

    def _first_row(self) -> int:
        room = max(self.size.height - FRAME, 1)
        # A row of context beyond the cursor, where there is one.
        least, most = self.cursor_row - room + 2, max(self.cursor_row - 1, 0)
        self._first = max(min(max(self._first, least), most, self._hidden_rows), 0)
        return self._first

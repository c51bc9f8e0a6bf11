"""The dialog that asks in which form a panel is to be written to a file."""

from __future__ import annotations

from tputui.ui.base.export import Form
from tputui.ui.widgets.dialogs import CANCEL_KEY, Choice, ChoiceScreen

FORMS: tuple[Choice[Form], ...] = (
    Choice("t", "text: the panel as it is drawn, every line of it", "txt"),
    Choice("c", "CSV: the figures behind it, not rounded", "csv"),
    Choice("s", "SVG: a picture of the whole screen", "svg"),
    Choice(CANCEL_KEY, "cancel: nothing is written", None),
)


class ExportScreen(ChoiceScreen[Form]):
    """Asks for a form; results in it, or None."""

    def __init__(self, name: str) -> None:
        """`name` is what the panel is called."""
        note = "a new file in the current folder; none is overwritten"
        super().__init__(f"Write {name} as", FORMS, note)

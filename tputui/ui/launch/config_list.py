"""The configurations that a new run can begin with, one of them chosen."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.message import Message

from tputui.ui.launch.configs import ConfigOffer
from tputui.ui.render.lines import Line, Span, clean, crop, fit, paragraph
from tputui.ui.widgets.list_panel import ListPanel

_HEADS = {"file": "configurations", "blank": "", "run": "runs to start again"}
_NAME_WIDTHS = (20, 46)
_TASK_WIDTH = 14


class OffersPart(NamedTuple):
    """What the panel shows."""

    offers: tuple[ConfigOffer, ...]
    is_looking: bool
    where: str
    """What was looked through."""


class OffersPanel(ListPanel[OffersPart]):
    """The offers by kind."""

    name_shown = "begin with"
    what = "configurations to begin with"

    class Taken(Message):
        """The chosen one was clicked again."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._place = 0
        self._row_places: list[int] = []

    @property
    def chosen(self) -> ConfigOffer | None:
        """The offer under the cursor."""
        return self._part.offers[self._place] if self._part is not None and self._part.offers else None

    def show(self, part: OffersPart) -> None:
        """Takes newer offers; the cursor stays on its own."""
        chosen = self.chosen
        places = [index for index, offer in enumerate(part.offers) if chosen and offer.path == chosen.path]
        self._place = places[0] if places and self._place else 0
        super().show(part)

    def move(self, by: int) -> None:
        """Moves the cursor."""
        if self._part is not None and self._part.offers:
            self._place = min(max(self._place + by, 0), len(self._part.offers) - 1)
            self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Chooses one; the chosen one is taken."""
        row = self.row_at(event)
        place = self._row_places[row] if 0 <= row < len(self._row_places) else -1
        if place < 0:
            return
        if place == self._place:
            self.post_message(self.Taken())
        self._place = place
        self.redraw()

    def draw_rows(self, part: OffersPart, width: int, height: int) -> list[Line]:
        """A line an offer, a head for each kind."""
        rows: list[Line] = []
        self._row_places = []
        kind = ""
        names = max((cell_len(clean(offer.name)) for offer in part.offers), default=0)
        names = max(_NAME_WIDTHS[0], min(names, _NAME_WIDTHS[1], width - _TASK_WIDTH - 8))
        for place, offer in enumerate(part.offers):
            if _HEADS[offer.kind] and offer.kind != kind:
                rows += [[]] if rows else []
                rows.append([Span(f" {_HEADS[offer.kind]}", "title")])
            kind = offer.kind
            self._row_places += [-1] * (len(rows) - len(self._row_places))
            if place == self._place:
                self.cursor_row = len(rows)
            self._row_places.append(place)
            rows.append(_line(offer, names, width, here=place == self._place))
        if part.is_looking:
            rows.append([Span(" looking for more ...", "dim")])
        elif not any(offer.kind == "file" for offer in part.offers):
            rows += [[], *paragraph(f" no configuration file below {part.where}", width, 3)]
        return rows


def _line(offer: ConfigOffer, names: int, width: int, *, here: bool) -> Line:
    name = crop(clean(offer.name), names)
    line: Line = [
        Span(" \u276f " if here else "   ", "accent"),
        Span(name + " " * (names - cell_len(name)) + "  ", "strong" if here else "plain"),
        Span(f"{crop(clean(offer.task), _TASK_WIDTH):<{_TASK_WIDTH}}  ", "label"),
    ]
    said = Span(clean(offer.why_not), "warn") if offer.why_not else Span(clean(offer.said), "dim")
    return fit([*line, said], width)

"""The first half of starting a run: which configuration to begin with. Nothing is started here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from textual import events, work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.launch import configs
from tputui.ui.launch.configs import BLANK, ConfigOffer
from tputui.ui.launch.form import Picked
from tputui.ui.render.lines import Line, Span, clean, crop, fit, paragraph
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.notices import Notices
from tputui.ui.widgets.panel import ListPanel

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


class PickHead(Drawn):
    """What is asked, and a sentence on what was answered."""

    def __init__(self) -> None:
        super().__init__(id="head")
        self._said = ""

    def tell(self, said: str) -> None:
        """Shows a sentence."""
        self._said = said
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        title: Line = [Span(" new run ", "strong"), Span("which configuration does it begin with?", "label")]
        return [fit(title, width), fit([Span(f" {self._said}", "warn")], width)]


class PickScreen(Screen[Picked | None]):
    """Configurations to begin with."""

    BINDINGS = keymap.bindings(keymap.OFFERS)
    CSS_PATH = "../launcher.tcss"

    class Found(Message):
        """Files were looked for, and earlier runs."""

        def __init__(self, found: tuple[ConfigOffer, ...], *, is_looking: bool) -> None:
            super().__init__()
            self.found, self.is_looking = found, is_looking

    def __init__(self, start: Path, runs: Sequence[tuple[Path, str]]) -> None:
        """`start` is the directory below which files are looked for; `runs` are earlier ones, each with its state."""
        super().__init__()
        self._start = start
        self._runs = runs
        self.notices = Notices(self, self._put_notice)

    def compose(self) -> ComposeResult:
        """Head, offers, keys."""
        yield PickHead()
        yield OffersPanel(id="offers")
        yield KeyBar(keymap.OFFERS, id="keys")

    def on_mount(self) -> None:
        """Looks for configurations."""
        self.query_one(OffersPanel).focus()
        self._show((BLANK,), is_looking=True)
        self._look()

    @work(thread=True, group="offers")
    def _look(self) -> None:
        files = tuple(configs.files(self._start))
        self.post_message(self.Found((*files, BLANK), is_looking=bool(self._runs)))
        if self._runs:
            self.post_message(self.Found((*files, BLANK, *configs.runs(self._runs)), is_looking=False))

    def on_pick_screen_found(self, message: Found) -> None:
        """Shows them."""
        message.stop()
        self._show(message.found, is_looking=message.is_looking)

    def _show(self, found: tuple[ConfigOffer, ...], *, is_looking: bool) -> None:
        self.query_one(OffersPanel).show(OffersPart(found, is_looking, clean(str(self._start))))

    def keys_in_force(self) -> Sequence[keymap.Key]:
        """The keys that do something."""
        return keymap.OFFERS

    def panels_told(self) -> Sequence[tuple[str, str]]:
        """No panel is selected here."""
        return ()

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self.query_one(OffersPanel).move(by)

    def action_page(self, pages: int) -> None:
        """Moves it by nearly a screen."""
        panel = self.query_one(OffersPanel)
        panel.move(pages * panel.page_rows)

    def action_take(self) -> None:
        """Begins with the chosen one."""
        self._take(resume=False)

    def on_offers_panel_taken(self) -> None:
        """Begins with the one that was clicked again."""
        self._take(resume=False)

    def action_resume(self) -> None:
        """Goes on from the last checkpoint of the chosen run."""
        self._take(resume=True)

    def _take(self, *, resume: bool) -> None:
        offer = self.query_one(OffersPanel).chosen
        if offer is None:
            return
        why = offer.why_not
        if resume and offer.kind != "run":
            why = "there is nothing to go on from: it is no run; enter begins with it"
        elif resume and not offer.can_resume:
            why = "there is nothing to go on from: it saved no checkpoint; enter begins anew"
        if why:
            self.notices.show(f"{offer.name}: {why}")
        else:
            self.dismiss(Picked(offer, resume))

    def _put_notice(self, sentence: str) -> None:
        self.query_one(PickHead).tell(clean(sentence))

    def action_help(self) -> None:
        """Shows the keys."""
        self.app.push_screen(HelpScreen(keymap.OFFERS))

    def action_close(self) -> None:
        """Back to the runs."""
        self.dismiss(None)

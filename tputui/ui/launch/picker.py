"""The first half of starting a run: which configuration to begin with. Nothing is started here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.launch import configs
from tputui.ui.launch.config_list import OffersPanel, OffersPart
from tputui.ui.launch.configs import BLANK, ConfigOffer
from tputui.ui.launch.form_state import Picked
from tputui.ui.render.lines import Line, Span, clean, fit
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.notices import Notices


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

"""Pictures of predictions over the whole terminal, following the newest epoch, live or replayed.

The monitor hands it what it reads. Files are read and decoded in a thread, once for each version of a file, and looked
at again from time to time, since those of a run on another host may arrive after the journal that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.model.snapshot import PicturesView
from tputui.ui import keys
from tputui.ui.draw.halfblocks import Pixels, coloured, grey
from tputui.ui.draw.mosaic import Drawer
from tputui.ui.draw.pngs import Shelf, scaled
from tputui.ui.out.looks import draws_characters
from tputui.ui.playing import next_speed, play_or_pause, seek_by
from tputui.ui.pump import Frame, Player
from tputui.ui.screens.help import HelpScreen
from tputui.ui.widgets.bars import KeyBar, PlayerBar
from tputui.ui.widgets.gallery import GalleryPanel, GalleryPart, examples_of

LOOK_S = 2.0
"""Seconds between two looks at the files."""
PICTURES_MAX = 512
"""Most pictures that are read: a journal may name any number of them, and memory is bounded."""


class PicturesScreen(Screen[None]):
    """The pictures of one run."""

    BINDINGS = keys.bindings(keys.PICTURES)
    CSS_PATH = "../pictures.tcss"

    class FilesRead(Message):
        """The pictures of an epoch were read."""

        def __init__(self, view: PicturesView, shown: Mapping[str, Pixels | str]) -> None:
            super().__init__()
            self.view = view
            self.shown = shown

    def __init__(
        self,
        run_dir: Path,
        frame: Frame | None,
        ask: Callable[[Callable[[Player], None]], None],
        *,
        replaying: bool,
    ) -> None:
        """`ask` hands a command to the player of a replay."""
        super().__init__()
        self._shelf = Shelf(run_dir)
        self._frame = frame
        self._ask = ask
        self._replaying = replaying

    def compose(self) -> ComposeResult:
        """Pictures, bars."""
        yield GalleryPanel(Drawer(scaled, grey if draws_characters(self.app) else coloured), id="gallery")
        if self._replaying:
            yield PlayerBar(id="player")
        yield KeyBar(keys.in_force(keys.PICTURES, replaying=self._replaying), id="keys")

    def on_mount(self) -> None:
        """Shows what is known, and begins to look at the files."""
        self.query_one(GalleryPanel).focus()
        if self._frame is not None:
            frame, self._frame = self._frame, None
            self.show(frame)
        self.set_interval(LOOK_S, self._look)

    def show(self, frame: Frame) -> None:
        """Takes a newer frame. The pictures in sight stay until those of a newer epoch are read."""
        before, self._frame = self._wanted, frame
        if frame.player is not None and self._replaying:
            self.query_one(PlayerBar).show(frame.player)
        if self._wanted is None:
            self.query_one(GalleryPanel).show(GalleryPanel.pick(frame.snapshot))
        elif self._wanted != before:
            if before is None:
                self.query_one(GalleryPanel).show(GalleryPanel.pick(frame.snapshot))
            self._look()

    @property
    def _wanted(self) -> PicturesView | None:
        return self._frame.snapshot.pictures if self._frame is not None else None

    def _look(self) -> None:
        if self._wanted is not None:
            self._read_files(self._wanted)

    @work(thread=True, group="pictures")
    def _read_files(self, view: PicturesView) -> None:
        shown = self._shelf.read(dict.fromkeys(picture.path for picture in view.pictures[:PICTURES_MAX]))
        self.post_message(self.FilesRead(view, shown))

    def on_pictures_screen_files_read(self, message: FilesRead) -> None:
        """Shows what was read, unless a newer epoch is wanted by now."""
        message.stop()
        if self._frame is not None and message.view == self._wanted:
            examples = examples_of(message.view, message.shown)
            self.query_one(GalleryPanel).show(GalleryPart(self._frame.snapshot.run, message.view, examples, ""))

    def keys_in_force(self) -> list[keys.Key]:
        """The keys that do something now."""
        return keys.in_force(keys.PICTURES, replaying=self._replaying)

    def panels_told(self) -> list[tuple[str, str]]:
        """There are no panels to select."""
        return []

    def action_close(self) -> None:
        """Back to the monitor."""
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        """Scrolls."""
        self.query_one(GalleryPanel).scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scrolls by pages."""
        self.query_one(GalleryPanel).page(pages)

    def action_help(self) -> None:
        """Shows the keys."""
        self.app.push_screen(HelpScreen(self.keys_in_force()))

    def action_play_or_pause(self) -> None:
        """Plays or pauses; at the end it plays from the beginning."""
        self._ask(play_or_pause)

    def action_seek(self, direction: int) -> None:
        """Moves by a twentieth of the recording."""
        self._ask(lambda player: seek_by(player, direction))

    def action_speed(self, direction: int) -> None:
        """Doubles or halves the speed."""
        self._ask(lambda player: player.set_speed(next_speed(player.speed, direction)))

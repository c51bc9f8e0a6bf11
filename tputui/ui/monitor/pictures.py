"""Pictures of predictions over the whole terminal, following the newest epoch, live or replayed.

The monitor hands it what it reads. Files are read and decoded in a thread, once for each version of a file, and looked
at again from time to time, since those of a run on another host may arrive after the journal that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.message import Message

from tputui.state.chart_data import Mark
from tputui.state.snapshot import PicturesView
from tputui.ui.base import keymap
from tputui.ui.base.reader_thread import Frame, Player
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.gallery import GalleryPanel, GalleryPart, examples_of
from tputui.ui.render.image_files import ImageFiles, scaled
from tputui.ui.render.image_grid import Drawer, Pixels, coloured, grey
from tputui.ui.terminal.capabilities import draws_characters
from tputui.ui.widgets.bars import KeyBar, NoticeBar, PlayerBar
from tputui.ui.widgets.notices import Notices
from tputui.ui.widgets.playerkeys import PlayerKeys

LOOK_S = 2.0
"""Seconds between two looks at the files."""
PICTURES_MAX = 512
"""Most pictures that are read: a journal may name any number of them, and memory is bounded."""


class PictureFilter(NamedTuple):
    """What the monitor hands over."""

    frame: Frame
    over: bool
    """Whether the run that is followed has ended by now."""
    marks: Sequence[Mark]
    """What stands on the bar of the player."""


class PicturesScreen(PlayerKeys[None]):
    """The pictures of one run."""

    BINDINGS = keymap.bindings(keymap.PICTURES)
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
        sight: PictureFilter | None,
        ask: Callable[[Callable[[Player], None]], None],
        *,
        replaying: bool,
        timed: bool,
    ) -> None:
        """`ask` hands a command to the player; `timed` where there is one."""
        super().__init__()
        self._shelf = ImageFiles(run_dir)
        self._sight = sight
        self._ask = ask
        self._replaying = replaying
        self._timed = timed
        self.notices = Notices(self, lambda sentence: self.query_one(NoticeBar).show_notice(sentence))

    def compose(self) -> ComposeResult:
        """Pictures, bars."""
        yield GalleryPanel(Drawer(scaled, grey if draws_characters(self.app) else coloured), id="gallery")
        if self._timed:
            yield PlayerBar(id="player")
        yield KeyBar(self._footer_keys(), id="keys")
        yield NoticeBar()

    def on_mount(self) -> None:
        """Shows what is known, and begins to look at the files."""
        self.query_one(GalleryPanel).focus()
        if self._sight is not None:
            sight, self._sight = self._sight, None
            self.show(sight)
        self.set_interval(LOOK_S, self._look)

    def show(self, sight: PictureFilter) -> None:
        """Takes a newer frame. The pictures in sight stay until those of a newer epoch are read."""
        before, self._sight = self._wanted, sight
        self._show_time(sight)
        snapshot = sight.frame.snapshot
        if self._wanted is None:
            self.query_one(GalleryPanel).show(GalleryPanel.pick(snapshot))
        elif self._wanted != before:
            if before is None:
                self.query_one(GalleryPanel).show(GalleryPanel.pick(snapshot))
            self._look()

    def _show_time(self, sight: PictureFilter) -> None:
        """Which moment it is, and the keys that move it now."""
        self.query_one(KeyBar).show(self._footer_keys())
        player = sight.frame.player
        if player is not None and self._timed:
            self.query_one(PlayerBar).show(player, replaying=self._replaying, over=sight.over, marks=sight.marks)

    @property
    def _wanted(self) -> PicturesView | None:
        return self._sight.frame.snapshot.pictures if self._sight is not None else None

    @property
    def _in_past(self) -> bool:
        player = self._sight.frame.player if self._sight is not None else None
        return self._replaying or (player is not None and not player.live)

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
        if self._sight is not None and message.view == self._wanted:
            examples = examples_of(message.view, message.shown)
            self.query_one(GalleryPanel).show(GalleryPart(self._sight.frame.snapshot.run, message.view, examples, ""))

    def keys_in_force(self) -> list[keymap.Key]:
        """The keys that do something now."""
        return keymap.in_force(keymap.PICTURES, replaying=self._replaying, timed=self._timed)

    def _footer_keys(self) -> list[keymap.Key]:
        over = self._sight is not None and self._sight.over
        return keymap.offered(self.keys_in_force(), in_past=self._in_past, over=over)

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

    def _move_time(self, command: Callable[[Player], None]) -> None:
        self.notices.clear()
        self._ask(command)

    def _ask_player(self, command: Callable[[Player], None]) -> None:
        self._ask(command)

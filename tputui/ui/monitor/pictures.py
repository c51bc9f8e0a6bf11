"""The pictures of examples and predictions, over the monitor: of the newest epoch that has some or of an earlier one,
live or replayed.

The files are read and decoded in a thread, once for each version of a file. They are polled, because the files of a run
on another host may arrive after the journal that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.screen import Screen

from tputui.state.chart_data import Mark
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.events import PictureKept
from tputui.ui.base import keymap, status_text
from tputui.ui.base.reader_thread import Frame
from tputui.ui.help import HelpScreen
from tputui.ui.render.image_grid import (
    Drawer,
    DrawsPictures,
    Example,
    ImageFiles,
    ImageGrid,
    Pixels,
    Tile,
    coloured,
    grey,
    scaled,
)
from tputui.ui.render.lines import Line, Span, clean, crop, paragraph, wrap
from tputui.ui.terminal.picture_output import PictureOutput, picture_output_of
from tputui.ui.terminal.themes import draws_characters
from tputui.ui.widgets.dialogs import Notices
from tputui.ui.widgets.panel import FRAME, Drawing, RunPanel
from tputui.ui.widgets.player_bar import KeyBar, NoticeBar, PlayerBar, PlayerCommand

POLL_S = 2.0
"""Seconds between two polls of the files."""
PICTURES_MAX = 512
"""Maximum number of pictures read: a journal may name any number of them."""
_EPOCHS_FROM = 100
"""Cells of the panel from which its title says of which epochs there are pictures."""
LEGEND_ROWS_MAX = 2
"""Rows of the legend, so that it leaves most of the panel to the pictures."""


class RunMoment(NamedTuple):
    """A frame of the monitor, with what the player bar shows."""

    frame: Frame
    over: bool
    """Whether the run that is followed has ended."""
    marks: Sequence[Mark]
    """The events on the player bar."""


class PicturesScreen(Screen[None]):
    """The pictures of one run. The monitor calls `show` with every frame."""

    BINDINGS = keymap.bindings(keymap.PICTURES)
    CSS_PATH = "../pictures.tcss"

    def __init__(
        self,
        run_dir: Path,
        moment: RunMoment | None,
        ask: Callable[[PlayerCommand], None],
        *,
        replaying: bool,
        timed: bool,
    ) -> None:
        """`ask` runs a command of the player; `timed` is whether there is a player."""
        super().__init__()
        self._files = ImageFiles(run_dir, full=picture_output_of(self.app) is not None)
        self._moment = moment
        self._ask = ask
        self._replaying = replaying
        self._timed = timed
        self._epoch: int | None = None
        """The epoch that the user has chosen; None follows the newest one."""
        self.notices = Notices(self, lambda sentence: self.query_one(NoticeBar).show_notice(sentence))

    def compose(self) -> ComposeResult:
        """Pictures, bars."""
        text_drawer = Drawer(scaled, grey if draws_characters(self.app) else coloured)
        yield GalleryPanel(text_drawer, picture_output_of(self.app), id="gallery")
        if self._timed:
            yield PlayerBar(self._move_time, self._ask, id="player")
        yield KeyBar(self._footer_keys(), id="keys")
        yield NoticeBar()

    def on_mount(self) -> None:
        """Show the first frame, and start polling the files."""
        self.query_one(GalleryPanel).focus()
        if self._moment is not None:
            moment, self._moment = self._moment, None
            self.show(moment)
        self.set_interval(POLL_S, self._poll_files)

    def show(self, moment: RunMoment) -> None:
        """Take a newer frame. The pictures on the screen stay until those of a newer epoch are read."""
        before, self._moment = self._view, moment
        self._show_time(moment)
        snapshot = moment.frame.snapshot
        if self._view is None:
            self.query_one(GalleryPanel).show(GalleryPanel.pick(snapshot))
        elif self._view != before:
            if before is None:
                self.query_one(GalleryPanel).show(GalleryPanel.pick(snapshot))
            self._poll_files()

    def _show_time(self, moment: RunMoment) -> None:
        self.query_one(KeyBar).show(self._footer_keys())
        player = moment.frame.player
        if player is not None and self._timed:
            self.query_one(PlayerBar).show(player, replaying=self._replaying, over=moment.over, marks=moment.marks)

    @property
    def _view(self) -> ev.PicturesKept | None:
        """The pictures of the chosen epoch, as of the newest frame; of the newest epoch if it has none of that one."""
        views = self._views
        chosen = (view for view in views if view.epoch == self._epoch)
        return next(chosen, views[-1] if views else None)

    @property
    def _views(self) -> Sequence[ev.PicturesKept]:
        """The pictures of all epochs that the newest frame names."""
        if self._moment is None:
            return ()
        snapshot = self._moment.frame.snapshot
        return snapshot.picture_history or list(filter(None, [snapshot.pictures]))

    @property
    def _in_past(self) -> bool:
        player = self._moment.frame.player if self._moment is not None else None
        return self._replaying or (player is not None and not player.live)

    def _poll_files(self) -> None:
        if self._view is not None:
            self._read_files(self._view)

    @work(thread=True, group="pictures")
    def _read_files(self, view: ev.PicturesKept) -> None:
        pixels = self._files.read(dict.fromkeys(picture.path for picture in view.pictures[:PICTURES_MAX]))
        self.call_later(self._take_files, view, pixels)

    def _take_files(self, view: ev.PicturesKept, pixels: Mapping[str, Pixels | str]) -> None:
        """Show the pictures, unless a newer frame names others."""
        if self._moment is not None and view == self._view:
            examples = examples_of(view, pixels)
            run, first = self._moment.frame.snapshot.run, self._views[0].epoch
            epochs = (first, self._views[-1].epoch) if len(self._views) > 1 else None
            self.query_one(GalleryPanel).show(GalleryPart(run, view, examples, "", epochs))

    def _move_time(self, command: PlayerCommand) -> None:
        self.notices.clear()
        self._ask(command)

    def keys_in_force(self) -> list[keymap.Key]:
        """The keys that do something now."""
        keys = keymap.in_force(keymap.PICTURES, replaying=self._replaying, timed=self._timed)
        has_epochs = len(self._views) > 1
        return [key for key in keys if has_epochs or not key.action.startswith("epoch(")]

    def _footer_keys(self) -> list[keymap.Key]:
        over = self._moment is not None and self._moment.over
        return keymap.offered(self.keys_in_force(), in_past=self._in_past, over=over)

    def panel_descriptions(self) -> list[tuple[str, str]]:
        """No panels can be selected here."""
        return []

    def on_screen_suspend(self) -> None:
        """Draw the pictures as text below another screen, which may cover parts of them."""
        self.query_one(GalleryPanel).show_full_pictures(False)

    def on_screen_resume(self) -> None:
        """Draw the pictures at full resolution again."""
        self.query_one(GalleryPanel).show_full_pictures(True)

    def action_close(self) -> None:
        """Return to the monitor."""
        self.dismiss(None)

    def action_epoch(self, by: int) -> None:
        """Show the pictures of a neighbouring epoch; behind the newest one, those of each new epoch."""
        views = self._views
        if self._view is None or len(views) < 2:
            self.notices.show("there are pictures of one epoch only" if self._view else "there are no pictures yet")
            return
        at = min(max(views.index(self._view) + by, 0), len(views) - 1)
        self._epoch = views[at].epoch if at < len(views) - 1 else None
        self._poll_files()

    def action_scroll(self, rows: int) -> None:
        """Scroll the pictures."""
        self.query_one(GalleryPanel).scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        """Scroll the pictures by pages."""
        self.query_one(GalleryPanel).page(pages)

    def action_help(self) -> None:
        """Show the keys."""
        self.app.push_screen(HelpScreen(self.keys_in_force()))


class GalleryPart(NamedTuple):
    """The content of the panel."""

    run: str
    view: ev.PicturesKept | None
    examples: tuple[Example, ...]
    why_none: str
    epochs: tuple[int, int] | None = None
    """First and last epoch with pictures, if there are several; 0 for training examples."""


class GalleryPanel(RunPanel[GalleryPart]):
    """Examples as rows of pictures, as many examples beside each other as fit."""

    key = "p"
    name_shown = "pictures"
    what = "training examples with their labels, then predictions of the newest epoch that has some, or of one before"

    def __init__(
        self, text_drawer: DrawsPictures, picture_output: PictureOutput | None = None, *, id: str | None = None
    ) -> None:
        """`picture_output` shows pictures at full resolution, if the terminal can."""
        super().__init__(id=id)
        self._text_drawer = text_drawer
        self._picture_output = picture_output
        self._is_full = picture_output is not None
        self._drawn: tuple[GalleryPart, int, int, Drawing] | None = None
        """The newest drawing, reused while the panel scrolls."""

    def show_full_pictures(self, full: bool) -> None:
        """Draw pictures at full resolution, if the terminal can, or as text."""
        if self._picture_output is not None and full != self._is_full:
            self._is_full = full
            self._drawn = None
            self._picture_output.forget()
            self.redraw()

    @contextmanager
    def as_text_alone(self) -> Iterator[None]:
        """Draw the pictures as text within the block."""
        before = self._is_full
        self.show_full_pictures(False)
        try:
            yield
        finally:
            self.show_full_pictures(before)

    def as_text(self) -> str:
        """The pictures as half blocks."""
        with self.as_text_alone():
            return super().as_text()

    def on_unmount(self) -> None:
        """Free the pictures in the terminal."""
        if self._picture_output is not None:
            self._picture_output.forget()

    @staticmethod
    def pick(snapshot: Snapshot) -> GalleryPart:
        """The reason why no picture is shown, or that the files are being read."""
        why = "reading the pictures ..." if snapshot.pictures is not None else why_none(snapshot)
        return GalleryPart(snapshot.run, None, (), why)

    def draw(self, part: GalleryPart, width: int, height: int) -> Drawing:
        """Rows of examples below the legend."""
        if self._drawn is None or self._drawn[0] is not part or self._drawn[1:3] != (width, height):
            self._drawn = (part, width, height, self._compose_rows(part, width, height))
        return self._drawn[3]

    def _compose_rows(self, part: GalleryPart, width: int, height: int) -> Drawing:
        note = _title(part, width)
        if part.view is None:
            return Drawing(paragraph(part.why_none, width, height), note=note)
        head = _legend(part.view, width, height)
        return Drawing(ImageGrid(part.examples, width, height - len(head), self._drawer()), head=head, note=note)

    def _drawer(self) -> DrawsPictures:
        if self._picture_output is None or not self._is_full:
            return self._text_drawer
        # A new drawing replaces the previous one.
        self._picture_output.forget()
        return self._picture_output


def examples_of(view: ev.PicturesKept, pixels: Mapping[str, Pixels | str]) -> tuple[Example, ...]:
    """The pictures by example, in the order of the journal; `pixels` has the pictures that were read, by path."""
    by_example: dict[str, list[PictureKept]] = {}
    read = [picture for picture in view.pictures if picture.path in pixels]
    for picture in read:
        by_example.setdefault(picture.example, []).append(picture)
    examples = [
        Example(name, tuple(Tile(picture.name, pixels[picture.path]) for picture in pictures))
        for name, pictures in by_example.items()
    ]
    more = len(view.pictures) - len(read)
    return (*examples, *([Example(f"{more:,} more pictures, not read", ())] if more else []))


def why_none(snapshot: Snapshot) -> str:
    """The reason why a run has no pictures, in one sentence."""
    report = snapshot.config.get("report")
    if isinstance(report, Mapping) and report.get("pictures") == 0:
        return "no pictures: `report.pictures` is 0 in the run's configuration"
    validations = sum(1 for epoch in snapshot.epochs if epoch.valid)
    if not validations:
        if snapshot.condition in ENDED:
            return status_text.nothing_yet(snapshot, "pictures")
        return "no pictures yet: no validation has finished"
    finished = "a validation" if validations == 1 else f"{validations} validations"
    doubt = ", unless a warning in the log (7) reports that they could not be written" if snapshot.warnings else ""
    return f"no pictures: this task draws none: {finished} finished without any{doubt}"


def _legend(view: ev.PicturesKept, width: int, height: int) -> tuple[Line, ...]:
    """The meaning of the colours, if the panel is high enough."""
    if not view.legend or height <= 4 * LEGEND_ROWS_MAX:
        return ()
    return tuple([Span(f" {piece}", "label")] for piece in wrap(clean(view.legend), width - 2, LEGEND_ROWS_MAX))


def _when(view: ev.PicturesKept) -> str:
    """The evaluation that drew the pictures; `training examples` if none did."""
    return f"epoch {view.epoch} \u00b7 step {view.step:,}" if view.epoch else "training examples"


def _title(part: GalleryPart, width: int) -> str:
    """Run, epoch and step; a long run name is cut."""
    at = _when(part.view) if part.view is not None else ""
    if part.epochs is not None and width >= _EPOCHS_FROM:
        at += f" \u00b7 n N: epochs {part.epochs[0] or 'start'} to {part.epochs[1]}"
    room = width + FRAME - len(f"\u256d\u2500 {GalleryPanel.key} {GalleryPanel.name_shown} ") - 5
    name = crop(clean(part.run), room - len(at) - 3)
    return " \u00b7 ".join(text for text in (name, at) if text)

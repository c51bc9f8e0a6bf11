"""Predictions as pictures: for each example a row of them, as many examples beside each other as fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tputui.state.snapshot import ENDED, PicturesView, Snapshot
from tputui.telemetry.events import PictureKept
from tputui.ui.base import status_text
from tputui.ui.render.image_grid import Drawer, Example, ImageGrid, Pixels, Tile
from tputui.ui.render.lines import Line, Span, clean, crop, paragraph, wrap
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

LEGEND_ROWS_MAX = 2
"""The pictures are worth more than what is said of them."""


class GalleryPart(NamedTuple):
    """What the panel shows."""

    run: str
    view: PicturesView | None
    examples: tuple[Example, ...]
    why_none: str


class GalleryPanel(Panel[GalleryPart]):
    """The pictures of the newest epoch that has some."""

    key = "p"
    name_shown = "pictures"
    what = "training examples with their labels, then predictions of the newest epoch that has some"

    def __init__(self, drawer: Drawer, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawer = drawer
        self._drawn: tuple[GalleryPart, int, int, Drawing] | None = None
        """Scrolling draws the same again and again."""

    @staticmethod
    def pick(snapshot: Snapshot) -> GalleryPart:
        """What a snapshot alone tells: that there is no picture, and why; or that none is read yet."""
        why = "reading the pictures ..." if snapshot.pictures is not None else why_none(snapshot)
        return GalleryPart(snapshot.run, None, (), why)

    def draw(self, part: GalleryPart, width: int, height: int) -> Drawing:
        """Rows of examples."""
        if self._drawn is None or self._drawn[0] is not part or self._drawn[1:3] != (width, height):
            self._drawn = (part, width, height, self._put_together(part, width, height))
        return self._drawn[3]

    def _put_together(self, part: GalleryPart, width: int, height: int) -> Drawing:
        note = _title(part, width)
        if part.view is None:
            return Drawing(paragraph(part.why_none, width, height), note=note)
        head = _legend(part.view, width, height)
        return Drawing(ImageGrid(part.examples, width, height - len(head), self._drawer), head=head, note=note)


def examples_of(view: PicturesView, shown: Mapping[str, Pixels | str]) -> tuple[Example, ...]:
    """The pictures by example, in the order in which they were told; `shown` has by its path each that was read."""
    found: dict[str, list[PictureKept]] = {}
    read = [picture for picture in view.pictures if picture.path in shown]
    for picture in read:
        found.setdefault(picture.example, []).append(picture)
    examples = [
        Example(name, tuple(Tile(picture.name, shown[picture.path]) for picture in pictures))
        for name, pictures in found.items()
    ]
    more = len(view.pictures) - len(read)
    return (*examples, *([Example(f"{more:,} pictures more than are read", ())] if more else []))


def why_none(snapshot: Snapshot) -> str:
    """Why a run has no pictures, in one sentence."""
    report = snapshot.config.get("report")
    if isinstance(report, Mapping) and report.get("pictures") == 0:
        return "no pictures: `report.pictures` is 0 in the run's configuration"
    validations = sum(1 for epoch in snapshot.epochs if epoch.valid)
    if not validations:
        if snapshot.condition in ENDED:
            return status_text.nothing_yet(snapshot, "pictures")
        return "no pictures yet: no validation has ended yet"
    ended = "a validation" if validations == 1 else f"{validations} validations"
    doubt = ", unless a warning in the log (7) says that they could not be kept" if snapshot.warnings else ""
    return f"no pictures: this task draws none: {ended} ended without any{doubt}"


def _legend(view: PicturesView, width: int, height: int) -> tuple[Line, ...]:
    """What the colours mean, where that leaves the pictures most of the room."""
    if not view.legend or height <= 4 * LEGEND_ROWS_MAX:
        return ()
    return tuple([Span(f" {piece}", "label")] for piece in wrap(clean(view.legend), width - 2)[:LEGEND_ROWS_MAX])


def _when(view: PicturesView) -> str:
    """Of which evaluation the pictures are, or that they are of training examples."""
    return f"epoch {view.epoch} \u00b7 step {view.step:,}" if view.epoch else "training examples"


def _title(part: GalleryPart, width: int) -> str:
    """Run, epoch, step, cut in the run's name."""
    at = _when(part.view) if part.view is not None else ""
    room = width + FRAME - len(f"\u256d\u2500 {GalleryPanel.key} {GalleryPanel.name_shown} ") - 5
    name = crop(clean(part.run), room - len(at) - 3)
    return " \u00b7 ".join(text for text in (name, at) if text)

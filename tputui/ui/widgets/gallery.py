"""Predictions as pictures: for each example a row of them, as many examples beside each other as fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tputui.model.snapshot import ENDED, PicturesView, Snapshot
from tputui.telemetry.events import PictureKept
from tputui.ui import words
from tputui.ui.halfblocks import Pixels, coloured, fitted, grey
from tputui.ui.lines import Line, Span, clean, crop, paragraph, width_of, wrap
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

Scaled = Callable[[Pixels, int, int], Pixels]
"""Brings a picture to a width and a height in pixels."""

LEAST_WIDTH = 10
"""Cells that a picture has at least, so that its name can be read."""
TROUBLE_WIDTH = 24
"""Cells for a sentence in a picture's place, where no picture tells how wide one is."""

_GAP = 1
_MARGIN = 3
"""Cells between two examples beside each other."""
_HEADS = 2
"""Lines above a picture: the example, and what of it is shown."""
_SHRUNK = 0.75
"""Pictures give way by no more than this, so that one more example is whole in sight."""


class Tile(NamedTuple):
    """A picture, or why it is not there."""

    name: str
    shown: Pixels | str


class Example(NamedTuple):
    """The pictures of one example."""

    name: str
    tiles: tuple[Tile, ...]


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
    what = "pictures of a few predictions, of the newest epoch that has some"

    def __init__(self, scaled: Scaled, *, without_colour: bool, id: str | None = None) -> None:
        super().__init__(id=id)
        self._scaled = scaled
        self._lines_of = grey if without_colour else coloured
        self._drawn: tuple[GalleryPart, int, int, Drawing] | None = None
        """Scrolling draws the same again and again; the pictures are put together once."""

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
        room = _whole(part.examples, _room(part.examples, width, height), width, height)
        told_in = _told_in(part.examples, room)
        blocks = [self._block(example, room, told_in, width) for example in part.examples]
        return Drawing(_beside(blocks, width), note=note)

    def _block(self, example: Example, room: tuple[int, int], told_in: int, width: int) -> list[Line]:
        """An example: its name, then its pictures with their names above, in as many lines of them as it takes."""
        cells = [self._tile(tile, room, told_in) for tile in example.tiles]
        lines: list[Line] = [[Span(crop(clean(example.name), width - 1), "title")]]
        start, used = 0, 0
        for index, tile in enumerate(cells):
            wide = _width(tile)
            if used and used + _GAP + wide > width - 1:
                lines += _joined(cells[start:index], _GAP)
                start, used = index, 0
            used += wide + (_GAP if used else 0)
        return lines + _joined(cells[start:], _GAP)

    def _tile(self, tile: Tile, room: tuple[int, int], told_in: int) -> list[Line]:
        """A picture below its name, or in `told_in` cells why there is none; all lines of one width."""
        if isinstance(tile.shown, str):
            wide = told_in
            body: list[Line] = [[Span(piece, "warn")] for piece in wrap(f"\u25b2 {clean(tile.shown)}", wide)]
        else:
            size = fitted(tile.shown.width, tile.shown.height, *room)
            wide = max(size[0], LEAST_WIDTH)
            body = self._lines_of(self._scaled(tile.shown, *size))
        head: Line = [Span(crop(clean(tile.name), wide), "label")]
        return [_padded(line, wide) for line in (head, *body)]


def examples_of(view: PicturesView, shown: Mapping[str, Pixels | str]) -> tuple[Example, ...]:
    """The pictures by example, in the order in which they were told; `shown` has each by its path."""
    found: dict[str, list[PictureKept]] = {}
    for picture in view.pictures:
        found.setdefault(picture.example, []).append(picture)
    return tuple(
        Example(name, tuple(Tile(picture.name, shown[picture.path]) for picture in pictures))
        for name, pictures in found.items()
    )


def why_none(snapshot: Snapshot) -> str:
    """Why a run has no pictures, in one sentence."""
    report = snapshot.config.get("report")
    if isinstance(report, Mapping) and report.get("pictures") == 0:
        return "no pictures: `report.pictures` is 0 in the run's configuration"
    validations = sum(1 for epoch in snapshot.epochs if epoch.valid)
    if not validations:
        if snapshot.condition in ENDED:
            return words.nothing_yet(snapshot, "pictures")
        return "no pictures yet: no validation has ended yet"
    ended = "a validation" if validations == 1 else f"{validations} validations"
    doubt = ", unless a warning in the log (7) says that they could not be kept" if snapshot.warnings else ""
    return f"no pictures: this task draws none: {ended} ended without any{doubt}"


def _title(part: GalleryPart, width: int) -> str:
    """Run, epoch, step, cut in the run's name."""
    at = f"epoch {part.view.epoch} \u00b7 step {part.view.step:,}" if part.view is not None else ""
    room = width + FRAME - len(f"\u256d\u2500 {GalleryPanel.key} {GalleryPanel.name_shown} ") - 5
    name = crop(clean(part.run), room - len(at) - 3)
    return " \u00b7 ".join(text for text in (name, at) if text)


def _room(examples: Sequence[Example], width: int, height: int) -> tuple[int, int]:
    """The most pixels that a picture may take: the pictures of an example side by side, and whole in sight."""
    beside = max((len(example.tiles) for example in examples), default=1)
    beside = max(min(beside, (width - 1 + _GAP) // (LEAST_WIDTH + _GAP)), 1)
    wide = (width - 1 - _GAP * (beside - 1)) // beside
    return max(wide, 1), max(2 * (height - _HEADS), 2)


def _whole(examples: Sequence[Example], room: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """The room, a little less where that brings one more row of examples whole into sight."""
    wide, high = _largest(examples, room)
    beside = max((len(example.tiles) for example in examples), default=1)
    in_row = max((width - 1 + _MARGIN) // (beside * (wide + _GAP) - _GAP + _MARGIN), 1)
    rows = min((height + 1) // (high // 2 + _HEADS + 1) + 1, -(-len(examples) // in_row))
    less = 2 * ((height + 1) // max(rows, 1) - 1 - _HEADS)
    return (room[0], less) if _SHRUNK * high <= less < high else room


def _told_in(examples: Sequence[Example], room: tuple[int, int]) -> int:
    """Cells for the sentence in the place of a picture: as wide as the others, so that columns stay aligned."""
    widest, _ = _largest(examples, room)
    return max(widest or min(TROUBLE_WIDTH, room[0]), LEAST_WIDTH)


def _largest(examples: Sequence[Example], room: tuple[int, int]) -> tuple[int, int]:
    """Width and height in pixels that the pictures take in a room; 0 where none can be shown."""
    shown = [tile.shown for example in examples for tile in example.tiles if not isinstance(tile.shown, str)]
    sizes = [fitted(picture.width, picture.height, *room) for picture in shown]
    return max((wide for wide, _ in sizes), default=0), max((high for _, high in sizes), default=0)


def _beside(blocks: Sequence[list[Line]], width: int) -> list[Line]:
    """Blocks from left to right and from the top down, a blank line between rows of them."""
    widest = max((_width(block) for block in blocks), default=1)
    in_row = max((width - 1 + _MARGIN) // (widest + _MARGIN), 1)
    lines: list[Line] = []
    for start in range(0, len(blocks), in_row):
        row = [[_padded(line, widest) for line in block] for block in blocks[start : start + in_row]]
        lines += [*([[]] if lines else []), *([Span(" "), *line] for line in _joined(row, _MARGIN))]
    return lines


def _joined(blocks: Sequence[list[Line]], gap: int) -> list[Line]:
    """Blocks of lines side by side; the lines of each block are of one width."""
    widths = [_width(block) for block in blocks]
    joined: list[Line] = []
    for row in range(max((len(block) for block in blocks), default=0)):
        line: Line = []
        for block, wide in zip(blocks, widths, strict=True):
            line += [*([Span(" " * gap)] if line else []), *(block[row] if row < len(block) else [Span(" " * wide)])]
        joined.append(line)
    return joined


def _width(block: Sequence[Line]) -> int:
    return max((width_of(line) for line in block), default=0)


def _padded(line: Line, width: int) -> Line:
    missing = width - sum(cell_len(span.text) for span in line)
    return [*line, Span(" " * missing)] if missing > 0 else line

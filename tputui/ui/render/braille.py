"""Canvases of braille dots, two columns by four rows in a terminal cell, and their composition into lines.

A column of dots is one integer, a bit for each row from the top, so filling or testing a column is one operation.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import NamedTuple

from tputui.ui.render.lines import Line, Span, Tone, in_band, on_ground_of

DOTS_X = 2
"""Dot columns in a cell."""
DOTS_Y = 4
"""Dot rows in a cell."""
BLANK = 0x2800
"""The empty braille character; the dots of a cell are added to it."""

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of the dot at [column][row] within a cell, as Unicode numbers them."""

_ROWS = tuple(left | right for left, right in zip(*_BITS, strict=True))
"""Bits of each dot row, left and right."""

_GLYPHS = " " + "".join(chr(BLANK + bits) for bits in range(1, 256))
"""Characters by the bits of a cell; a space if empty, since some fonts draw the empty braille character as rings."""

_CELLS = tuple(
    tuple(sum(bit for row, bit in enumerate(bits) if nibble >> row & 1) for nibble in range(16)) for bits in _BITS
)
"""Bits of a cell by the four dots of its left and of its right column."""


def glyph(bits: int) -> str:
    """The character of a cell."""
    return _GLYPHS[bits]


def text_of(cells: bytes | bytearray) -> str:
    """The characters of a row of cells."""
    return codecs.charmap_decode(bytes(cells), "strict", _GLYPHS)[0]


def _before(rows: Sequence[int], bits: int) -> int:
    """The dots of the rows before the first row with a dot."""
    covered = 0
    for row in rows:
        if bits & row:
            return covered
        covered |= row
    return covered


ABOVE = tuple(_before(_ROWS, bits) for bits in range(256))
"""By the bits of a cell: the dots above its highest set dot."""
BELOW = tuple(_before(_ROWS[::-1], bits) for bits in range(256))
"""By the bits of a cell: the dots below its lowest set dot."""


class Canvas:
    """`width` by `height` cells of dots; dot (0, 0) is at the top left. Dots outside are ignored."""

    def __init__(self, width: int, height: int) -> None:
        self.width = max(width, 0)
        self.height = max(height, 0)
        self.dots_x = self.width * DOTS_X
        self.dots_y = self.height * DOTS_Y
        self._columns = [0] * self.dots_x
        self._inside = (1 << self.dots_y) - 1

    def set(self, x: int, y: int) -> None:
        """Set a dot."""
        if 0 <= x < self.dots_x and 0 <= y < self.dots_y:
            self._columns[x] |= 1 << y

    def column(self, x: int, y0: int, y1: int) -> None:
        """Set the dots of column `x` from `y0` to `y1`, both included, in either order."""
        if not 0 <= x < self.dots_x:
            return
        if y0 > y1:
            y0, y1 = y1, y0
        if y1 >= 0:
            self._columns[x] |= ((2 << y1) - (1 << max(y0, 0))) & self._inside

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """Set the dots of a straight line without gaps."""
        if x0 > x1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        if x0 == x1:
            self.column(x0, y0, y1)
            return
        slope = (y1 - y0) / (x1 - x0)
        previous = y0
        for x in range(x0, x1 + 1):
            y = round(y0 + slope * (x - x0))
            towards = previous + (1 if y > previous else -1)
            self.column(x, y, y if abs(y - previous) <= 1 else towards)
            previous = y

    def has(self, x: int, y: int) -> bool:
        """Whether a dot is set."""
        return 0 <= x < self.dots_x and 0 <= y < self.dots_y and bool(self._columns[x] >> y & 1)

    def cell(self, column: int, row: int) -> int:
        """The dots of a cell as bits; 0 is empty."""
        left, right = self._columns[column * 2 : column * 2 + 2]
        shift = row * DOTS_Y
        return _CELLS[0][left >> shift & 15] | _CELLS[1][right >> shift & 15]

    def cells(self) -> list[bytearray]:
        """All cells as bits, one bytearray per row, top first."""
        rows = [bytearray(self.width) for _ in range(self.height)]
        for x, dots in enumerate(self._columns):
            if dots:
                _scatter(rows, dots, x // DOTS_X, _CELLS[x % DOTS_X])
        return rows

    def rows(self) -> list[str]:
        """The canvas as text, one string per row, top first."""
        return [text_of(row) for row in self.cells()]


def _scatter(rows: list[bytearray], dots: int, cell: int, bits: Sequence[int]) -> None:
    """Write the dots of a column into the cells of its rows, from the first row with a dot."""
    row = ((dots & -dots).bit_length() - 1) // DOTS_Y
    dots >>= row * DOTS_Y
    while dots:
        rows[row][cell] |= bits[dots & 15]
        dots >>= DOTS_Y
        row += 1


GUIDE = "\u250a"
"""Drawn in the empty cells of a guide."""

_RUN = re.compile(rb"(.)\1*", re.DOTALL)


class DotLayer(NamedTuple):
    """A canvas and its tone."""

    canvas: Canvas
    tone: Tone


def compose(
    layers: Sequence[DotLayer], *, band: DotLayer | None = None, guide: int | None = None, painted: bool = False
) -> list[Line]:
    """The layers, lowest first, over the band, as lines; `guide` is a cell column drawn where it is empty.

    The band is drawn as dots, or `painted` as a background.
    """
    if band is not None and painted:
        return _over_background(layers, band.canvas, guide)
    tones: list[Tone] = ["plain"]
    rows, owners = _blank(band, layers)
    if band is not None:
        tones.append(band.tone)
        for row, cells in enumerate(band.canvas.cells()):
            rows[row][:] = cells
            owners[row][:] = bytes(map(bool, cells))
    under = [bytes(row) for row in rows]
    for layer in layers:
        tones.append(layer.tone)
        _stack(layer.canvas, rows, owners, under, len(tones) - 1)
    return [_line(cells, owner, tones, guide) for cells, owner in zip(rows, owners, strict=True)]


def _blank(band: DotLayer | None, layers: Sequence[DotLayer]) -> tuple[list[bytearray], list[bytearray]]:
    canvas = band.canvas if band is not None else layers[0].canvas
    return tuple([bytearray(canvas.width) for _ in range(canvas.height)] for _ in range(2))  # type: ignore[return-value]


def _stack(canvas: Canvas, rows: list[bytearray], owners: list[bytearray], under: Sequence[bytes], owner: int) -> None:
    """Draw a canvas over the rows."""
    last = len(rows) - 1
    for row, cells in enumerate(canvas.cells()):
        if not any(cells):
            continue
        its_rows, its_owners = rows[row], owners[row]
        for column, bits in enumerate(cells):
            if not bits:
                continue
            behind = under[row][column]
            if behind and row and under[row - 1][column]:
                behind &= ~ABOVE[bits]
            if behind and row < last and under[row + 1][column]:
                behind &= ~BELOW[bits]
            its_rows[column] = bits | behind
            its_owners[column] = owner


def _line(cells: bytearray, owner: bytearray, tones: Sequence[Tone], guide: int | None) -> Line:
    """A row of cells; adjacent cells of one tone share a span."""
    text = text_of(cells)
    if guide is not None and 0 <= guide < len(cells) and not cells[guide]:
        owner[guide], tones = len(tones), [*tones, "label"]
        text = f"{text[:guide]}{GUIDE}{text[guide + 1 :]}"
    runs = [run.span() for run in _RUN.finditer(owner)]
    return [Span(text[start:end], tones[owner[start]]) for start, end in runs]


_UPPER_DOTS = 0x01 | 0x02 | 0x08 | 0x10
_NOTHING, _UPPER, _LOWER, _FULL = range(4)
"""The halves of a cell that a band covers."""
_COVERED = bytes(
    (_UPPER if (bits & _UPPER_DOTS).bit_count() >= 2 else 0) | (_LOWER if (bits & ~_UPPER_DOTS).bit_count() >= 2 else 0)
    for bits in range(256)
)
"""By the bits of a cell: the halves of which a band covers at least half."""
_MOSTLY = bytes(bits.bit_count() >= 6 for bits in range(256))
"""By the bits of a cell: whether a band covers most of it."""
_HALVES = (" ", "\u2580", "\u2584", " ")
_EDGE_TONES: tuple[Tone, ...] = ("plain", "band_edge", "band_edge", "in_band")


def _over_background(layers: Sequence[DotLayer], band: Canvas, guide: int | None) -> list[Line]:
    """The layers over a band that is painted as a background, its edge in half cells."""
    dots = band.cells()
    rows = [bytearray(band.width) for _ in dots]
    owners = [row.translate(_COVERED) for row in dots]
    around: list[bytes | bytearray] = [bytes(band.width), *dots, bytes(band.width)]
    # Two owners per layer: outside of the band, and in it.
    tones = [*_EDGE_TONES, *(tone for layer in layers for tone in (layer.tone, in_band(layer.tone)))]
    for number, layer in enumerate(layers):
        outside = len(_EDGE_TONES) + 2 * number
        for row, cells in enumerate(layer.canvas.cells()):
            if any(cells):
                _draw_over(cells, rows[row], owners[row], around[row : row + 3], outside)
    return [_painted_line(cells, owner, tones, guide) for cells, owner in zip(rows, owners, strict=True)]


def _draw_over(
    cells: bytearray, row: bytearray, owners: bytearray, band: Sequence[bytes | bytearray], owner: int
) -> None:
    """Draw a row of cells; `band` are the dots of the band in the row above, in this one and in the one below.

    A cell gets the background if the band covers most of it, or if its edge is in the cell and the next cell is
    covered. Otherwise a band thinner than a cell would look as thick as one.
    """
    above, here, below = band
    for column, bits in enumerate(cells):
        if not bits:
            continue
        dots = here[column]
        half = _COVERED[dots]
        is_in_band = (
            _MOSTLY[dots] or (half == _UPPER and _MOSTLY[above[column]]) or (half == _LOWER and _MOSTLY[below[column]])
        )
        row[column] = bits
        owners[column] = owner + 1 if is_in_band else owner


def _painted_line(cells: bytearray, owner: bytearray, tones: Sequence[Tone], guide: int | None) -> Line:
    """A row of cells; adjacent cells of one tone share a span."""
    line: Line = []
    for run in _RUN.finditer(owner):
        start, end = run.span()
        of = owner[start]
        text = text_of(cells[start:end]) if of > _FULL else _HALVES[of] * (end - start)
        if guide is not None and start <= guide < end and of in (_NOTHING, _FULL):
            tone = tones[of]
            pieces = (text[: guide - start], GUIDE, text[guide - start + 1 :])
            tones_of_pieces = (tone, on_ground_of(tone, "label"), tone)
            line += [Span(piece, its) for piece, its in zip(pieces, tones_of_pieces, strict=True) if piece]
        else:
            line.append(Span(text, tones[of]))
    return line

"""Canvases of braille dots, two columns by four rows in a terminal cell, and their composition into lines.

A column of dots is one integer, a bit for each row from the top, so filling or testing a column is one operation.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import NamedTuple

from tputui.ui.render.lines import Line, Span, Tone

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
    found = 0
    for row in rows:
        if bits & row:
            return found
        found |= row
    return found


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
        found = [bytearray(self.width) for _ in range(self.height)]
        for x, dots in enumerate(self._columns):
            if dots:
                _scatter(found, dots, x // DOTS_X, _CELLS[x % DOTS_X])
        return found

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


class Layer(NamedTuple):
    """A canvas and its tone."""

    canvas: Canvas
    tone: Tone


def compose(layers: Sequence[Layer], *, band: Layer | None = None, guide: int | None = None) -> list[Line]:
    """The layers, lowest first, over the band, as lines; `guide` is a cell column drawn where it is empty."""
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


def _blank(band: Layer | None, layers: Sequence[Layer]) -> tuple[list[bytearray], list[bytearray]]:
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

"""A canvas of braille dots: two columns by four rows of dots in every terminal cell.

Dots are kept as one integer a dot row of bits a cell, so that filling a column costs a few operations. Pure; knows
nothing of series, axes or colours.
"""

from __future__ import annotations

DOTS_X = 2
"""Dot columns in a cell."""
DOTS_Y = 4
"""Dot rows in a cell."""
BLANK = 0x2800
"""The empty braille character; the dots of a cell are added to it."""

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of the dot at [column][row] within a cell, as Unicode numbers them."""

_ROWS = tuple(left | right for left, right in zip(*_BITS, strict=True))
"""Both bits of each dot row."""


def glyph(bits: int) -> str:
    """The character of a cell; a space where there is no dot, since some fonts draw the empty one as eight rings."""
    return chr(BLANK + bits) if bits else " "


def above(bits: int) -> int:
    """The dots of a cell above its highest set dot."""
    found = 0
    for row in _ROWS:
        if bits & row:
            return found
        found |= row
    return found


def below(bits: int) -> int:
    """The dots of a cell below its lowest set dot."""
    found = 0
    for row in reversed(_ROWS):
        if bits & row:
            return found
        found |= row
    return found


class Canvas:
    """`width` by `height` cells of dots; dot (0, 0) is at the top left. Dots outside are ignored."""

    def __init__(self, width: int, height: int) -> None:
        self.width = max(width, 0)
        self.height = max(height, 0)
        self.dots_x = self.width * DOTS_X
        self.dots_y = self.height * DOTS_Y
        self._cells = [bytearray(self.width) for _ in range(self.height)]

    def set(self, x: int, y: int) -> None:
        """Sets a dot."""
        if 0 <= x < self.dots_x and 0 <= y < self.dots_y:
            self._cells[y // DOTS_Y][x // DOTS_X] |= _BITS[x % DOTS_X][y % DOTS_Y]

    def column(self, x: int, y0: int, y1: int) -> None:
        """Sets the dots of column `x` from `y0` to `y1`, both included, in either order."""
        if not 0 <= x < self.dots_x:
            return
        top, bottom = max(min(y0, y1), 0), min(max(y0, y1), self.dots_y - 1)
        bits, cell = _BITS[x % DOTS_X], x // DOTS_X
        for y in range(top, bottom + 1):
            self._cells[y // DOTS_Y][cell] |= bits[y % DOTS_Y]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """Sets the dots of a straight line that leaves no gap."""
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
        if not (0 <= x < self.dots_x and 0 <= y < self.dots_y):
            return False
        return bool(self._cells[y // DOTS_Y][x // DOTS_X] & _BITS[x % DOTS_X][y % DOTS_Y])

    def cell(self, column: int, row: int) -> int:
        """The dots of a cell as bits; 0 is empty."""
        return self._cells[row][column]

    def rows(self) -> list[str]:
        """The canvas as text, a string a row, top first."""
        return ["".join(map(glyph, row)) for row in self._cells]

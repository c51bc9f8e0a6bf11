"""Shows pictures at full resolution in the terminal that the application writes to.

Textual composes cells of text only. A row of a picture is therefore drawn as a run of one private character, and every
run is replaced by the sequence of that row where text leaves for the terminal. Scrolling, resizing and clipping are
those of text. A run of another length than the row, which something else covers in part, becomes spaces.
"""

from __future__ import annotations

import fcntl
import re
import struct
import termios
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

from tputui.ui.render import picture_codes as codes
from tputui.ui.render.image_grid import Pixels, coloured, scaled
from tputui.ui.render.lines import Line, Span
from tputui.ui.render.picture_codes import CellSize, Paletted
from tputui.ui.terminal.picture_protocol import PictureProtocol, Pictures, terminal_fd

USUAL_CELL = CellSize(10, 20)
"""The size of a cell if the terminal does not report it: that of the VT340, whose sixels others follow."""
CELL_PX_MAX = 64
"""Cells are not larger than this; a terminal may report anything."""
CELL_SENT_PX = 16
"""A cell has at most this width in a picture: more is not visible, and takes long to encode."""
CACHED_BYTES_MAX = 32 << 20
"""Encoded rows that are stored, to be written again when they are scrolled into view."""
TERMINAL_BYTES_MAX = 128 << 20
"""Decoded pictures that the terminal stores for us; the oldest are freed."""

_FIRST = 0xF0000
_RUNS = re.compile("([\U000f0000-\U000ffffd])\\1*")
_NUMBERS = 0xFFFE
"""Private characters of that plane."""


class _Picture(NamedTuple):
    """A picture on the screen."""

    number: int
    pixels: Pixels
    columns: int
    half_rows: int
    cell: CellSize
    """The size of a cell in pixels of the picture."""
    zoom: int
    """Width and height of a pixel of the picture in pixels of the terminal."""

    @property
    def rows(self) -> int:
        return (self.half_rows + 1) // 2

    def enlarged(self) -> Pixels:
        """The picture in pixels of the terminal, or in larger ones."""
        return scaled(self.pixels, self.columns * self.cell.width, self.half_rows * self.cell.height // 2)


class PictureOutput:
    """The pictures that a terminal shows. It draws pictures as lines, and translates what is written."""

    def __init__(
        self, protocol: PictureProtocol, *, in_tmux: bool = False, cell_size: Callable[[], CellSize | None]
    ) -> None:
        """`cell_size` is called for every drawing: fonts can be resized."""
        self.protocol = protocol
        self._in_tmux = in_tmux
        self._cell_size = cell_size
        self._rows: dict[str, tuple[_Picture, int]] = {}
        """Pictures, and their rows of cells, counted from 0, by the character that stands for both."""
        self._next_row = 0
        self._next_number = 1
        self._stored: OrderedDict[int, int] = OrderedDict()
        """Bytes of the pictures that the terminal stores, by number."""
        self._to_free: list[int] = []
        self._encoded: OrderedDict[str, str] = OrderedDict()
        self._encoded_bytes = 0
        self._palettes: OrderedDict[int, Paletted] = OrderedDict()
        """The newest pictures in few colours, by number."""
        self._enlarged: OrderedDict[int, Pixels] = OrderedDict()
        """The newest pictures in pixels of the terminal, by number."""

    def draw(self, pixels: Pixels, width: int, height: int) -> list[Line]:
        """The lines of a picture `width` cells wide and `height` half cells high."""
        zoom, cell = self._resolution()
        picture = _Picture(self._next_number, pixels, width, height, cell, zoom)
        if width > codes.KITTY_CELLS_MAX or picture.rows > codes.KITTY_CELLS_MAX:
            return coloured(scaled(pixels, width, height))
        # 24 bits, because the number is a colour; 0 is no number.
        self._next_number = self._next_number % 0xFFFFFF + 1
        return [[Span(self._character(picture, row) * width)] for row in range(picture.rows)]

    def forget(self) -> None:
        """No picture drawn so far is shown any more; the terminal frees them with the next output."""
        self._rows.clear()
        self._to_free += self._stored
        self._stored.clear()
        self._encoded.clear()
        self._encoded_bytes = 0
        self._palettes.clear()
        self._enlarged.clear()

    def cleanup(self) -> str:
        """Free every picture now, on leaving the terminal. Pictures that are drawn again are sent again."""
        self._to_free += self._stored
        self._stored.clear()
        return self._freed()

    def apply(self, data: str) -> str:
        """The text with pictures in place of their characters."""
        if self._rows and not data.isascii():
            data = _RUNS.sub(self._row_code, data)
        return data + self._freed() if self._to_free else data

    def _resolution(self) -> tuple[int, CellSize]:
        """The zoom and the size of a cell in pixels of a picture, so that a screen full of pictures is encoded soon."""
        cell = self._cell_size() or USUAL_CELL
        if self.protocol != "sixel":
            # These terminals scale pictures to their cells.
            return 1, cell if cell.width <= CELL_SENT_PX else CellSize(
                CELL_SENT_PX, CELL_SENT_PX * cell.height // cell.width
            )
        zoom = next((zoom for zoom in (3, 2) if not (cell.width % zoom or cell.height % zoom)), 1)
        zoom = zoom if cell.width // zoom >= CELL_SENT_PX // 2 else 1
        return zoom, CellSize(cell.width // zoom, cell.height // zoom)

    def _character(self, picture: _Picture, row: int) -> str:
        character = chr(_FIRST + self._next_row)
        self._next_row = (self._next_row + 1) % _NUMBERS
        self._rows[character] = (picture, row)
        return character

    def _row_code(self, match: re.Match[str]) -> str:
        if match.group(1) not in self._rows:
            return match.group()
        picture, row = self._rows[match.group(1)]
        columns = len(match.group())
        if columns != picture.columns:
            return " " * columns
        if self.protocol == "kitty":
            return self._stored_in_terminal(picture) + codes.kitty_row(picture.number, row, columns)
        code = self._encoded_row(match.group(1), picture, row)
        # tmux reads sixels by itself, and places them.
        return codes.over_spaces(self._passed(code) if self.protocol == "iterm" else code, columns)

    def _stored_in_terminal(self, picture: _Picture) -> str:
        """The sequences that send the picture to the terminal, unless it has it."""
        if picture.number in self._stored:
            return ""
        pixels = picture.enlarged()
        png = codes.png_of(pixels, picture.rows * picture.cell.height)
        self._stored[picture.number] = 4 * pixels.width * picture.rows * picture.cell.height
        while len(self._stored) > 1 and sum(self._stored.values()) > TERMINAL_BYTES_MAX:
            self._to_free.append(self._stored.popitem(last=False)[0])
        return "".join(map(self._passed, codes.kitty_image(picture.number, png, picture.columns, picture.rows)))

    def _freed(self) -> str:
        numbers, self._to_free = self._to_free, []
        return "".join(self._passed(codes.kitty_delete(number)) for number in numbers)

    def _passed(self, code: str) -> str:
        return codes.tmux_passthrough(code) if self._in_tmux else code

    def _encoded_row(self, character: str, picture: _Picture, row: int) -> str:
        if character in self._encoded:
            self._encoded.move_to_end(character)
            return self._encoded[character]
        code = self._sixel_row(picture, row) if self.protocol == "sixel" else self._iterm_row(picture, row)
        self._encoded[character] = code
        self._encoded_bytes += len(code)
        while self._encoded_bytes > CACHED_BYTES_MAX and len(self._encoded) > 1:
            self._encoded_bytes -= len(self._encoded.popitem(last=False)[1])
        return code

    def _sixel_row(self, picture: _Picture, row: int) -> str:
        palette = self._palettes.get(picture.number)
        if palette is None:
            palette = self._palettes[picture.number] = codes.paletted(picture.enlarged())
            while len(self._palettes) > _PALETTES_MAX:
                self._palettes.popitem(last=False)
        return codes.sixel(palette, row * picture.cell.height, picture.cell.height, picture.zoom)

    def _iterm_row(self, picture: _Picture, row: int) -> str:
        cell = picture.cell
        whole = self._enlarged.get(picture.number)
        if whole is None:
            whole = self._enlarged[picture.number] = picture.enlarged()
            while len(self._enlarged) > _ENLARGED_MAX:
                self._enlarged.popitem(last=False)
        size = 3 * whole.width * cell.height
        rgb = whole.rgb[row * size : (row + 1) * size]
        part = Pixels(whole.width, len(rgb) // (3 * whole.width), rgb)
        return codes.iterm_image(codes.png_of(part, cell.height), picture.columns)


_PALETTES_MAX = 64
"""Pictures in few colours that are stored; more are rarely on a screen."""
_ENLARGED_MAX = 16
"""Enlarged pictures that are stored; more are rarely side by side."""


@runtime_checkable
class DrawsFullPictures(Protocol):
    """A widget with pictures at full resolution."""

    def as_text_alone(self) -> AbstractContextManager[None]:
        """Draws the pictures as text within the block."""
        ...


@runtime_checkable
class HasPictureOutput(Protocol):
    """An application whose terminal may show pictures at full resolution."""

    @property
    def picture_output(self) -> PictureOutput | None: ...


def picture_output_of(app: object) -> PictureOutput | None:
    """The pictures at full resolution of the application; None if its terminal shows none."""
    return app.picture_output if isinstance(app, HasPictureOutput) else None


def output_of(pictures: Pictures) -> PictureOutput | None:
    """The output for a terminal; None if pictures are drawn as text."""
    fd = terminal_fd()
    if pictures.protocol == "blocks" or fd is None:
        return None
    return PictureOutput(pictures.protocol, in_tmux=pictures.in_tmux, cell_size=lambda: cell_size_of(fd))


def cell_size_of(fd: int) -> CellSize | None:
    """The size of a cell as the terminal driver reports it; None if it does not."""
    try:
        rows, columns, width, height = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return None
    if not rows or not columns or width < columns or height < rows:
        return None
    return CellSize(min(width // columns, CELL_PX_MAX), min(height // rows, CELL_PX_MAX))

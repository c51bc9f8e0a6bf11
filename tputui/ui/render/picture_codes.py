"""Escape sequences that show pictures at full resolution: kitty graphics, iTerm2 inline images and sixel.

Pure functions from pixels to text. A picture is written row by row of cells, so that text that is redrawn over some of
its rows, as when a panel scrolls, never leaves parts of it behind.
"""

from __future__ import annotations

import base64
import io
import re
from typing import NamedTuple

from tputui.ui.render.image_grid import Pixels

KITTY_CHUNK = 4096
"""Maximum size of a piece of a kitty payload, by its protocol."""
SIXEL_COLOURS = 256
"""Registers that terminals with sixel have."""

_PLACEHOLDER = "\U0010eeee"
_RANGES = (
    "305 30d-30e 310 312 33d-33f 346 34a-34c 350-352 357 35b 363-36f 483-487 592-595 597-599 59c-5a1 5a8-5a9 5ab-5ac "
    "5af 5c4 610-617 657-65b 65d-65e 6d6-6dc 6df-6e2 6e4 6e7-6e8 6eb-6ec 730 732-733 735-736 73a 73d 73f-741 743 745 "
    "747 749-74a 7eb-7f1 7f3 816-819 81b-823 825-827 829-82d 951 953-954 f82-f83 f86-f87 135d-135f 17dd 193a 1a17 "
    "1a75-1a7c 1b6b 1b6d-1b73 1cd0-1cd2 1cda-1cdb 1ce0 1dc0-1dc1 1dc3-1dc9 1dcb-1dcc 1dd1-1de6 1dfe 20d0-20d1 "
    "20d4-20d7 20db-20dc 20e1 20e7 20e9 20f0 2cef-2cf1 2de0-2dff a66f a67c-a67d a6f0-a6f1 a8e0-a8f1 aab0 aab2-aab3 "
    "aab7-aab8 aabe-aabf aac1 fe20-fe26 10a0f 10a38 1d185-1d189 1d1aa-1d1ad 1d242-1d244"
)
"""The combining characters by which the kitty protocol numbers rows and columns of a picture."""


class CellSize(NamedTuple):
    """The size of a cell of the terminal in pixels."""

    width: int
    height: int


def _numbering() -> str:
    bounds = [part.partition("-") for part in _RANGES.split()]
    return "".join(chr(code) for first, _, last in bounds for code in range(int(first, 16), int(last or first, 16) + 1))


_NUMBERS = _numbering()
KITTY_CELLS_MAX = len(_NUMBERS)
"""Maximum number of rows, and of columns, of a picture."""


def png_of(pixels: Pixels, height: int) -> bytes:
    """The picture as a PNG file, with transparent rows below it up to `height`."""
    from PIL import Image

    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb)
    if height > pixels.height:
        padded = Image.new("RGBA", (pixels.width, height), (0, 0, 0, 0))
        padded.paste(image, (0, 0))
        image = padded
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def kitty_image(number: int, png: bytes, columns: int, rows: int) -> list[str]:
    """Sequences that store a picture in the terminal, to be shown in the placeholders of `kitty_row`."""
    payload = base64.standard_b64encode(png).decode()
    pieces = [payload[start : start + KITTY_CHUNK] for start in range(0, len(payload), KITTY_CHUNK)]
    head = f"a=T,U=1,i={number},c={columns},r={rows},f=100,t=d,q=2,"
    return [
        f"\x1b_G{head if not index else 'q=2,'}m={int(index < len(pieces) - 1)};{piece}\x1b\\"
        for index, piece in enumerate(pieces)
    ]


def kitty_row(number: int, row: int, columns: int) -> str:
    """The placeholders of a row of a picture. The number of the picture is the colour of their text."""
    cells = "".join(f"{_PLACEHOLDER}{_NUMBERS[row]}{_NUMBERS[column]}" for column in range(columns))
    colour = f"\x1b[38;2;{number >> 16 & 255};{number >> 8 & 255};{number & 255}m"
    return f"\x1b7{colour}{cells}\x1b8\x1b[{columns}C"


def kitty_delete(number: int) -> str:
    """Frees a picture in the terminal, with everything that shows it."""
    return f"\x1b_Ga=d,d=I,i={number},q=2\x1b\\"


def over_spaces(code: str, columns: int) -> str:
    """Blank cells with a picture over them; the cursor ends behind them, with the style it had."""
    return f"{' ' * columns}\x1b7\x1b[{columns}D{code}\x1b8"


def iterm_image(png: bytes, columns: int) -> str:
    """An inline image of one row of cells."""
    payload = base64.standard_b64encode(png).decode()
    options = f"inline=1;size={len(png)};width={columns};height=1;preserveAspectRatio=0;doNotMoveCursor=1"
    return f"\x1b]1337;File={options}:{payload}\x07"


def tmux_passthrough(code: str) -> str:
    """A sequence that tmux hands to the terminal around it."""
    return "\x1bPtmux;" + code.replace("\x1b", "\x1b\x1b") + "\x1b\\"


class Paletted(NamedTuple):
    """A picture of at most 256 colours."""

    width: int
    height: int
    indexes: bytes
    """One byte per pixel, row by row."""
    palette: bytes
    """Three bytes per colour."""


def paletted(pixels: Pixels) -> Paletted:
    """The picture with its own colours if it has few, else dithered with the ones that suit it best."""
    from PIL import Image

    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb)
    if image.getcolors(SIXEL_COLOURS) is not None:
        reduced = image.quantize(SIXEL_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    else:
        suited = image.quantize(SIXEL_COLOURS, Image.Quantize.FASTOCTREE)
        reduced = image.quantize(palette=suited, dither=Image.Dither.FLOYDSTEINBERG)
    return Paletted(pixels.width, pixels.height, reduced.tobytes(), bytes(reduced.getpalette("RGB") or []))


_RUNS = re.compile(rb"(.)\1{3,}", re.DOTALL)
"""Runs that are shorter as a count."""
_BAND = 6
"""Rows of pixels of a line of sixels."""


def sixel(picture: Paletted, first: int, rows: int, zoom: int = 1) -> str:
    """Some rows of pixels as sixels, each pixel `zoom` (1, 2 or 3) wide and high.

    Pixels of the terminal below them stay as they are.
    """
    rows = min(rows, picture.height - first)
    width = picture.width
    inside = picture.indexes[first * width : (first + rows) * width]
    colours = "".join(f"#{index};2;{_percents(picture.palette, index)}" for index in sorted(set(inside)))
    size = _BAND // zoom * width
    bands = [_sixel_band(inside[start : start + size], width, zoom) for start in range(0, len(inside), size)]
    return f'\x1bP0;1;0q"1;1;{width * zoom};{rows * zoom}{colours}{"-".join(bands)}\x1b\\'


def _percents(palette: bytes, index: int) -> str:
    return ";".join(str(round(value * 100 / 255)) for value in palette[3 * index : 3 * index + 3])


def _sixel_band(band: bytes, width: int, zoom: int) -> str:
    """Up to six rows of pixels. Each colour is one line of characters, whose bits are the pixels of a column."""
    lines: dict[int, bytearray] = {}
    for row in range(len(band) // width):
        bits = (1 << zoom) - 1 << row * zoom
        for column, colour in enumerate(band[row * width : (row + 1) * width]):
            line = lines.get(colour)
            if line is None:
                line = lines[colour] = bytearray(width)
            line[column] |= bits
    return "$".join(f"#{colour}" + _sixels(line, zoom) for colour, line in sorted(lines.items()))


def _sixels(columns: bytearray, zoom: int) -> str:
    widened = bytearray(len(columns) * zoom)
    for offset in range(zoom):
        widened[offset::zoom] = columns
    return _RUNS.sub(_repeated, widened.translate(_SIXELS).rstrip(b"?")).decode()


_SIXELS = bytes(0x3F + min(value, 0x3F) for value in range(256))


def _repeated(run: re.Match[bytes]) -> bytes:
    return b"!%d%s" % (len(run.group()), run.group(1))

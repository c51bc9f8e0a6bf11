"""Pictures as half blocks, and examples with their pictures laid out as lines.

The pictures of an example are side by side; examples fill rows from the top. A row is rendered when one of its lines is
requested, so many examples cost no more than the visible ones.

A path outside the run's directory is refused, a file that is too large is not decoded, and a picture that cannot be
shown is replaced by a reason. Pillow is imported when the first picture is decoded, not before. Must not
touch a screen; everything here may run in a thread.
"""

from __future__ import annotations

import io
import math
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tputui import formatting as fmt
from tputui.remote.link import LinkReader
from tputui.ui.render.lines import RGB, Colours, DrawnLate, Line, Span, cells_of, clean, crop, wrap

if TYPE_CHECKING:
    from PIL.Image import Image

LEAST_WIDTH = 10
"""Minimum width of a picture in cells, so that its name can be read."""
TROUBLE_WIDTH = 24
"""Width in cells of a message in place of a picture, if no picture of the grid can be shown."""

_GAP = 1
_MARGIN = 3
"""Cells between examples side by side."""
_HEADS = 2
"""Lines above a picture: the example, and the name of the picture."""
_GROWN_MAX = 64
"""Examples up to which small pictures are enlarged further, as long as all examples stay visible."""
_SHRUNK = 0.75
"""Pictures shrink at most by this factor to make one more example fully visible."""


_Room = tuple[int, int, int]
"""Maximum width and height of a picture in pixels, and the size to which a small one is enlarged."""


class Tile(NamedTuple):
    """A picture, or the reason why it cannot be shown."""

    name: str
    shown: Pixels | str


class Example(NamedTuple):
    """The pictures of one example."""

    name: str
    tiles: tuple[Tile, ...]


class DrawsPictures(Protocol):
    """Draws pictures as lines."""

    def draw(self, pixels: Pixels, width: int, height: int, /) -> list[Line]:
        """The lines of a picture `width` cells wide and `height` half cells high."""
        ...


class Drawer(NamedTuple):
    """The functions that turn pictures into text."""

    scaled: Callable[[Pixels, int, int], Pixels]
    """Resizes a picture to a width and a height in pixels."""
    lines_of: Callable[[Pixels], list[Line]]
    """The text of a picture; a cell is one pixel wide and two pixels high."""

    def draw(self, pixels: Pixels, width: int, height: int) -> list[Line]:
        """The text of a picture at a size."""
        return self.lines_of(self.scaled(pixels, width, height))


class _TileCell(NamedTuple):
    """The layout of a tile; `high` includes its name."""

    wide: int
    high: int
    tile: Tile
    size: tuple[int, int]


class _Block(NamedTuple):
    """The layout of an example, with its tiles in one or more lines."""

    wide: int
    high: int
    name: str
    lines: list[list[_TileCell]]


class ImageGrid(DrawnLate):
    """The lines of every example."""

    def __init__(self, examples: Sequence[Example], width: int, height: int, drawer: DrawsPictures) -> None:
        """`width` by `height` cells are visible at once."""
        self._drawer = drawer
        sizes = range(ENLARGED_PX + 8, 2 * height, 8) if 0 < len(examples) <= _GROWN_MAX else ()
        layouts = [_bands(examples, width, height, px) for px in (ENLARGED_PX, *sizes)]
        # Of several with equal pictures, the first one.
        self._bands, self._widest = max(
            filter(lambda layout: _num_rows(layout[0]) <= height, layouts), key=_highest, default=layouts[0]
        )
        self._row_index = [
            (band, row) for band, in_band in enumerate(self._bands) for row in range(max(b.high for b in in_band) + 1)
        ][:-1]
        """For each line its band and the line within it; a blank line ends each band but the last."""
        self._drawn: dict[int, list[Line]] = {}

    def __len__(self) -> int:
        return len(self._row_index)

    def line_at(self, row: int) -> Line:
        """A line; its whole band is drawn on first access."""
        band, within = self._row_index[row]
        if band not in self._drawn:
            blocks = [(self._widest, self._block_lines(block)) for block in self._bands[band]]
            self._drawn[band] = [[Span(" "), *line] for line in _joined(blocks, _MARGIN)]
        lines = self._drawn[band]
        return lines[within] if within < len(lines) else []

    def _block_lines(self, block: _Block) -> list[Line]:
        name = crop(block.name, self._widest)
        lines: list[Line] = [[Span(name, "title"), Span(" " * (self._widest - cells_of(name)))]]
        for cells in block.lines:
            used = sum(cell.wide for cell in cells) + _GAP * (len(cells) - 1)
            padding = [Span(" " * (self._widest - used))]
            lines += [
                [*line, *padding] for line in _joined([(cell.wide, self._cell_lines(cell)) for cell in cells], _GAP)
            ]
        return lines

    def _cell_lines(self, cell: _TileCell) -> list[Line]:
        name = crop(clean(cell.tile.name), cell.wide)
        head: Line = [Span(name, "label"), Span(" " * (cell.wide - cells_of(name)))]
        if isinstance(cell.tile.shown, str):
            pieces = _sentence(cell.tile.shown, cell.wide)
            return [head, *([Span(piece, "warn"), Span(" " * (cell.wide - cells_of(piece)))] for piece in pieces)]
        picture = self._drawer.draw(cell.tile.shown, *cell.size)
        padding = [Span(" " * (cell.wide - cell.size[0]))] if cell.wide > cell.size[0] else []
        return [head, *([*line, *padding] for line in picture)]


def _bands(examples: Sequence[Example], width: int, height: int, enlarged_px: int) -> tuple[list[list[_Block]], int]:
    """The examples in rows, and the width of the widest one; small pictures are enlarged to about `enlarged_px`."""
    room = _whole(examples, (*_room(examples, width, height), enlarged_px), width, height)
    message_width = _message_width(examples, room)
    blocks = [_block(example, room, message_width, width) for example in examples]
    widest = max((block.wide for block in blocks), default=1)
    in_row = max((width - 1 + _MARGIN) // (widest + _MARGIN), 1)
    return [blocks[start : start + in_row] for start in range(0, len(blocks), in_row)], widest


def _num_rows(bands: Sequence[Sequence[_Block]]) -> int:
    return sum(max(block.high for block in band) + 1 for band in bands) - 1


def _highest(layout: tuple[list[list[_Block]], int]) -> int:
    return max((block.high for band in layout[0] for block in band), default=0)


def _block(example: Example, room: _Room, message_width: int, width: int) -> _Block:
    lines: list[list[_TileCell]] = [[]]
    used = 0
    for tile in example.tiles:
        cell = _cell(tile, room, message_width)
        if used and used + _GAP + cell.wide > width - 1:
            lines.append([])
            used = 0
        lines[-1].append(cell)
        used += cell.wide + (_GAP if used else 0)
    wide = max(sum(cell.wide for cell in line) + _GAP * max(len(line) - 1, 0) for line in lines)
    high = 1 + sum(max((cell.high for cell in line), default=0) for line in lines)
    name = clean(example.name)
    return _Block(max(wide, min(cells_of(name), width - 1)), high, name, lines)


def _cell(tile: Tile, room: _Room, message_width: int) -> _TileCell:
    if isinstance(tile.shown, str):
        return _TileCell(message_width, 1 + len(_sentence(tile.shown, message_width)), tile, (0, 0))
    size = fitted(tile.shown.width, tile.shown.height, *room)
    return _TileCell(max(size[0], LEAST_WIDTH), 1 + (size[1] + 1) // 2, tile, size)


def _sentence(why: str, width: int) -> list[str]:
    return wrap(f"\u25b2 {clean(why)}", width)


def _room(examples: Sequence[Example], width: int, height: int) -> tuple[int, int]:
    """Maximum size of a picture in pixels, so that the pictures of an example fit side by side."""
    beside = max((len(example.tiles) for example in examples), default=1)
    beside = max(min(beside, (width - 1 + _GAP) // (LEAST_WIDTH + _GAP)), 1)
    wide = (width - 1 - _GAP * (beside - 1)) // beside
    return max(wide, 1), max(2 * (height - _HEADS), 2)


def _whole(examples: Sequence[Example], room: _Room, width: int, height: int) -> _Room:
    """The room, slightly reduced if that makes one more band of examples fully visible."""
    wide, high = _largest(examples, room)
    beside = max((len(example.tiles) for example in examples), default=1)
    in_row = max((width - 1 + _MARGIN) // (beside * (wide + _GAP) - _GAP + _MARGIN), 1)
    bands = min((height + 1) // (high // 2 + _HEADS + 1) + 1, -(-len(examples) // in_row))
    less = 2 * ((height + 1) // max(bands, 1) - 1 - _HEADS)
    return (room[0], less, room[2]) if _SHRUNK * high <= less < high else room


def _message_width(examples: Sequence[Example], room: _Room) -> int:
    """Width of a message in place of a picture: as wide as the pictures, so that columns stay aligned."""
    widest, _ = _largest(examples, room)
    return max(widest or min(TROUBLE_WIDTH, room[0]), LEAST_WIDTH)


def _largest(examples: Sequence[Example], room: _Room) -> tuple[int, int]:
    """Maximum width and height of the pictures in pixels; 0 if none can be shown."""
    shown = [tile.shown for example in examples for tile in example.tiles if not isinstance(tile.shown, str)]
    sizes = [fitted(picture.width, picture.height, *room) for picture in shown]
    return max((wide for wide, _ in sizes), default=0), max((high for _, high in sizes), default=0)


def _joined(blocks: Sequence[tuple[int, list[Line]]], gap: int) -> list[Line]:
    """Blocks of lines side by side; a block is a width and lines of that width."""
    joined: list[Line] = []
    for row in range(max((len(lines) for _, lines in blocks), default=0)):
        line: Line = []
        for wide, lines in blocks:
            line += [*([Span(" " * gap)] if line else []), *(lines[row] if row < len(lines) else [Span(" " * wide)])]
        joined.append(line)
    return joined


UPPER_HALF = "\u2580"
RAMP = " .:-=+*#%@"
"""From black to white, for light text on a dark background."""
ENLARGED_PX = 32
"""Small pictures are enlarged by an integer factor, to at most about this many pixels, or more if all of them fit."""


class Pixels(NamedTuple):
    """A picture in RGB."""

    width: int
    height: int
    rgb: bytes
    """Three bytes per pixel, row by row from the top."""


def fitted(
    width: int, height: int, room_width: int, room_height: int, enlarged_px: int = ENLARGED_PX
) -> tuple[int, int]:
    """The size in pixels at which a picture is shown: shrunk with its aspect ratio, or enlarged by an integer factor;
    at least one pixel."""
    if width <= room_width and height <= room_height:
        factor = min(room_width // width, room_height // height, max(enlarged_px // max(width, height), 1))
        return width * factor, height * factor
    share = min(room_width / width, room_height / height)
    return max(round(width * share), 1), max(round(height * share), 1)


def coloured(pixels: Pixels) -> list[Line]:
    """A line for every two rows of pixels; equal adjacent cells share a span."""
    lines: list[Line] = []
    for y in range(0, pixels.height, 2):
        upper, lower = _row(pixels, y), _row(pixels, y + 1)
        pairs = zip(upper, lower, strict=True) if lower else [(colour, None) for colour in upper]
        lines.append([_span(colours, len(list(equal))) for colours, equal in groupby(pairs)])
    return lines


def grey(pixels: Pixels) -> list[Line]:
    """A line for every two rows of pixels, without colours."""
    lines: list[Line] = []
    for y in range(0, pixels.height, 2):
        upper = _row(pixels, y)
        lower = _row(pixels, y + 1) or upper
        text = "".join(_character(pair) for pair in zip(upper, lower, strict=True))
        lines.append([Span(text)])
    return lines


def _row(pixels: Pixels, y: int) -> list[RGB]:
    """The colours of a row; empty below the last row."""
    row = pixels.rgb[3 * pixels.width * y : 3 * pixels.width * (y + 1)]
    return list(zip(row[0::3], row[1::3], row[2::3], strict=True))


def _span(colours: Colours, count: int) -> Span:
    return Span(UPPER_HALF * count, "plain", colours)


def _character(pair: tuple[RGB, RGB]) -> str:
    light = sum(_luminance(colour) for colour in pair) / len(pair)
    return RAMP[min(int(light / 256 * len(RAMP)), len(RAMP) - 1)]


def _luminance(colour: RGB) -> float:
    """Luminance of a colour, 0 to 255, with the weights of Rec. 709."""
    red, green, blue = colour
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


FILE_BYTES_MAX = 8 << 20
"""Maximum size of a file that is read."""
PIXELS_MAX = 4 << 20
"""Maximum number of decoded pixels: 2048 x 2048. A decompression bomb of a few bytes can claim billions."""
CACHED_PX = 256
"""Longer side of a cached picture: as much as a large terminal shows in half blocks."""
FULL_PX = 1024
"""Longer side at full resolution, if the pictures are few."""
CACHED_BYTES_MAX = 96 << 20
"""Decoded pictures at full resolution, together; many pictures are smaller ones."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD = struct.Struct(">8sI4sII")
"""Signature, then length, name, width and height of the first chunk."""

_CHUNK = struct.Struct(">I4s")
"""Length and name of a chunk; its content and a checksum follow."""


class Unshowable(Exception):
    """A picture cannot be shown; the message is the reason."""


class _CachedImage(NamedTuple):
    mtime_ns: int
    num_bytes: int
    longest_px: int
    shown: Pixels | str


class ImageFiles:
    """The pictures of one run, decoded once for each version of a file. Thread-safe."""

    def __init__(self, run_dir: Path, *, full: bool = False) -> None:
        """With `full`, pictures are shrunk only as far as memory requires."""
        self._run_dir = run_dir
        self._link = LinkReader(run_dir)
        self._full = full
        self._cache: dict[str, _CachedImage] = {}
        self._lock = threading.Lock()

    def read(self, paths: Iterable[str]) -> dict[str, Pixels | str]:
        """By path: the picture, or the reason why it cannot be shown. Drops all other pictures from the cache."""
        with self._lock:
            wanted = list(paths)
            longest_px = longest_side(len(wanted)) if self._full else CACHED_PX
            self._cache = {path: self._load(path, longest_px) for path in wanted}
            return {path: image.shown for path, image in self._cache.items()}

    def _load(self, path: str, longest_px: int) -> _CachedImage:
        mtime_ns, num_bytes = -1, -1
        try:
            file = locate(self._run_dir, path)
            status = file.stat()
            mtime_ns, num_bytes = status.st_mtime_ns, status.st_size
            before = self._cache.get(path)
            if before is not None and before[:3] == (mtime_ns, num_bytes, longest_px):
                return before
            return _CachedImage(mtime_ns, num_bytes, longest_px, decode(read_bytes(file), longest_px))
        except Unshowable as error:
            return _CachedImage(mtime_ns, num_bytes, longest_px, str(error))
        except OSError as error:
            return _CachedImage(-1, -1, longest_px, self._why(path, error))

    def _why(self, path: str, error: OSError) -> str:
        if not isinstance(error, FileNotFoundError):
            return f"it cannot be read: {error.strerror or error}"
        links = self._link.read()
        command = links.copy_command(path) if links is not None else None
        if command is None:
            return "missing: there is no such file"
        return f"not mirrored yet, or too large; to copy it: {command}"


def longest_side(num_pictures: int) -> int:
    """Longer side of each of some pictures at full resolution, so that together they fit into `CACHED_BYTES_MAX`."""
    fits = math.isqrt(CACHED_BYTES_MAX // (3 * max(num_pictures, 1)))
    return min(max(fits, CACHED_PX), FULL_PX)


def locate(run_dir: Path, path: str) -> Path:
    """The file of a picture named in a journal. Raises `Unshowable` unless it is inside the run's directory."""
    plain = PurePosixPath(path)
    if not path.isprintable() or plain.is_absolute() or not plain.parts or ".." in plain.parts or "\\" in path:
        raise Unshowable("refused: not a plain path inside the run's directory")
    try:
        home = run_dir.resolve()
        place = (home / plain).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
        raise Unshowable("refused: its path cannot be resolved") from error
    if not place.is_relative_to(home):
        raise Unshowable("refused: a link leads out of the run's directory")
    return place


def read_bytes(place: Path) -> bytes:
    """The bytes of a regular file of bounded size. Raises `Unshowable`, `OSError`."""
    # Without O_NONBLOCK, opening a named pipe would block forever.
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unshowable("it is not a file")
        if status.st_size > FILE_BYTES_MAX:
            raise Unshowable(f"too large: {fmt.size(status.st_size)}, at most {fmt.size(FILE_BYTES_MAX)} are read")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(FILE_BYTES_MAX)
    finally:
        os.close(descriptor)


def decode(data: bytes, longest_px: int = CACHED_PX) -> Pixels:
    """The pixels of a PNG file, shrunk to a longer side of at most `longest_px`. Raises `Unshowable`."""
    _check_head(data)
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            # Not the size in the first chunk: the decoder would use that of a later one.
            _check_size(*image.size)
            image.load()
            rgb = _rgb(image)
    except Unshowable:
        raise
    except Exception as error:  # the decoder raises nearly any exception on damaged bytes
        raise Unshowable("damaged or cut: it cannot be decoded") from error
    share = min(longest_px / max(rgb.size), 1.0)
    size = (max(round(rgb.width * share), 1), max(round(rgb.height * share), 1))
    return scaled(Pixels(*rgb.size, rgb.tobytes()), *size)


def scaled(pixels: Pixels, width: int, height: int) -> Pixels:
    """Resize a picture: averages areas to shrink, repeats pixels to enlarge."""
    if (pixels.width, pixels.height) == (width, height):
        return pixels
    from PIL import Image

    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb)
    grown = image.resize((max(width, pixels.width), max(height, pixels.height)), Image.Resampling.NEAREST)
    return Pixels(width, height, grown.resize((width, height), Image.Resampling.BOX).tobytes())


def _check_head(data: bytes) -> None:
    """Check the header and the chunks before the decoder sees them. Raises `Unshowable`."""
    if len(data) < _HEAD.size:
        raise Unshowable("empty: nothing was written to it" if not data else "damaged or cut: its head is not whole")
    signature, _, name, width, height = _HEAD.unpack_from(data)
    if signature != _SIGNATURE or name != b"IHDR":
        raise Unshowable("it is not a PNG file")
    _check_size(width, height)
    place = len(_SIGNATURE)
    while place + _CHUNK.size <= len(data):
        length, name = _CHUNK.unpack_from(data, place)
        if name == b"IHDR" and place > len(_SIGNATURE):
            raise Unshowable("damaged: it has a second head")  # the decoder would use it
        place += _CHUNK.size + length + 4


def _check_size(width: int, height: int) -> None:
    if not width or not height:
        raise Unshowable("damaged: it claims to have no pixels")
    if width * height > PIXELS_MAX:
        raise Unshowable(f"too large: {width:,} x {height:,} pixels")


def _rgb(image: Image) -> Image:
    """Convert to three channels of eight bits; transparent pixels become black."""
    if image.mode.startswith("I"):
        image = image.convert("I").point([value >> 8 for value in range(1 << 16)], "L")
    if "A" in image.mode or "transparency" in image.info:
        from PIL import Image as images

        seen = image.convert("RGBA")
        return images.alpha_composite(images.new("RGBA", seen.size, (0, 0, 0, 255)), seen).convert("RGB")
    return image.convert("RGB")

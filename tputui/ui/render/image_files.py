"""Picture files of a run. Paths and bytes are untrusted input.

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
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from tputui import formatting as fmt
from tputui.remote.link import LinkReader
from tputui.ui.render.image_grid import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

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
            found = file.stat()
            mtime_ns, num_bytes = found.st_mtime_ns, found.st_size
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
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unshowable("it is not a file")
        if found.st_size > FILE_BYTES_MAX:
            raise Unshowable(f"too large: {fmt.size(found.st_size)}, at most {fmt.size(FILE_BYTES_MAX)} are read")
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

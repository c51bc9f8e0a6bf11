"""Decodes the bytes of an image file to a tensor of one static shape.

JPEG and PNG are decoded by torchvision, every other format by Pillow (first frame only). The EXIF orientation is
applied, so that an image looks as viewers show it. Pixels stay uint8: they are converted and normalised on the device,
which transfers a quarter of the bytes. For bad bytes only `Unreadable` is raised.
"""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

JPEG, PNG, NPY = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\x93NUMPY"
BITS_16 = 256
MOST_PIXELS = 2**28 // 3
"""A larger image is not decoded, because a file of a few KiB can decompress to GiB; Pillow has the same limit."""
NO_SIZES = (0xC4, 0xC8, 0xCC)
"""Markers of JPEG between 0xC0 and 0xCF that do not begin a frame."""


class Unreadable(Exception):
    """The bytes cannot be decoded as an image; the text says why."""


class Shape(NamedTuple):
    """The shape that images are resized to."""

    channels: int
    height: int
    width: int
    resize: str
    """`bilinear`, `bicubic` or `nearest`."""


def image(data: bytes, shape: Shape) -> torch.Tensor:
    """uint8 [channels, height, width]. Raises `Unreadable`."""
    return resized(_pixels(data, shape.channels), shape)


def mask(data: bytes, shape: Shape, above: int) -> torch.Tensor:
    """uint8 [1, height, width], 1 where the gray value is more than `above`. Raises `Unreadable`."""
    gray = resized(_pixels(data, 1), shape._replace(resize="nearest"))
    return (gray > above).to(torch.uint8)


def depth(data: bytes, shape: Shape, scale: float) -> torch.Tensor:
    """float32 [1, height, width]: the stored depth times `scale`, 0 if unknown. Raises `Unreadable`.

    Takes a PNG of 8 or 16 bits, another gray image, or `.npy` of [height, width]. A depth of 0 or less, NaN or infinity
    is unknown.
    """
    values = _array(data) if data.startswith(NPY) else _stored(data)
    if values.ndim != 2:
        raise Unreadable(f"a depth map must be [height, width], but this one is {list(values.shape)}")
    known = np.where(np.isfinite(values) & (values > 0), values, 0).astype(np.float32) * np.float32(scale)
    return resized(torch.from_numpy(np.ascontiguousarray(known)).unsqueeze(0), shape._replace(resize="nearest"))


def _pixels(data: bytes, channels: int) -> torch.Tensor:
    """uint8 [channels, height, width] in the size of the file."""
    if not data:
        raise Unreadable("the file is empty")
    if not data.startswith((JPEG, PNG)):
        return _by_pillow(data, channels)
    _check_size(*(_png_size(data) if data.startswith(PNG) else _jpeg_size(data)))
    # Its import takes seconds, and nothing is decoded to describe a task or to check a configuration.
    from torchvision.io import ImageReadMode, decode_jpeg, decode_png

    mode = ImageReadMode.GRAY if channels == 1 else ImageReadMode.RGB
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    try:
        if data.startswith(JPEG):
            pixels: torch.Tensor = decode_jpeg(encoded, mode, apply_exif_orientation=True)
        else:
            pixels = decode_png(encoded, mode, apply_exif_orientation=True)
    except RuntimeError as error:
        raise Unreadable(f"the image cannot be decoded: {_first_line(error)}") from error
    if pixels.dtype == torch.uint8:
        return pixels
    return torch.from_numpy((pixels.numpy() // BITS_16).astype(np.uint8))


def _check_size(height: int, width: int) -> None:
    if height * width > MOST_PIXELS:
        raise Unreadable(f"the image has {height:,} x {width:,} pixels; at most {MOST_PIXELS:,} are decoded")


def _png_size(data: bytes) -> tuple[int, int]:
    """Height and width in the header; 0, 0 if there is no header, which the decoder reports."""
    if len(data) < 24:
        return 0, 0
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """As `_png_size`, read from the frame segment."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # Padding.
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in NO_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return height, width
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return 0, 0


def _by_pillow(data: bytes, channels: int) -> torch.Tensor:
    opened = _opened(data)
    if opened.mode in ("I;16", "I;16B", "I;16L", "I"):
        gray = np.asarray(opened, dtype=np.int64) // BITS_16
        array = np.repeat(gray.clip(0, 255).astype(np.uint8)[None], channels, axis=0)
        return torch.from_numpy(array)
    try:
        array = np.array(opened.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    except (OSError, ValueError) as error:
        raise Unreadable(f"the image cannot be converted: {_first_line(error)}") from error
    return torch.from_numpy(array.reshape(*array.shape[:2], channels)).permute(2, 0, 1)


def _opened(data: bytes) -> Any:
    """A Pillow image, upright, with all pixels read."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        found = Image.open(io.BytesIO(data))
        _check_size(found.height, found.width)
        if found.format == "EPS":  # Pillow would run another program for it.
            raise Unreadable("PostScript is a program, not an image; save it as PNG")
        return ImageOps.exif_transpose(found)
    except UnidentifiedImageError as error:
        raise Unreadable("unknown image format") from error
    except (OSError, ValueError, SyntaxError, EOFError, Warning, Image.DecompressionBombError) as error:
        raise Unreadable(f"the image cannot be decoded: {_first_line(error)}") from error


def _stored(data: bytes) -> npt.NDArray[Any]:
    """The stored values of a gray image, [height, width]."""
    if not data:
        raise Unreadable("the file is empty")
    opened = _opened(data)
    try:
        return np.asarray(opened if opened.mode in ("I;16", "I;16B", "I;16L", "I", "F", "L") else opened.convert("L"))
    except (OSError, ValueError, SyntaxError) as error:
        raise Unreadable(f"the image cannot be decoded: {_first_line(error)}") from error


def _array(data: bytes) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise Unreadable(f"the array cannot be read: {_first_line(error)}") from error
    if array.dtype.kind not in "iuf":
        raise Unreadable("the array is not numeric")
    return array


def resized(pixels: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The image [channels, height, width], resized to `shape`."""
    size = (shape.height, shape.width)
    if pixels.shape[1:] == size:
        return pixels
    if shape.resize == "nearest":
        return interpolate(pixels.unsqueeze(0), size, mode="nearest-exact")[0]
    return interpolate(pixels.unsqueeze(0), size, mode=shape.resize, align_corners=False, antialias=True)[0]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

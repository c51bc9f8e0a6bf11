"""Datasets of images with labels, masks and depths: the cache of decoded images, and random augmentation.

Images stay uint8 on the host. `random_mirror`, `random_light` and `scaled` run on the device, inside the program.

JPEG and PNG are decoded by torchvision, every other format by Pillow (first frame only). The EXIF orientation is
applied, so that an image looks as viewers show it. Pixels stay uint8: they are converted and normalised on the device,
which transfers a quarter of the bytes. For bad bytes only `UnreadableImage` is raised.
"""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

from engine.data.batch_reader import DECODE, READ, stage
from engine.data.options import ImageData
from engine.data.rows import Ints, RowDataset, Rows
from engine.data.sources import open_inputs, open_test, split_rows
from engine.errors import BadExample
from engine.task import Splits

JPEG, PNG, NPY = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\x93NUMPY"
BITS_16 = 256
MOST_PIXELS = 2**28 // 3
"""A larger image is not decoded, because a file of a few KiB can decompress to GiB; Pillow has the same limit."""
NO_SIZES = (0xC4, 0xC8, 0xCC)
"""Markers of JPEG between 0xC0 and 0xCF that do not begin a frame."""


class UnreadableImage(Exception):
    """The bytes cannot be decoded as an image; the text says why."""


class Shape(NamedTuple):
    channels: int
    height: int
    width: int
    resize: str
    """`bilinear`, `bicubic` or `nearest`."""


def image(data: bytes, shape: Shape) -> torch.Tensor:
    """uint8 [channels, height, width]. Raises `UnreadableImage`."""
    return resized(_pixels(data, shape.channels), shape)


def mask(data: bytes, shape: Shape, above: int) -> torch.Tensor:
    """uint8 [1, height, width], 1 where the gray value is more than `above`. Raises `UnreadableImage`."""
    gray = resized(_pixels(data, 1), shape._replace(resize="nearest"))
    return (gray > above).to(torch.uint8)


def depth(data: bytes, shape: Shape, scale: float) -> torch.Tensor:
    """float32 [1, height, width]: the stored depth times `scale`, 0 if unknown. Raises `UnreadableImage`.

    Takes a PNG of 8 or 16 bits, another gray image, or `.npy` of [height, width]. A depth of 0 or less, NaN or infinity
    is unknown.
    """
    values = _array(data) if data.startswith(NPY) else _stored(data)
    if values.ndim != 2:
        raise UnreadableImage(f"a depth map must be [height, width], but this one is {list(values.shape)}")
    depths = np.where(np.isfinite(values) & (values > 0), values, 0).astype(np.float32) * np.float32(scale)
    return resized(torch.from_numpy(np.ascontiguousarray(depths)).unsqueeze(0), shape._replace(resize="nearest"))


def _pixels(data: bytes, channels: int) -> torch.Tensor:
    """uint8 [channels, height, width] in the size of the file."""
    if not data:
        raise UnreadableImage("the file is empty")
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
        raise UnreadableImage(f"the image cannot be decoded: {_first_line(error)}") from error
    if pixels.dtype == torch.uint8:
        return pixels
    return torch.from_numpy((pixels.numpy() // BITS_16).astype(np.uint8))


def _check_size(height: int, width: int) -> None:
    if height * width > MOST_PIXELS:
        raise UnreadableImage(f"the image has {height:,} x {width:,} pixels; at most {MOST_PIXELS:,} are decoded")


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
        raise UnreadableImage(f"the image cannot be converted: {_first_line(error)}") from error
    return torch.from_numpy(array.reshape(*array.shape[:2], channels)).permute(2, 0, 1)


def _opened(data: bytes) -> Any:
    """A Pillow image, upright, with all pixels read."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        picture = Image.open(io.BytesIO(data))
        _check_size(picture.height, picture.width)
        if picture.format == "EPS":  # Pillow would run another program for it.
            raise UnreadableImage("PostScript is a program, not an image; save it as PNG")
        return ImageOps.exif_transpose(picture)
    except UnidentifiedImageError as error:
        raise UnreadableImage("unknown image format") from error
    except (OSError, ValueError, SyntaxError, EOFError, Warning, Image.DecompressionBombError) as error:
        raise UnreadableImage(f"the image cannot be decoded: {_first_line(error)}") from error


def _stored(data: bytes) -> npt.NDArray[Any]:
    """The stored values of a gray image, [height, width]."""
    if not data:
        raise UnreadableImage("the file is empty")
    opened = _opened(data)
    try:
        return np.asarray(opened if opened.mode in ("I;16", "I;16B", "I;16L", "I", "F", "L") else opened.convert("L"))
    except (OSError, ValueError, SyntaxError) as error:
        raise UnreadableImage(f"the image cannot be decoded: {_first_line(error)}") from error


def _array(data: bytes) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise UnreadableImage(f"the array cannot be read: {_first_line(error)}") from error
    if array.dtype.kind not in "iuf":
        raise UnreadableImage("the array is not numeric")
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


MIB = 2**20


class ImageCache:
    """Decodes rows by number and keeps the results if all rows fit into `data.cache_mb`. Thread-safe.

    Whether images are kept follows from byte arithmetic (`needed_bytes`), never from how much memory is free. The
    result is the same either way, with any number of callers.
    """

    def __init__(self, rows: Rows, options: ImageData) -> None:
        self.rows = rows
        self._options = options
        self._shape = Shape(options.channels, *options.size, options.resize)
        self._layers = layers(rows, options)
        self._lock = threading.Lock()
        self._filled: npt.NDArray[np.bool_] | None = None
        self._cache: dict[str, torch.Tensor] = {}

    def __getstate__(self) -> tuple[Rows, ImageData]:
        """Locks and decoded images are not pickled: another process decodes for itself."""
        return self.rows, self._options

    def __setstate__(self, state: tuple[Rows, ImageData]) -> None:
        ImageCache.__init__(self, *state)

    @property
    def needed_bytes(self) -> int:
        """Bytes of all rows when decoded."""
        return len(self.rows) * sum(math.prod(shape) * dtype.itemsize for dtype, shape in self._layers.values())

    @property
    def caches(self) -> bool:
        """Whether every row is decoded once and kept."""
        return self.needed_bytes <= self._options.cache_mb * MIB

    def fetch(self, wanted: Ints) -> dict[str, torch.Tensor]:
        """`image`, `mask` and `depth` of the rows, [n, channels, height, width] each. Raises `BadExample` with the
        row's number."""
        if not self.caches:
            batch = self._empty(len(wanted))
            self._decode_all(wanted, np.arange(len(wanted)), batch)
            return batch
        filled = self._prepared()
        # Two threads that miss the same row at the same time both decode it, to the same bytes.
        lacking = np.array(list(dict.fromkeys(wanted[~filled[wanted]].tolist())), dtype=np.int64)
        self._decode_all(lacking, lacking, self._cache, filled)
        places = torch.from_numpy(wanted)
        return {name: kept.index_select(0, places) for name, kept in self._cache.items()}

    def _prepared(self) -> npt.NDArray[np.bool_]:
        """[rows] which rows are cached. Allocates the cache on the first call."""
        with self._lock:
            if self._filled is None:
                self._cache = self._empty(len(self.rows))
                self._filled = np.zeros(len(self.rows), dtype=bool)
            return self._filled

    def _empty(self, count: int) -> dict[str, torch.Tensor]:
        return {name: torch.empty((count, *shape), dtype=dtype) for name, (dtype, shape) in self._layers.items()}

    def _decode_all(
        self, rows: Ints, places: Ints, into: dict[str, torch.Tensor], done: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Decodes `rows` into the `places` of the tensors, and marks them in `done`. Raises `BadExample` for the first
        bad row."""
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            for name, tensor in into.items():
                tensor[place] = self._layer(name, row)
            if done is not None:
                done[place] = True

    def _bad(self, row: int, name: str, why: str) -> BadExample:
        path = self.rows.files[name][row]
        where = self.rows.names.place(row, self.rows.columns[name])
        return BadExample(row, where if where == path or self.rows.spans is not None else f"{where} ({path})", why)

    def _layer(self, name: str, row: int) -> torch.Tensor:
        shape, options = self._shape, self._options
        if name == "image":
            return self._decoded(name, row, lambda data: image(data, shape))
        if name == "mask":
            return self._decoded(name, row, lambda data: mask(data, shape, options.mask_above))
        values = self._decoded(name, row, lambda data: depth(data, shape, options.depth_scale))
        if "depth_valid" in self.rows.files:
            values *= self._decoded("depth_valid", row, lambda data: mask(data, shape, 0))
        return values

    def _decoded(self, name: str, row: int, how: Callable[[bytes], torch.Tensor]) -> torch.Tensor:
        """A file of the row, decoded by `how`. Raises `BadExample`."""
        try:
            with stage(READ):
                data = self._read(name, row)
            with stage(DECODE):
                return how(data)
        except UnreadableImage as error:
            raise self._bad(row, name, str(error)) from error
        except OSError as error:
            raise self._bad(row, name, f"the file cannot be read: {error.strerror or error}") from error

    def _read(self, name: str, row: int) -> bytes:
        with open(self.rows.files[name][row], "rb", buffering=0, opener=_regular) as file:
            if self.rows.spans is None or name != "image":
                return file.read()
            start, size = self.rows.spans[row]
            file.seek(int(start))
            return file.read(int(size))


def _regular(path: str, flags: int) -> int:
    """Opens a regular file. Raises `OSError` for anything else: reading a pipe or a device may never end."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", path)


def layers(rows: Rows, options: ImageData) -> dict[str, tuple[torch.dtype, tuple[int, int, int]]]:
    """The tensors of each row: `image`, and `mask` and `depth` if the rows have them."""
    height, width = options.size
    kinds = {
        "image": (torch.uint8, options.channels),
        "mask": (torch.uint8, 1),
        "depth": (torch.float32, 1),
    }
    return {name: (dtype, (channels, height, width)) for name, (dtype, channels) in kinds.items() if name in rows.files}


class Images(RowDataset):
    """A dataset of some rows of an image cache, fetched by their index among these."""

    parallel = True
    """Decoding is faster with several threads."""

    def __init__(self, store: ImageCache, which: Ints) -> None:
        super().__init__(store.rows, which)
        self.store = store
        """Shared by both splits, so that each image is decoded once."""

    def fetch(self, indices: Ints) -> dict[str, torch.Tensor]:
        """Tensors by name, as far as the source has them:

            image        uint8 [n, channels, height, width]
            mask         uint8 [n, 1, height, width], 0 or 1
            depth        float32 [n, 1, height, width], 0 if unknown
            depth_valid  uint8 [n, 1, height, width], 1 where `depth` is known
            label        int64 [n], or float32 [n, columns]

        Raises `BadExample` for an image that cannot be read.
        """
        rows = self.which[indices]
        try:
            tensors = self.store.fetch(rows)
        except BadExample as bad:
            index = int(indices[np.flatnonzero(rows == bad.index)[0]])
            raise BadExample(index, bad.where, bad.why) from bad
        if "depth" in tensors:
            tensors["depth_valid"] = (tensors["depth"] > 0).to(torch.uint8)
        return self._with_labels(tensors, indices)

    def name(self, index: int) -> str:
        """The name of an example: its id, or source and row."""
        row = int(self.which[index])
        ids = self.rows.ids
        return ids[row] if ids is not None else self.rows.names.place(row)


def load(options: ImageData, seed: int) -> Splits:
    """The training and validation splits; no image is decoded yet. Raises `ValueError` or `OSError` with a message for
    the user."""
    parts = split_rows(options, seed)
    return parts.splits(partial(Images, ImageCache(parts.rows, options)))


def inputs(options: ImageData, source: Path, classes: Sequence[str] | None = None) -> Images:
    """The images of a user's file or folder for predictions, with the labels that `sources.open_inputs` finds. Raises
    as `load` does."""
    return _all(open_inputs(options, source, classes), options)


def load_test(options: ImageData, classes: Sequence[str] | None = None) -> Images:
    """The test split of the options' source. Raises as `load` does, also if there is none."""
    return _all(open_test(options, classes), options)


def _all(rows: Rows, options: ImageData) -> Images:
    return Images(ImageCache(rows, options), rows.every)


def scaled(pixels: torch.Tensor, mean: float = 0.5, std: float = 0.5) -> torch.Tensor:
    """uint8 images as float32 `(pixels / 255 - mean) / std`, by default from -1 to 1. `engine.models.unet` scales
    each channel separately."""
    return (pixels.float() / 255 - mean) / std


BYTE_MAX = 255.0


def random_mirror(batch: dict[str, torch.Tensor], names: Sequence[str], dim: int) -> dict[str, torch.Tensor]:
    """Mirrors each example along `dim` with probability 1/2; all tensors in `names`, [n, channels, height, width] each,
    alike.

    Random draws follow the engine's seed for the step.
    """
    first = batch[names[0]]
    coins = torch.rand(len(first), 1, 1, 1, device=first.device) < 0.5
    return {**batch, **{name: torch.where(coins, batch[name].flip(dim), batch[name]) for name in names}}


def random_light(images: torch.Tensor, share: float) -> torch.Tensor:
    """Changes brightness and contrast of each image randomly by up to `share`: uint8 [n, channels, height, width], same
    shape."""
    pixels = images.float()
    light, contrast = (1 + share * (2 * torch.rand(2, len(images), 1, 1, 1, device=images.device) - 1)).unbind()
    middle = pixels.mean(dim=(1, 2, 3), keepdim=True)
    return ((pixels - middle) * contrast + middle * light).clamp(0, BYTE_MAX).to(images.dtype)

"""Pictures and checkpoints that a script reports. Imports no array library: arrays come from the script."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from tputui.telemetry.events import PictureKept
from tputui.telemetry.redaction import masked_text

FOLDER = "pictures"
PICTURES_MAX = 64
"""Most pictures of one epoch; later ones replace those of the same name and example only."""
LINES_MAX = 100
"""Most lines of one call of `Run.text`."""
FILES_MAX = 10_000
"""Most files of a checkpoint directory whose sizes are added."""
_CHANNELS_FIRST = (1, 3)
_NUM_AXES = 3
_WHITE = 255


class EpochPictures:
    """The pictures of the newest epoch that has some."""

    def __init__(self, run_dir: Path, rank: int) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / FOLDER / (f"rank-{rank}" if rank else "")
        """Ranks must not overwrite each other's pictures."""
        self._epoch = -1
        self._kept: dict[tuple[str, str], PictureKept] = {}

    def save(self, name: str, image: Any, example: str, epoch: int, step: int) -> list[PictureKept]:
        """Saves a picture as PNG; returns all pictures of the epoch. Raises `OSError`, `TypeError`, `ValueError`."""
        if epoch != self._epoch:
            self._epoch, self._kept = epoch, {}
        key = (example, name)
        if key not in self._kept and len(self._kept) >= PICTURES_MAX:
            raise ValueError(f"more than {PICTURES_MAX} pictures in one epoch")
        number = list(self._kept).index(key) if key in self._kept else len(self._kept)
        folder = self._folder / f"epoch-{epoch:04d}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{number:02d}-{_safe(example)}-{_safe(name)}.png"
        _write_png(image, path)
        place = path.relative_to(self._run_dir).as_posix()
        self._kept[key] = PictureKept(example=example or f"step {step}", name=name, path=place)
        return list(self._kept.values())


def shown_path(path: Path, run_dir: Path) -> str:
    """A path relative to the run directory, or absolute if it is outside."""
    whole, inside = Path(os.path.abspath(path)), Path(os.path.abspath(run_dir))
    return (whole.relative_to(inside) if whole.is_relative_to(inside) else whole).as_posix()


def num_bytes(path: Path) -> int:
    """The bytes of a file, or of the files in a directory."""
    if not path.is_dir():
        return path.stat().st_size
    size = 0
    for number, file in enumerate(path.rglob("*")):
        if number >= FILES_MAX:
            break
        size += file.stat().st_size if file.is_file() else 0
    return size


def _write_png(image: Any, path: Path) -> None:
    if hasattr(image, "savefig"):
        image.savefig(path, format="png")
    elif hasattr(image, "save") and hasattr(image, "mode"):
        image.save(path, format="PNG")
    else:
        from PIL import Image

        Image.fromarray(_pixels(image)).save(path, format="PNG")


def _pixels(image: Any) -> Any:
    """Array [height, width] or [height, width, 3 or 4], uint8."""
    if hasattr(image, "detach"):
        image = image.detach().cpu()
        image = (image.float() if image.dtype.is_floating_point else image).numpy()
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(image, "shape"):
        raise TypeError(f"a {type(image).__name__} is not a picture; pass a PIL image, a figure, an array or a tensor")
    array = numpy.asarray(image)
    if array.ndim == _NUM_AXES and array.shape[0] in _CHANNELS_FIRST and array.shape[2] not in (1, 3, 4):
        array = numpy.moveaxis(array, 0, -1)
    if array.ndim == _NUM_AXES and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, _NUM_AXES):
        raise ValueError(f"the shape {list(array.shape)} is not that of a picture")
    if array.dtype == bool or array.dtype.kind == "f":
        array = numpy.nan_to_num(array).clip(0, 1) * _WHITE
    return numpy.ascontiguousarray(array.clip(0, _WHITE), dtype=numpy.uint8)


def _safe(name: str) -> str:
    """The name as a part of a file name, with secrets masked."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", masked_text(name))[:40] or "picture"

"""Files for the user in the run directory: losses of each epoch, pictures, and the table of layers.

Each file is written completely or not at all. Must not touch a device.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from engine.checkpoint import atomic_write
from engine.task import Picture
from tputui.telemetry.events import PictureKept
from tputui.telemetry.layer_table import FILE, LayerTable

TRAIN_LOSSES = "trn_losses.npy"
VALID_LOSSES = "val_losses.npy"
PICTURES = "pictures"


class RunArtifacts:
    """The files of one run. Every method raises `OSError`."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def layers(self, table: LayerTable) -> None:
        """Writes the table of the network's layers as JSON."""
        content = msgspec.json.format(msgspec.json.encode(table), indent=1)
        atomic_write.write(self._run_dir / FILE, lambda file: file.write(content))

    def losses(self, losses: list[tuple[float, float]]) -> None:
        """Writes the mean training and validation losses, given by epoch, as two float64 arrays [epochs]."""
        columns = np.array(losses, dtype=np.float64).reshape(-1, 2).T
        for name, column in zip((TRAIN_LOSSES, VALID_LOSSES), columns, strict=True):
            atomic_write.write(self._run_dir / name, partial(np.save, arr=column, allow_pickle=False))

    def pictures(self, epoch: int, pictures: list[Picture]) -> list[PictureKept]:
        """Writes the pictures of an epoch as PNG files and returns their paths."""
        if not pictures:
            return []
        folder = self._run_dir / PICTURES / f"epoch-{epoch:04d}"
        for part in (folder.parent, folder):
            if not part.is_dir():
                part.mkdir()
                # The user's code may have set any umask.
                part.chmod(0o700)
        # Numbered, since two names may become equal when they are made safe for a path.
        numbers = {example: number for number, example in enumerate(dict.fromkeys(p.example for p in pictures))}
        return [self._write_picture(folder, numbers[picture.example], picture) for picture in pictures]

    def _write_picture(self, folder: Path, number: int, picture: Picture) -> PictureKept:
        from PIL import Image

        path = folder / f"{number:02d}-{_safe(picture.example)}-{_safe(picture.name)}.png"
        image = Image.fromarray(np.ascontiguousarray(picture.pixels, dtype=np.uint8))
        atomic_write.write(path, partial(image.save, format="PNG"))
        return PictureKept(example=picture.example, name=picture.name, path=path.relative_to(self._run_dir).as_posix())


class NoArtifacts(RunArtifacts):
    """Writes nothing: of several processes, the first one writes the files."""

    def layers(self, table: LayerTable) -> None:
        """Does nothing."""

    def losses(self, losses: list[tuple[float, float]]) -> None:
        """Does nothing."""

    def pictures(self, epoch: int, pictures: list[Picture]) -> list[PictureKept]:
        """Returns no paths."""
        return []


def _safe(text: str) -> str:
    """The text as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[-80:] or "_"

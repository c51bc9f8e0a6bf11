"""Files for the user beside a run's journals: the losses of each epoch as arrays, and pictures of predictions.

Written whole or not at all. Must not touch a device.
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
    """The files of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def layers(self, table: LayerTable) -> None:
        """Writes the table of the network's layers. Raises `OSError`."""
        content = msgspec.json.format(msgspec.json.encode(table), indent=1)
        atomic_write.write(self._run_dir / FILE, lambda file: file.write(content))

    def losses(self, losses: list[tuple[float, float]]) -> None:
        """Writes the mean training and validation loss of each epoch, float64 [epochs] each. Raises `OSError`."""
        columns = np.array(losses, dtype=np.float64).reshape(-1, 2).T
        for name, column in zip((TRAIN_LOSSES, VALID_LOSSES), columns, strict=True):
            atomic_write.write(self._run_dir / name, partial(np.save, arr=column, allow_pickle=False))

    def pictures(self, epoch: int, pictures: list[Picture]) -> list[PictureKept]:
        """Writes the pictures of an epoch as PNG files and says where they are. Raises `OSError`."""
        if not pictures:
            return []
        folder = self._run_dir / PICTURES / f"epoch-{epoch:04d}"
        for part in (folder.parent, folder):
            if not part.is_dir():
                part.mkdir()
                # Whatever umask the user's code has set.
                part.chmod(0o700)
        # Counted, since two names may be alike once they are safe in a path.
        numbers = {example: number for number, example in enumerate(dict.fromkeys(p.example for p in pictures))}
        return [self._keep(folder, numbers[picture.example], picture) for picture in pictures]

    def _keep(self, folder: Path, number: int, picture: Picture) -> PictureKept:
        from PIL import Image

        path = folder / f"{number:02d}-{_plain(picture.example)}-{_plain(picture.name)}.png"
        image = Image.fromarray(np.ascontiguousarray(picture.pixels, dtype=np.uint8))
        atomic_write.write(path, partial(image.save, format="PNG"))
        return PictureKept(example=picture.example, name=picture.name, path=path.relative_to(self._run_dir).as_posix())


def _plain(text: str) -> str:
    """A name that is safe in a path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[-80:] or "_"

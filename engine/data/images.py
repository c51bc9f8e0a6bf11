"""Images with labels, masks and depths as a task's datasets, whatever source they come from.

Must not touch a device: pixels are uint8 here, and `engine.data.images.scaled` converts them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.data import identity
from engine.data.image_cache import ImageCache
from engine.data.options import ImageData
from engine.data.rows import Ints, Rows
from engine.data.sources import cut, open_inputs, open_test
from engine.errors import BadExample
from engine.task import Splits


class Images:
    """Some rows of a store, fetched by their index among these."""

    parallel = True
    """Decoding gains by several threads."""

    def __init__(self, store: ImageCache, which: Ints) -> None:
        self.store = store
        """Decodes; both splits share one, so that each image is decoded once."""
        self.which = which
        """[examples] row of each example in `store.rows`."""

    def __len__(self) -> int:
        return len(self.which)

    def fetch(self, indices: Ints) -> dict[str, torch.Tensor]:
        """`image` uint8 [n, channels, height, width]; and what the source has of `mask` uint8 [n, 1, height, width]
        of 0 and 1, `depth` float32 [n, 1, height, width] with `depth_valid` uint8 beside it, and `label`, int64 [n]
        or float32 [n, columns].

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
        labels = self.store.rows.labels
        if labels is not None:
            tensors["label"] = torch.from_numpy(labels[rows])
        return tensors

    def identities(self, indices: Ints) -> dict[str, npt.NDArray[Any]]:
        """Columns by which a user knows these examples again."""
        return self.store.rows.identities(self.which[indices])

    def name(self, index: int) -> str:
        """What an example is called: its id, or the place of its row."""
        row = int(self.which[index])
        ids = self.store.rows.ids
        return ids[row] if ids is not None else self.store.rows.names.place(row)


def load(options: ImageData, seed: int) -> Splits:
    """The splits of the options; nothing is decoded yet. Raises `ValueError` or `OSError` in the user's words."""
    parts = cut(options, seed)
    store = ImageCache(parts.rows, options)
    of = identity.of(parts)
    return Splits(Images(store, parts.train), Images(store, parts.valid), parts.rows.dropped, parts.notes, of)


def inputs(options: ImageData, source: Path, classes: Sequence[str] | None = None) -> Images:
    """Images of a user's file or folder for predictions, with what `sources.open_inputs` finds besides. Raises as
    `load` does."""
    return _all(open_inputs(options, source, classes), options)


def load_test(options: ImageData, classes: Sequence[str] | None = None) -> Images:
    """The test split of the options' source. Raises as `load` does, also if there is none."""
    return _all(open_test(options, classes), options)


def _all(rows: Rows, options: ImageData) -> Images:
    return Images(ImageCache(rows, options), np.arange(len(rows), dtype=np.int64))


def scaled(pixels: torch.Tensor, mean: float = 0.5, std: float = 0.5) -> torch.Tensor:
    """uint8 images as float32 from -1 to 1; on the device, inside the step's program. `engine.models.scaling` scales
    each channel by its own."""
    return (pixels.float() / 255 - mean) / std

"""Task `digits`: 1,797 handwritten digits of 8 x 8 pixels that ship with scikit-learn.

Real data, small enough to train in seconds on two CPU cores. Importing this module does not import torch.
"""

from __future__ import annotations

import csv
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from engine.task import Options, Picture, Sizes, Splits, Task

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch

NUM_EXAMPLES = 1797
NUM_CLASSES = 10
SIDE = 8
PIXEL_MAX = 16.0


class DigitsData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    valid_fraction: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.2
    """Share of the images held out for validation, more than 0 and less than 1."""


class DigitsModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    channels: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 32
    """Channels of both convolutions."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Share of features dropped before the last layer in training."""


class DigitImages:
    """A dataset of images in memory, with labels if they are known."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor | None) -> None:
        """`pixels` float32 [n, 1, 8, 8], `labels` int64 [n]."""
        self._pixels = pixels
        self._labels = labels

    def __len__(self) -> int:
        return len(self._pixels)

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """`pixels` float32 [n, 1, 8, 8] and, if known, `labels` int64 [n]."""
        import torch

        rows = torch.from_numpy(indices)
        batch = {"pixels": self._pixels[rows]}
        return batch if self._labels is None else {**batch, "labels": self._labels[rows]}


def _pictures(batch: dict[str, npt.NDArray[Any]], names: list[str]) -> list[Picture]:
    """The images of a batch, each called by its name in `names`."""
    import numpy as np

    gray = (batch["pixels"] * 255).astype(np.uint8).repeat(3, axis=1).transpose(0, 2, 3, 1)
    shown = zip(names, batch["labels"], gray, strict=True)
    return [Picture(name, f"#{row} label {label}", pixels) for row, (name, label, pixels) in enumerate(shown, 1)]


class Digits(Task):
    """Classifies scikit-learn's handwritten digits with a small convnet."""

    data_options: ClassVar[type[Options]] = DigitsData
    model_options: ClassVar[type[Options]] = DigitsModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    def sizes(self, data: DigitsData, seed: int) -> Sizes:
        """The validation split is rounded up to a whole image."""
        valid = min(NUM_EXAMPLES - 1, math.ceil(NUM_EXAMPLES * data.valid_fraction))
        return Sizes(NUM_EXAMPLES - valid, valid)

    def load(self, data: DigitsData, seed: int) -> Splits:
        """Shuffles once by the seed and splits."""
        import numpy as np
        import torch
        from sklearn.datasets import load_digits

        digits = load_digits()
        order = np.argsort(np.random.PCG64(seed).random_raw(NUM_EXAMPLES), kind="stable")
        pixels = torch.from_numpy((digits.images[order] / PIXEL_MAX).astype(np.float32)).unsqueeze(1)
        labels = torch.from_numpy(digits.target[order].astype(np.int64))
        num_train = self.sizes(data, seed).train
        return Splits(
            DigitImages(pixels[:num_train], labels[:num_train]), DigitImages(pixels[num_train:], labels[num_train:])
        )

    def model(self, options: DigitsModel, data: DigitsData) -> torch.nn.Module:
        """Two convolutions and a linear layer."""
        return convnet(options.channels, options.dropout)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` float32 [n, 10]."""
        return {"logits": model(batch["pixels"])}

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`loss` (cross-entropy) and `accuracy`, float32 [n] each."""
        from torch.nn.functional import cross_entropy

        logits, labels = predictions["logits"], batch["labels"]
        return {
            "loss": cross_entropy(logits, labels, reduction="none"),
            "accuracy": (logits.argmax(dim=1) == labels).float(),
        }

    def examples(self, batch: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """The images, each with its digit."""
        return _pictures(batch, ["input"] * len(batch["labels"]))

    def pictures(self, batch: dict[str, npt.NDArray[Any]], predictions: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """The images, each with its digit and the predicted one."""
        return _pictures(batch, [f"predicted {digit}" for digit in predictions["logits"].argmax(axis=1)])

    def inputs(self, data: DigitsData, source: Path) -> DigitImages:
        """A user's images: `.npy` with 64 values per image, from 0 to 16; or CSV with 64 columns and optionally
        `label`.

        The 64 columns of a CSV are the pixels row by row.
        """
        import numpy as np
        import torch

        pixels, labels = _from_npy(source) if source.suffix == ".npy" else _from_csv(source)
        if pixels.ndim not in (2, 3) or math.prod(pixels.shape[1:]) != SIDE * SIDE:
            raise ValueError(f"{source}: an array of {list(pixels.shape)} is not a list of {SIDE} x {SIDE} images")
        wrong = ~((pixels >= 0) & (pixels <= PIXEL_MAX)).reshape(len(pixels), -1)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(f"{source}: row {row + 1}: pixel {column + 1} is not from 0 to {PIXEL_MAX:g}")
        images = torch.from_numpy((pixels / PIXEL_MAX).astype(np.float32)).view(-1, 1, SIDE, SIDE)
        return DigitImages(images, None if labels is None else torch.from_numpy(labels))

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The most likely digit and its probability."""
        import numpy as np

        logits = predictions["logits"].astype(np.float64)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return {
            "digit": logits.argmax(axis=1),
            "probability": (odds.max(axis=1) / odds.sum(axis=1)).astype(np.float32),
        }


def convnet(channels: int, dropout: float) -> torch.nn.Module:
    """Two blocks of convolution, batch norm, ReLU and pooling, then a linear layer: [n, 1, 8, 8] -> logits [n, 10]."""
    from torch import nn

    layers: list[nn.Module] = []
    for inputs in (1, channels):
        convolution = nn.Conv2d(inputs, channels, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
    head = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels * (SIDE // 4) ** 2, NUM_CLASSES))
    return nn.Sequential(OrderedDict(features=nn.Sequential(*layers), head=head))


def _from_npy(source: Path) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64] | None]:
    import numpy as np

    return np.asarray(np.load(source, allow_pickle=False), dtype=np.float64), None


def _from_csv(source: Path) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64] | None]:
    import numpy as np

    with source.open(newline="") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    if not rows:
        raise ValueError(f"{source}: no rows; the first row names the columns, and each row below is an image")
    labelled = [place for place, name in enumerate(head) if name == "label"]
    pixels, labels = [], []
    for number, row in enumerate(rows, start=1):
        try:
            values = [float(cell) for cell in row]
        except ValueError as error:
            raise ValueError(f"{source}: row {number}: {error}") from None
        if len(row) != len(head):
            raise ValueError(f"{source}: row {number} has {len(row)} cells where the header has {len(head)}")
        labels += [values[place] for place in labelled]
        pixels.append([value for place, value in enumerate(values) if place not in labelled])
    wrong = next((row for row, label in enumerate(labels, start=1) if label not in range(NUM_CLASSES)), None)
    if wrong is not None:
        raise ValueError(f"{source}: row {wrong}: the label is not a digit from 0 to {NUM_CLASSES - 1}")
    return np.array(pixels), np.array(labels, dtype=np.int64) if labelled else None

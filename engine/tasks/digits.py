"""Handwritten digits: 1,797 images of 8 x 8 pixels that ship inside scikit-learn.

Real data, small enough to train in seconds on two CPU cores. The top of this module is torch-free.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from engine.tasks.base import Options, Sizes, Splits, Task

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

NUM_EXAMPLES = 1797
NUM_CLASSES = 10
PIXEL_MAX = 16.0


class DigitsData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    valid_fraction: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.2
    """Share of the images that is kept for validation, more than 0 and less than 1."""


class DigitsModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    channels: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 32
    """Channels of both convolutions."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Share of the features that a training step drops before the last layer."""


class Images:
    """Images and labels held in memory."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        """`pixels` float32 [n, 1, 8, 8], `labels` int64 [n]."""
        self._pixels = pixels
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """`pixels` and `labels` at the indices."""
        import torch

        rows = torch.from_numpy(indices)
        return {"pixels": self._pixels[rows], "labels": self._labels[rows]}


class Digits(Task):
    """scikit-learn's handwritten digits: a small convnet tells 0 to 9."""

    data_options: ClassVar[type[Options]] = DigitsData
    model_options: ClassVar[type[Options]] = DigitsModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    def sizes(self, data: DigitsData, seed: int) -> Sizes:
        """The validation split is rounded up to a whole image."""
        valid = min(NUM_EXAMPLES - 1, math.ceil(NUM_EXAMPLES * data.valid_fraction))
        return Sizes(NUM_EXAMPLES - valid, valid)

    def load(self, data: DigitsData, seed: int) -> Splits:
        """Shuffles once by the seed and cuts."""
        import numpy as np
        import torch
        from sklearn.datasets import load_digits

        digits = load_digits()
        order = np.argsort(np.random.PCG64(seed).random_raw(NUM_EXAMPLES), kind="stable")
        pixels = torch.from_numpy((digits.images[order] / PIXEL_MAX).astype(np.float32)).unsqueeze(1)
        labels = torch.from_numpy(digits.target[order].astype(np.int64))
        num_train = self.sizes(data, seed).train
        return Splits(Images(pixels[:num_train], labels[:num_train]), Images(pixels[num_train:], labels[num_train:]))

    def model(self, options: DigitsModel, data: DigitsData) -> torch.nn.Module:
        """Two convolutions and a linear layer."""
        from engine.models.convnet import ConvNet

        return ConvNet(options.channels, options.dropout, NUM_CLASSES)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` [examples, 10]."""
        return {"logits": model(batch["pixels"])}

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cross-entropy, and whether the likeliest class is the right one."""
        from torch.nn.functional import cross_entropy

        logits, labels = predictions["logits"], batch["labels"]
        return {
            "loss": cross_entropy(logits, labels, reduction="none"),
            "accuracy": (logits.argmax(dim=1) == labels).float(),
        }

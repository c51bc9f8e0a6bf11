"""Task `image_labels`: predicts one class, several binary labels, or numbers per image of a user's table or folder.

ResNets and EfficientNets of any size. Importing this module does not import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data.options import ImageData
from engine.errors import Problem
from engine.models import unet
from engine.models.unet import ScaledModel, Scaling
from engine.task import Dataset, Options, Picture, Splits
from engine.tasks.labelled import Labelled

if TYPE_CHECKING:
    import torch

    from engine.task import Plan

EFFICIENTNET = "efficientnet-"


class ImageLabelsData(ImageData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    balanced: bool = False
    """Whether a rare label counts more in the loss: for binary labels by the ratio of negatives to positives in the
    training rows, for classes by the inverse of their frequency."""
    flips: Literal["none", "horizontal", "both"] = "none"
    """Random mirroring of training images: none, left to right, or also top to bottom."""


class ImageLabelsModel(ScaledModel, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    net: str = "resnet34"
    """`resnet18`, `resnet34`, `resnet50`, `thin`, or `efficientnet-b0` to `efficientnet-b7`."""
    width: Annotated[float, msgspec.Meta(gt=0, le=8)] = 1.0
    """Factor for the channels of the network; 1 is the published size."""
    depth: Annotated[float, msgspec.Meta(gt=0, le=8)] = 1.0
    """Factor for the layers of an EfficientNet."""
    stem_stride: Annotated[int, msgspec.Meta(ge=1, le=2)] = 2
    """Stride of an EfficientNet's first layer; 1 keeps the resolution of images of 64 pixels and less."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Share of features dropped before the last layer in training; by default the published one."""
    weights: str = ""
    """File of weights to start from: of `torch.save`, with a new last layer; or `checkpoints/best.pt` of a run,
    including the last layer if it has as many labels."""


class ImageLabels(Labelled):
    """Predicts the labels of images: one class, several binary labels, or numbers."""

    data_options: ClassVar[type[Options]] = ImageLabelsData
    model_options: ClassVar[type[Options]] = ImageLabelsModel

    def __init__(self) -> None:
        super().__init__()
        self._flips = "none"
        self._scaled = Scaling()

    def load(self, data: ImageLabelsData, seed: int) -> Splits:
        """Images are decoded when they are fetched."""
        from engine.data import images

        splits = images.load(data, seed)
        train = splits.train
        assert isinstance(train, images.Images)
        rows = train.rows
        self._learn_names(data, rows)
        self._learn_targets(rows, train.which)
        self._flips = data.flips
        if data.balanced:
            self._balance(rows, train.which)
        return splits

    def model(self, options: ImageLabelsModel, data: ImageLabelsData) -> torch.nn.Module:
        """The network, with the weights of `model.weights` if set."""
        from engine.models import weights

        if not self._names:
            self._learn_names(data, None)
        self._scaled = unet.of(options)
        net, head = _net(options, len(self._names))
        if options.weights:
            weights.load(net, options.weights, head)
        return self._finished(net)

    def augment(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Mirrors images randomly; shapes stay."""
        if self._flips == "none":
            return batch
        from engine.data import images

        batch = images.random_mirror(batch, ["image"], 3)
        return images.random_mirror(batch, ["image"], 2) if self._flips == "both" else batch

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` float32 [n, labels]; for numbers `values` [n, labels], in training with their `spread` [labels]."""
        return self._answer(model, model(self._scaled(batch["image"])))

    def examples(self, batch: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """Training images as the network gets them, each with its label."""
        return [
            Picture("input", f"#{row + 1} label {self._told(batch['label'][row])}", _pixels(image))
            for row, image in enumerate(batch["image"])
        ]

    def pictures(self, batch: dict[str, npt.NDArray[Any]], predictions: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """Images with label and prediction as the title."""
        return [
            Picture(
                f"predicted {self._guessed(predictions, row)}",
                f"#{row + 1} label {self._told(batch['label'][row])}",
                _pixels(image),
            )
            for row, image in enumerate(batch["image"])
        ]

    def problems(self, plan: Plan) -> list[Problem]:
        """A mean or std with the wrong number of channels."""
        assert isinstance(plan.model, ImageLabelsModel)
        assert isinstance(plan.data, ImageLabelsData)
        return unet.problems(plan.model, plan.data.channels)

    def inputs(self, data: ImageLabelsData, source: Path) -> Dataset:
        """Images of a table, TFRecord files, a folder, or one image."""
        from engine.data import images

        return images.inputs(data, source, self.classes)

    def test_split(self, data: ImageLabelsData) -> Dataset:
        """The rows with split `test`, or the images of a folder `test`."""
        from engine.data import images

        return images.load_test(data, self.classes)


def _pixels(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """[channels, height, width] as [height, width, 3]."""
    shown = np.moveaxis(image, 0, 2).astype(np.uint8)
    return shown if shown.shape[2] == 3 else np.repeat(shown[:, :, :1], 3, axis=2)


def _net(options: ImageLabelsModel, num_labels: int) -> tuple[torch.nn.Module, str]:
    """The network, and the name of its last layer."""
    from engine.models.efficientnet import EfficientNet
    from engine.models.resnet import ResNet

    if options.net.startswith(EFFICIENTNET):
        name = options.net.removeprefix(EFFICIENTNET)
        net = EfficientNet(
            name,
            num_labels,
            dropout=options.dropout,
            width=options.width,
            depth=options.depth,
            stem_stride=options.stem_stride,
        )
        return net, "classifier"
    return ResNet(options.net, num_labels, max(1, round(64 * options.width)), options.dropout or 0.0), "fc"

"""Labels of images: one class, or several labels of which each is there or not. For a user's own table or folder.

ResNets and EfficientNets of any size. The top of this module is torch-free.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from engine import scores
from engine.data import sources
from engine.data.options import ImageData
from engine.data.rows import Rows
from engine.errors import Problem, Refused
from engine.tasks.base import Dataset, Options, Sizes, Splits, Task

if TYPE_CHECKING:
    import torch

EFFICIENTNET = "efficientnet-"
MOST_NAMED = 20
"""More labels than this are not scored one by one."""


class ImageLabelsData(ImageData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    balanced: bool = False
    """Whether a rare label counts more in the loss: for binary labels as many times as negatives outnumber
    positives in the training rows, for classes by the inverse of how frequent they are."""
    flips: Literal["none", "horizontal", "both"] = "none"
    """How training images are mirrored at random: not at all, left to right, or also top to bottom."""


class ImageLabelsModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    net: str = "resnet34"
    """`resnet18`, `resnet34`, `resnet50`, `thin`, or `efficientnet-b0` to `efficientnet-b7`."""
    width: Annotated[float, msgspec.Meta(gt=0, le=8)] = 1.0
    """What the net's channels are multiplied by; 1 is the published size."""
    depth: Annotated[float, msgspec.Meta(gt=0, le=8)] = 1.0
    """What the layers of an EfficientNet are multiplied by."""
    stem_stride: Annotated[int, msgspec.Meta(ge=1, le=2)] = 2
    """Stride of an EfficientNet's first layer; 1 keeps images of 64 pixels and less from shrinking at once."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Share of the features that a training step drops before the last layer; none takes the published one."""
    weights: str = ""
    """File of weights to start from, of `torch.save`; the last layer is always new."""


class ImageLabels(Task):
    """Tells labels of images: one class, or several that are there or not."""

    data_options: ClassVar[type[Options]] = ImageLabelsData
    model_options: ClassVar[type[Options]] = ImageLabelsModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    scores: ClassVar[tuple[str, ...]] = ("auc",)

    def __init__(self) -> None:
        self._classes = False
        self._names: tuple[str, ...] = ()
        self._flips = "none"
        self._weights: list[float] = []
        """Of each label or class in the loss; empty where all count the same."""

    def sizes(self, data: ImageLabelsData, seed: int) -> Sizes:
        """As the table or folder says."""
        if not data.label:
            raise Refused([Problem("data.label", "it names no column, so there is nothing to tell of an image")])
        return sources.sizes(data, seed)

    def num_folds(self, data: ImageLabelsData) -> int:
        """As the keys or the table say."""
        return sources.num_folds(data)

    def load(self, data: ImageLabelsData, seed: int) -> Splits:
        """Nothing is decoded yet."""
        from engine.data import images

        splits = images.load(data, seed)
        train = splits.train
        assert isinstance(train, images.Images)
        rows = train.store.rows
        self._learn_names(data, rows)
        if data.balanced and rows.labels is not None:
            self._weights = class_weights(rows.labels[train.which], len(self._names))
        return splits

    def model(self, options: ImageLabelsModel, data: ImageLabelsData) -> torch.nn.Module:
        """The net, with the user's weights in it where there are some."""
        from engine.models import weights

        if not self._names:
            self._learn_names(data, None)
        net, head = _net(options, len(self._names))
        if options.weights:
            weights.load(net, Path(options.weights).expanduser(), head)
        return net

    def augment(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Mirrors each image or not."""
        if self._flips == "none":
            return batch
        image = _mirrored(batch["image"], 3)
        return {**batch, "image": _mirrored(image, 2) if self._flips == "both" else image}

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` [examples, labels]."""
        from engine.data.images import scaled

        return {"logits": model(scaled(batch["image"]))}

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cross-entropy over classes or labels, and the share of the labels that is right."""
        from engine import losses

        logits, label = predictions["logits"], batch["label"]
        if self._classes:
            loss = losses.cross_entropy(logits, label)
            if self._weights:
                loss = loss * _constants(self._weights, logits)[label]
            return {"loss": loss, "accuracy": (logits.argmax(dim=1) == label).float()}
        weight = _constants(self._weights, logits) if self._weights else 1.0
        label = label.reshape(logits.shape)
        right = ((logits > 0) == (label > 0.5)).float().mean(dim=1)
        return {"loss": losses.bce_with_logits(logits, label, pos_weight=weight), "accuracy": right}

    def judged(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Logits beside labels."""
        return {"logits": predictions["logits"].float(), "label": batch["label"]}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """`auc`, the mean over the labels, and `ap`, the average precision; each label's own beside them."""
        logits, label = judged["logits"], judged["label"]
        targets = label.reshape(logits.shape) if not self._classes else np.eye(logits.shape[1])[label]
        by_auc = scores.by_label(scores.auc, targets, logits, self._names)
        by_ap = scores.by_label(scores.average_precision, targets, logits, self._names)
        found = {"auc": by_auc.macro.value, "ap": by_ap.macro.value}
        if 1 < len(self._names) <= MOST_NAMED:
            found |= {f"auc {name}": one.value for name, one in zip(self._names, by_auc.each, strict=True)}
        return found

    def inputs(self, data: ImageLabelsData, source: Path) -> Dataset:
        """Images of a table, of a folder, or one image."""
        from engine.data import images

        return images.inputs(data, source)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The probability of each label, and the likeliest class."""
        logits = predictions["logits"].astype(np.float64)
        if not self._classes:
            shares = 1 / (1 + np.exp(-logits))
            return {f"probability {name}": shares[:, place] for place, name in enumerate(self._names)}
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        by_name = {f"probability {name}": shares[:, place] for place, name in enumerate(self._names)}
        return {"class": np.array(self._names)[logits.argmax(axis=1)], **by_name}

    def _learn_names(self, data: ImageLabelsData, rows: Rows | None) -> None:
        """What the labels are called: by the keys where they say it, else by the rows."""
        self._classes = data.label_kind == "class"
        self._flips = data.flips
        if not self._classes:
            self._names = (data.label,) if isinstance(data.label, str) else tuple(data.label)
        elif data.classes:
            self._names = tuple(data.classes)
        else:
            self._names = (rows if rows is not None else sources.open_rows(data)).label_names


def class_weights(labels: npt.NDArray[Any], num_labels: int) -> list[float]:
    """Weights of labels [rows] (classes) or [rows, labels] (0 or 1); one that never occurs counts once."""
    if labels.ndim == 1:
        counts = np.bincount(labels.astype(np.int64), minlength=num_labels).astype(float)
        shares = np.where(counts > 0, len(labels) / np.maximum(counts, 1) / max(1, (counts > 0).sum()), 1.0)
        return [float(share) for share in shares]
    positives = labels.sum(axis=0)
    return [float((len(labels) - count) / count) if count else 1.0 for count in positives]


def _net(options: ImageLabelsModel, num_labels: int) -> tuple[torch.nn.Module, str]:
    """The net, and the name of its last layer."""
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


def _mirrored(images: torch.Tensor, dim: int) -> torch.Tensor:
    """Each image mirrored in a dimension or not, with equal chances."""
    import torch

    coins = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(coins, images.flip(dim), images)


def _constants(values: list[float], like: torch.Tensor) -> torch.Tensor:
    """Numbers as a tensor [values] that is made on the device: sent there, it would be a transfer a step."""
    import torch

    return torch.stack([torch.full((), value, device=like.device) for value in values])

"""Labels of rows of numbers: one class, or several labels of which each is there or not. For a user's `.npy` files.

The network standardises the features by the mean and the spread of the training rows, which its weights carry. The
top of this module is torch-free.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from engine.data import arrays
from engine.data.options import ArrayData, SourceOptions
from engine.errors import Problem, Refused
from engine.tasks.base import Dataset, Options, Sizes, Splits
from engine.tasks.labelled import Labelled

if TYPE_CHECKING:
    import torch

Width = Annotated[int, msgspec.Meta(ge=1, le=65536)]


class TabularData(ArrayData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    balanced: bool = False
    """Whether a rare label counts more in the loss: for binary labels as many times as negatives outnumber
    positives in the training rows, for classes by the inverse of how frequent they are."""


class TabularModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    hidden: tuple[Width, ...] = (64, 64)
    """Widths of the layers between the features and the labels; none makes it a linear model."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Share of the features that a training step drops behind each of these layers."""


class Tabular(Labelled):
    """Tells labels of rows of numbers."""

    data_options: ClassVar[type[Options]] = TabularData
    model_options: ClassVar[type[Options]] = TabularModel

    def __init__(self) -> None:
        super().__init__()
        self._moments: arrays.Moments | None = None

    def sizes(self, data: SourceOptions, seed: int) -> Sizes:
        """As the files say."""
        if not data.source.endswith(arrays.SUFFIX):
            raise Refused([Problem("data.source", "name the .npy file of the features, [rows, features]")])
        return super().sizes(data, seed)

    def load(self, data: TabularData, seed: int) -> Splits:
        """Features stay in their file; they are read once for their mean and spread."""
        splits = arrays.load(data, seed)
        train = splits.train
        assert isinstance(train, arrays.Arrays)
        self._learn_names(arrays.renamed(data), train.rows)
        self._moments = train.moments()
        if data.balanced:
            self._balance(train.rows, train.which)
        return splits

    def model(self, options: TabularModel, data: TabularData) -> torch.nn.Module:
        """The net; after `load`, it knows the features' mean and spread."""
        from engine.models.mlp import Mlp

        if not self._names:
            self._learn_names(arrays.renamed(data), None)
        net = Mlp(_num_features(data.source), options.hidden, len(self._names), options.dropout)
        if self._moments is not None:
            net.standardise(*self._moments)
        return net

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` [examples, labels]."""
        return {"logits": model(batch["features"])}

    def inputs(self, data: TabularData, source: Path) -> Dataset:
        """Rows of a `.npy` file with as many features as those that train."""
        found, taken = arrays.inputs(data, source, self.classes), _num_features(data.source)
        if found.num_features != taken:
            raise ValueError(f"{source} holds {found.num_features:,} features a row, and {data.source} holds {taken:,}")
        return found


def _num_features(source: str) -> int:
    return math.prod(arrays.mapped(source).shape[1:])

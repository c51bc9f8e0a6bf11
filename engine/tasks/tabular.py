"""Labels of rows of numbers: one class, several labels of which each is there or not, or numbers. For a user's table
(CSV, TSV, Parquet) or `.npy` files.

The network standardises the features by the mean and the spread of the training rows, which its weights carry. The
top of this module is torch-free.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from engine.data import arrays, file_readers, sources
from engine.data.file_readers import SUFFIXES
from engine.data.options import ArrayData, SourceOptions
from engine.errors import Problem, Refused
from engine.task import Dataset, Options, Sizes, Splits
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
        self._features: tuple[str, ...] = ()
        """Columns of the table that train."""

    def sizes(self, data: SourceOptions, seed: int) -> Sizes:
        """As the files say."""
        assert isinstance(data, TabularData)
        if not data.source.lower().endswith((file_readers.SUFFIX, *SUFFIXES)):
            message = f"name a table ({', '.join(SUFFIXES)}) or the .npy file of the features, [rows, features]"
            raise Refused([Problem("data.source", message)])
        wrong = ("features",) if data.is_array else ("labels_file", "groups_file")
        where = "a .npy file has no columns" if data.is_array else "a table has columns: name them by label and group"
        if found := [Problem(f"data.{key}", f"{where}; remove it") for key in wrong if getattr(data, key)]:
            raise Refused(found)
        return super().sizes(data, seed)

    def load(self, data: TabularData, seed: int) -> Splits:
        """Those of an array stay in their file; they are read once for their mean and spread."""
        splits = arrays.load(data, seed)
        train = splits.train
        assert isinstance(train, arrays.Arrays)
        self._learn_names(file_readers.renamed(data), train.rows)
        self._learn_targets(train.rows, train.which)
        self._features = train.rows.feature_names
        self._moments = train.moments()
        if data.balanced:
            self._balance(train.rows, train.which)
        return splits

    def model(self, options: TabularModel, data: TabularData) -> torch.nn.Module:
        """The net; after `load`, it knows the features' mean and spread."""
        from engine.models.mlp import Mlp

        if not self._names:
            self._learn_names(file_readers.renamed(data), None)
        net = Mlp(self._num_features(data), options.hidden, len(self._names), options.dropout)
        if self._moments is not None:
            net.standardise(*self._moments)
        return self._finished(net)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` [examples, labels]; of numbers `values`, with their `spread` in training."""
        return self._answer(model, model(batch["features"]))

    def inputs(self, data: TabularData, source: Path) -> Dataset:
        """Rows of a table with the columns that train, in any order, or of a `.npy` file with as many features."""
        if not data.is_array and not str(source).endswith(file_readers.SUFFIX):
            return arrays.inputs(self._with_features(data), source, self.classes)
        found, taken = arrays.inputs(data, source, self.classes), self._num_features(data)
        if found.num_features != taken:
            raise ValueError(f"{source} holds {found.num_features:,} features a row, and {data.source} holds {taken:,}")
        return found

    def test_split(self, data: TabularData) -> Dataset:
        """Rows of the table that say `test`."""
        return arrays.load_test(data if data.is_array else self._with_features(data), self.classes)

    def _num_features(self, data: TabularData) -> int:
        if data.is_array:
            return math.prod(file_readers.mapped(data.source).shape[1:])
        return len(self._with_features(data).features)

    def _with_features(self, data: TabularData) -> TabularData:
        """The options with the columns that train: named in them, else found in the table that trained."""
        if not self._features:
            self._features = data.features or sources.open_rows(data).feature_names
        return msgspec.structs.replace(data, features=self._features)

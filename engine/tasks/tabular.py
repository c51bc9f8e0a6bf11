"""Task `tabular`: predicts one class, several binary labels, or numbers from the feature rows of a user's table or
`.npy`.

The network standardises the features by their mean and standard deviation in the training rows, which are saved with
the weights. Importing this module does not import torch.
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
    """Whether a rare label counts more in the loss: for binary labels by the ratio of negatives to positives in the
    training rows, for classes by the inverse of their frequency."""


class TabularModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    hidden: tuple[Width, ...] = (64, 64)
    """Widths of the hidden layers; none makes it a linear model."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Share of features dropped after each hidden layer in training."""


class Tabular(Labelled):
    """Predicts the labels of feature rows."""

    data_options: ClassVar[type[Options]] = TabularData
    model_options: ClassVar[type[Options]] = TabularModel

    def __init__(self) -> None:
        super().__init__()
        self._moments: arrays.Moments | None = None
        self._features: tuple[str, ...] = ()
        """Feature columns of the table."""

    def sizes(self, data: SourceOptions, seed: int) -> Sizes:
        """Sizes of the splits. Raises `Refused` if an option does not fit the source."""
        assert isinstance(data, TabularData)
        if not data.source.lower().endswith((file_readers.SUFFIX, *SUFFIXES)):
            message = f"name a table ({', '.join(SUFFIXES)}) or a .npy file of features, [rows, features]"
            raise Refused.of("data.source", message)
        wrong = ("features",) if data.is_array else ("labels_file", "groups_file")
        where = "a .npy file has no columns" if data.is_array else "a table has columns: name them by label and group"
        if problems := [Problem(f"data.{key}", f"{where}; remove it") for key in wrong if getattr(data, key)]:
            raise Refused(problems)
        return super().sizes(data, seed)

    def load(self, data: TabularData, seed: int) -> Splits:
        """Features of a `.npy` file stay on disk; they are read once for their mean and standard deviation."""
        splits = arrays.load(data, seed)
        train = splits.train
        assert isinstance(train, arrays.Arrays)
        self._learn_names(file_readers.with_array_columns(data), train.rows)
        self._learn_targets(train.rows, train.which)
        self._features = train.rows.feature_names
        self._moments = train.moments()
        if data.balanced:
            self._balance(train.rows, train.which)
        return splits

    def model(self, options: TabularModel, data: TabularData) -> torch.nn.Module:
        """The network; after `load`, with the mean and standard deviation of the features."""
        from engine.models.mlp import Mlp

        if not self._names:
            self._learn_names(file_readers.with_array_columns(data), None)
        net = Mlp(self._num_features(data), options.hidden, len(self._names), options.dropout)
        if self._moments is not None:
            net.standardise(*self._moments)
        return self._finished(net)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` float32 [n, labels]; for numbers `values` [n, labels], in training with their `spread` [labels]."""
        return self._answer(model, model(batch["features"]))

    def inputs(self, data: TabularData, source: Path) -> Dataset:
        """Rows of a table with the feature columns, in any order, or of a `.npy` file with as many features."""
        if not data.is_array and not str(source).endswith(file_readers.SUFFIX):
            return arrays.inputs(self._with_features(data), source, self.classes)
        dataset, taken = arrays.inputs(data, source, self.classes), self._num_features(data)
        if dataset.num_features != taken:
            raise ValueError(f"{source} has {dataset.num_features:,} features per row, {data.source} has {taken:,}")
        return dataset

    def test_split(self, data: TabularData) -> Dataset:
        """The rows of the table with split `test`."""
        return arrays.load_test(data if data.is_array else self._with_features(data), self.classes)

    def _num_features(self, data: TabularData) -> int:
        if data.is_array:
            return math.prod(file_readers.map_array(data.source).shape[1:])
        return len(self._with_features(data).features)

    def _with_features(self, data: TabularData) -> TabularData:
        """The options with the feature columns: those named, else those of the training table."""
        if not self._features:
            self._features = data.features or sources.open_rows(data).feature_names
        return msgspec.structs.replace(data, features=self._features)

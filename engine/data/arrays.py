"""Datasets of feature rows: memory-mapped `.npy` files, or the feature columns of a table.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data import file_readers
from engine.data.options import ArrayData
from engine.data.rows import Ints, RowDataset, Rows
from engine.data.sources import open_inputs, open_test, split_rows
from engine.task import Splits

if TYPE_CHECKING:
    import torch

MOMENTS_ROWS = 4096
"""Rows held in memory at a time while the moments are computed."""


class Moments(NamedTuple):
    """Mean and standard deviation of each feature, float64 [features]."""

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]


def load(options: ArrayData, seed: int) -> Splits:
    """The training and validation splits. Raises as `engine.data.sources.open_rows` does."""
    parts = split_rows(options, seed)
    features = _features(options.source, parts.rows)
    return parts.splits(partial(Arrays, options.source, features, parts.rows), features=features)


def inputs(options: ArrayData, source: Path, classes: Sequence[str] | None = None) -> Arrays:
    """The rows of a user's table or `.npy` file for predictions. A `.npy` file is labelled by `labels_file`, unless
    that is empty."""
    return _all(str(source), open_inputs(options, source, classes))


def load_test(options: ArrayData, classes: Sequence[str] | None = None) -> Arrays:
    """The test split of a table. Raises `ValueError` if there is none."""
    return _all(options.source, open_test(options, classes))


def _all(source: str, rows: Rows) -> Arrays:
    return Arrays(source, _features(source, rows), rows, rows.every)


def _features(source: str, rows: Rows) -> npt.NDArray[Any]:
    return file_readers.map_array(source) if rows.features is None else rows.features


class Arrays(RowDataset):
    """A dataset of feature rows with their labels. A row with NaN or infinity is a bad example."""

    def __init__(self, source: str, features: npt.NDArray[Any], rows: Rows, which: Ints) -> None:
        """`which` selects the examples among `rows`; `source` names the file of the features in messages."""
        super().__init__(rows, which)
        self._source = source
        self._features = features
        # Rows of a `.npy` file are found by their number in the file; `rows.features` holds the usable rows only.
        numbers = rows.names.numbers if rows.features is None else None
        self._places = which if numbers is None else numbers[which]

    @property
    def num_features(self) -> int:
        return math.prod(self._features.shape[1:])

    def moments(self) -> Moments:
        """Mean and standard deviation over the rows without NaN or infinity. Reads the whole file once."""
        count, total, squares = 0, np.zeros(self.num_features), np.zeros(self.num_features)
        shift: npt.NDArray[np.float64] | None = None
        for first in range(0, len(self), MOMENTS_ROWS):
            part = _native(self._features[self._places[first : first + MOMENTS_ROWS]])
            values = part.reshape(len(part), -1).astype(np.float64)
            values = values[np.isfinite(values).all(axis=1)]
            if not len(values):
                continue
            # Shifted by the mean of the first part: squares of numbers far from 0 would leave no digits for the
            # deviation.
            shift = values.mean(axis=0) if shift is None else shift
            count += len(values)
            total += (values - shift).sum(axis=0)
            squares += ((values - shift) ** 2).sum(axis=0)
        if shift is None:
            return Moments(total, np.ones_like(total))
        return Moments(shift + total / count, np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0)))

    def fetch(self, indices: Ints) -> dict[str, torch.Tensor]:
        """`features` [n, ...], float32 or integer, and `label` if there are labels.

        Raises `BadExample` for a row with NaN or infinity.
        """
        import torch

        from engine.errors import BadExample

        values = _native(self._features[self._places[indices]])
        if values.dtype.kind == "f":
            wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
            if len(wrong):
                index = int(indices[wrong[0]])
                where = f"{self._source} row {int(self._places[index])}"
                raise BadExample(index, where, "the features hold NaN or infinity")
        return self._with_labels({"features": torch.from_numpy(values)}, indices)


def _native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values in a dtype that torch supports, in native byte order: floats become float32 (infinity if too large),
    unsigned integers wider than a byte int64."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values, dtype=np.float32)
    wide = kind == "u" and size > 1
    return np.ascontiguousarray(values, dtype=np.int64 if wide else values.dtype.newbyteorder("="))

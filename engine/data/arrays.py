"""Rows of numbers as a task's datasets: `.npy` files, mapped into memory so that only what is fetched is read from the
disk, or the columns of a table.

The top of this module is torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data import file_readers, sources
from engine.data.options import ArrayData
from engine.data.rows import Ints, Rows
from engine.data.sources import open_inputs, open_test, split_rows
from engine.task import Splits

if TYPE_CHECKING:
    import torch

MOMENTS_ROWS = 4096
"""Rows that are in memory at once while all are read."""


class Moments(NamedTuple):
    """Mean and standard deviation of each feature, float64 [features]."""

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]


def load(options: ArrayData, seed: int) -> Splits:
    """The splits of the options. Raises as `engine.data.sources.open_rows` does."""
    parts = split_rows(options, seed)
    features = _features(options.source, parts.rows)
    halves = [Arrays(options.source, features, parts.rows, rows) for rows in (parts.train, parts.valid)]
    of = sources.digests(parts, features=features)
    return Splits(halves[0], halves[1], parts.rows.dropped, parts.notes, of)


def inputs(options: ArrayData, source: Path, classes: Sequence[str] | None = None) -> Arrays:
    """The rows of a user's table or `.npy` file for predictions; those of an array with the labels in `labels_file`,
    which is theirs, if it is not empty."""
    return _all(str(source), open_inputs(options, source, classes))


def load_test(options: ArrayData, classes: Sequence[str] | None = None) -> Arrays:
    """The test split of a table. Raises `ValueError` where there is none."""
    return _all(options.source, open_test(options, classes))


def _all(source: str, rows: Rows) -> Arrays:
    return Arrays(source, _features(source, rows), rows, np.arange(len(rows), dtype=np.int64))


def _features(source: str, rows: Rows) -> npt.NDArray[Any]:
    return file_readers.mapped(source) if rows.features is None else rows.features


class Arrays:
    """Rows of numbers with their labels. A row that holds NaN or infinity is a bad example."""

    def __init__(self, source: str, features: npt.NDArray[Any], rows: Rows, which: Ints) -> None:
        """`which` of `rows` are the examples; `source` names the file of the features."""
        self.rows = rows
        """All rows, those of the other split too."""
        self.which = which
        """[examples] row of each example in `rows`."""
        self._source = source
        self._features = features
        # Of an array the rows that can be used are taken by their numbers in the file; of a table they are all there.
        numbers = rows.names.numbers if rows.features is None else None
        self._places = which if numbers is None else numbers[which]
        self._labels = None if rows.labels is None else rows.labels[which]

    def identities(self, indices: Ints) -> dict[str, npt.NDArray[Any]]:
        """Columns by which a user knows these examples again."""
        return self.rows.identities(self.which[indices])

    @property
    def num_features(self) -> int:
        """Numbers that a row holds."""
        return math.prod(self._features.shape[1:])

    def moments(self) -> Moments:
        """Of the examples in which every feature is a number, read once from the disk."""
        count, total, squares = 0, np.zeros(self.num_features), np.zeros(self.num_features)
        shift: npt.NDArray[np.float64] | None = None
        for first in range(0, len(self), MOMENTS_ROWS):
            part = _native(self._features[self._places[first : first + MOMENTS_ROWS]])
            values = part.reshape(len(part), -1).astype(np.float64)
            values = values[np.isfinite(values).all(axis=1)]
            if not len(values):
                continue
            # Around a first mean: squares of numbers far from 0 would leave no digits for the spread.
            shift = values.mean(axis=0) if shift is None else shift
            count += len(values)
            total += (values - shift).sum(axis=0)
            squares += ((values - shift) ** 2).sum(axis=0)
        if shift is None:
            return Moments(total, np.ones_like(total))
        return Moments(shift + total / count, np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0)))

    def __len__(self) -> int:
        return len(self._places)

    def fetch(self, indices: Ints) -> dict[str, torch.Tensor]:
        """`features` [n, ...] (float32, or integers as they are), `label` where there are labels."""
        import torch

        from engine.errors import BadExample

        values = _native(self._features[self._places[indices]])
        if values.dtype.kind == "f":
            wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
            if len(wrong):
                index = int(indices[wrong[0]])
                where = f"{self._source} row {int(self._places[index])}"
                raise BadExample(index, where, "the features hold NaN or infinity")
        tensors = {"features": torch.from_numpy(values)}
        if self._labels is not None:
            tensors["label"] = torch.from_numpy(self._labels[indices])
        return tensors


def _native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values in a type that torch has, whatever the byte order of the file: floats as float32, where one that is
    too large becomes infinity, and unsigned integers of more than a byte as int64."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values, dtype=np.float32)
    wide = kind == "u" and size > 1
    return np.ascontiguousarray(values, dtype=np.int64 if wide else values.dtype.newbyteorder("="))

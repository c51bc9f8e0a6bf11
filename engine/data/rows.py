"""The rows of a source in memory: `Raw` as read, `Rows` as checked, and the errors found in them. Must not import
torch.

`engine.data.file_readers` and `tfrecord` read a source into a `Raw`; `engine.data.validate` checks it and makes `Rows`.
Folds, datasets and predictions use `Rows` only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.errors import BadExample, BadSource

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int64]

TRAIN, VALID, TEST = ("train", "training"), ("valid", "val", "validation"), ("test",)
"""Spellings of each split, in a column or as the name of a folder."""


class Raw(NamedTuple):
    source: str
    """The file or folder as the user wrote it."""
    frame: pl.DataFrame
    """One row per example; every cell of a CSV is text."""
    names: Names
    folder: Path
    """Folder that paths are relative to."""
    paths: list[str] | None = None
    """File of each example, for a folder of images and TFRecord."""
    spans: Ints | None = None
    """[rows, 2] offset and size in bytes of the example in its file; None if it is the whole file."""
    bad: tuple[tuple[int, str, str], ...] = ()
    """Rows that could not be read: row, column, reason."""

    def take(self, which: Ints) -> Raw:
        """The rows `which`, in that order."""
        places = {int(row): place for place, row in enumerate(which)}
        return self._replace(
            frame=self.frame[which.tolist()],
            names=self.names.take(which),
            paths=None if self.paths is None else [self.paths[row] for row in which],
            spans=None if self.spans is None else self.spans[which],
            bad=tuple((places[row], column, why) for row, column, why in self.bad if row in places),
        )


@dataclass(frozen=True)
class Names:
    """How rows are called in messages."""

    source: str
    """The file or folder."""
    numbers: Ints | None = None
    """[rows] number of each row as the user counts: in a table the header is row 1."""
    unit: str = "row"
    """The word for a row: `row` or `record`."""
    sources: list[str] | None = None
    """File of each row, if there are several."""
    own: list[str] | None = None
    """Name of each row, if it is a file; replaces source and number."""

    def place(self, row: int, column: str = "") -> str:
        """Source, number and column, such as `train.csv row 17, column label`."""
        if self.own is not None:
            return self.own[row]
        number = int(self.numbers[row]) if self.numbers is not None else row
        called = "feature" if self.unit == "record" else "column"
        source = self.source if self.sources is None else self.sources[row]
        return f"{source} {self.unit} {number}" + (f", {called} {column}" if column else "")

    def take(self, rows: Ints) -> Names:
        numbers = rows if self.numbers is None else self.numbers[rows]
        own = None if self.own is None else [self.own[row] for row in rows]
        sources = None if self.sources is None else [self.sources[row] for row in rows]
        return replace(self, numbers=numbers, own=own, sources=sources)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Checked examples, one per row."""

    names: Names
    count: int
    folder: str = ""
    """Folder that the paths in `files` begin with."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Paths by `image`, `mask`, `depth` and `depth_valid`, as far as the source has them; one per row."""
    columns: dict[str, str] = field(default_factory=dict)
    """Name of the column of each of `files`."""
    spans: Ints | None = None
    """[rows, 2] offset and size in bytes of the image in its file; None if it is the whole file."""
    texts: list[str] | None = None
    features: npt.NDArray[np.float32] | None = None
    """[rows, features], if the source is a table of features."""
    feature_names: tuple[str, ...] = ()
    labels: npt.NDArray[Any] | None = None
    """int64 [rows] classes, or float32 [rows, columns]."""
    label_names: tuple[str, ...] = ()
    """Names of the classes, or of the label columns."""
    ids: list[str] | None = None
    groups: Ints | None = None
    """[rows] number of the group, an index into `group_names`."""
    group_names: tuple[str, ...] = ()
    folds: Ints | None = None
    """[rows] number of the fold, if the source has a fold column."""
    split: npt.NDArray[np.bool_] | None = None
    """[rows] whether the row validates, if the source has its own split."""
    dropped: tuple[BadExample, ...] = ()
    """Rows that were left out because they cannot be used."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.count

    @property
    def every(self) -> Ints:
        """[rows] the numbers of all rows."""
        return np.arange(self.count, dtype=np.int64)

    def identities(self, which: Ints) -> dict[str, npt.NDArray[Any]]:
        """Columns [len(which)] that identify these rows to the user, by name: `id` if there are ids, `file` and, for
        TFRecord, `record`; else `row`, counted as in messages."""
        columns: dict[str, npt.NDArray[Any]] = {}
        if self.ids is not None:
            columns["id"] = np.array([self.ids[row] for row in which], dtype=str)
        if "image" in self.files:
            start = os.path.join(self.folder, "")
            columns["file"] = np.array([self.files["image"][row].removeprefix(start) for row in which], dtype=str)
        if self.names.numbers is not None and (self.spans is not None or not columns):
            columns[self.names.unit] = self.names.numbers[which]
        return columns


class RowDataset:
    """Base of the datasets of some rows of a source, which the subclasses fetch."""

    def __init__(self, rows: Rows, which: Ints) -> None:
        self.rows = rows
        """All rows, including those of the other split."""
        self.which = which
        """[examples] row of each example in `rows`."""
        self._labels: npt.NDArray[Any] | None = None if rows.labels is None else rows.labels[which]

    def __len__(self) -> int:
        return len(self.which)

    def identities(self, indices: Ints) -> dict[str, npt.NDArray[Any]]:
        """Columns [len(indices)] that identify these examples to the user, by name."""
        return self.rows.identities(self.which[indices])

    def _with_labels(self, tensors: dict[str, torch.Tensor], indices: Ints) -> dict[str, torch.Tensor]:
        """The tensors and, if there are labels, `label`: int64 [n], or float32 [n, columns]."""
        import torch

        return tensors if self._labels is None else {**tensors, "label": torch.from_numpy(self._labels[indices])}


MOST_SHOWN = 10


class RowErrors:
    """Collects the bad rows of one source; for each row the first reason counts."""

    def __init__(self, names: Names, limit: int) -> None:
        """At most `limit` rows may be left out."""
        self._names = names
        self._limit = limit
        self._first_errors: dict[int, tuple[str, str]] = {}

    def add(self, rows: Iterable[int], column: str, why: str | list[str]) -> None:
        """Adds bad rows with one reason for all, or one reason each."""
        for place, row in enumerate(rows):
            self._first_errors.setdefault(int(row), (column, why if isinstance(why, str) else why[place]))

    def usable(self, num_rows: int) -> npt.NDArray[np.bool_]:
        """[num_rows] whether each row has no error so far."""
        usable = np.ones(num_rows, dtype=bool)
        usable[list(self._first_errors)] = False
        return usable

    def settle(self) -> tuple[BadExample, ...]:
        """The rows to leave out. Raises `BadSource`, a `ValueError`, if there are more than the limit."""
        bad = [
            BadExample(row, self._names.place(row, column), why)
            for row, (column, why) in sorted(self._first_errors.items())
        ]
        if len(bad) > self._limit:
            allowed = f"; max_bad_rows = {self._limit} may be left out" if self._limit else ""
            raise BadSource(join_problems([str(example) for example in bad]) + allowed)
        return tuple(bad)


def join_problems(problems: list[str]) -> str:
    """Up to ten problems in one line, and the number of the others."""
    more = len(problems) - MOST_SHOWN
    return "; ".join(problems[:MOST_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")


def refuse(*problems: str) -> NoReturn:
    """Raises `BadSource`, a `ValueError`, with the problems."""
    raise BadSource(join_problems(list(problems)))

"""Labels of a source as numbers, each checked on the host: a device clamps a class out of range without a word.

Must not import torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.options import SourceOptions
from engine.data.row_errors import RowErrors, refuse
from engine.data.rows import Raw
from engine.data.table import texts

EMPTY = "the cell is empty"
MOST_CLASSES = 1_000_000


class Labels(NamedTuple):
    """Labels of every row; those of a bad row are 0."""

    values: npt.NDArray[Any]
    """int64 [rows] classes, or float32 [rows, columns]."""
    names: tuple[str, ...]
    """Names of the classes, or of the columns."""
    notes: tuple[str, ...] = ()


def read_labels(raw: Raw, options: SourceOptions, findings: RowErrors) -> Labels:
    """The labels that the options name. Raises `ValueError` where a column is missing."""
    names = [options.label] if isinstance(options.label, str) else options.label
    if not names:
        refuse("data.label: names no column")
    if options.label_kind == "class":
        if len(names) != 1:
            refuse(f'data.label: label_kind = "class" takes one column, and {len(names)} are named')
        return _classes(raw, names[0], options, findings)
    columns = [_numbers(raw, name, options.label_kind, findings) for name in names]
    return Labels(np.stack(columns, axis=1), tuple(names))


def _numbers(raw: Raw, name: str, kind: str, findings: RowErrors) -> npt.NDArray[np.float32]:
    cells = texts(raw, name, "label") if raw.frame.schema.get(name) == pl.String else _column(raw, name)
    values = cells.cast(pl.Float64, strict=False).to_numpy().astype(np.float64)
    empty = cells.is_null().to_numpy()
    findings.add(np.flatnonzero(empty), name, EMPTY)
    with np.errstate(over="ignore"):
        right = np.isin(values, (0.0, 1.0)) if kind == "binary" else np.isfinite(values.astype(np.float32))
    wrong = np.flatnonzero(~right & ~empty)
    need = "is not 0 or 1" if kind == "binary" else "is no finite number"
    findings.add(wrong, name, [f"{cells[int(row)]} {need}" for row in wrong])
    return np.where(right & ~empty, values, 0).astype(np.float32)


def _column(raw: Raw, name: str) -> pl.Series:
    texts(raw, name, "label")  # Raises where it is missing.
    return raw.frame[name]


def _classes(raw: Raw, name: str, options: SourceOptions, findings: RowErrors) -> Labels:
    cells = texts(raw, name, "label")
    findings.add(np.flatnonzero(cells.is_null().to_numpy()), name, EMPTY)
    if options.classes:
        return _named(cells, name, tuple(options.classes), findings)
    numbers = cells.cast(pl.Float64, strict=False)
    # One slip among numbers is a slip, not a new class.
    if options.num_classes or 2 * (len(numbers) - numbers.null_count()) > len(cells) - cells.null_count():
        return _numbered(cells, numbers.to_numpy(), name, options.num_classes, findings)
    return _named(cells, name, tuple(sorted(cells.drop_nulls().unique().to_list())), findings)


def _named(cells: pl.Series, name: str, classes: tuple[str, ...], findings: RowErrors) -> Labels:
    if len(set(classes)) < len(classes):
        refuse("data.classes: a name stands there twice")
    keys = pl.Series(list(classes), dtype=pl.String)
    found = cells.replace_strict(keys, pl.Series(range(len(classes)), dtype=pl.Int64), default=-1)
    values = found.fill_null(-1).to_numpy().astype(np.int64)
    wrong = np.flatnonzero((values < 0) & cells.is_not_null().to_numpy())
    known = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    findings.add(wrong, name, [f'"{cells[int(row)]}" is not one of the classes {known}' for row in wrong])
    return Labels(np.maximum(values, 0), classes, _unused(values, classes))


def _numbered(
    cells: pl.Series, numbers: npt.NDArray[np.float64], name: str, num_classes: int, findings: RowErrors
) -> Labels:
    numbers = numbers.astype(np.float64)
    whole = np.isfinite(numbers) & (np.floor(numbers) == numbers)
    most = num_classes or int(min(np.max(numbers, where=whole, initial=0), MOST_CLASSES - 1)) + 1
    right = whole & (numbers >= 0) & (numbers < most)
    wrong = np.flatnonzero(~right & cells.is_not_null().to_numpy())
    need = f"a class from 0 to {most - 1}" if num_classes else "a class: whole numbers from 0 are"
    findings.add(wrong, name, [f"{cells[int(row)]} is not {need}" for row in wrong])
    values = np.where(right, numbers, 0).astype(np.int64)
    classes = tuple(str(number) for number in range(most))
    return Labels(values, classes, _unused(values[right], classes))


def _unused(values: npt.NDArray[np.int64], classes: tuple[str, ...]) -> tuple[str, ...]:
    """A note where a class never occurs."""
    counts = np.bincount(values[values >= 0], minlength=len(classes))
    missing = [classes[place] for place in np.flatnonzero(counts == 0)]
    if not missing or not len(values):
        return ()
    shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
    return (f"no row has the class {shown}",)

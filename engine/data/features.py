"""Columns of a table as numbers that a network takes: which they are, and each cell checked. Must not import torch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.labels import EMPTY
from engine.data.options import ArrayData
from engine.data.row_errors import RowErrors, refuse
from engine.data.rows import Raw
from engine.data.table import column, texts


def feature_columns(raw: Raw, options: ArrayData) -> tuple[str, ...]:
    """The columns that `data.features` names; else all that no other key names, in the order of the table.

    Raises `ValueError` where there are none.
    """
    if options.features:
        for name in options.features:
            column(raw, name, "features")
        return options.features
    labels = [options.label] if isinstance(options.label, str) else options.label
    others = {*labels, options.id, options.group, options.fold_column, options.split_column}
    found = tuple(name for name in raw.frame.columns if name not in others)
    if not found:
        refuse(f"{raw.source} has no column besides label, id, group, fold and split, so there are no features")
    return found


def read_features(raw: Raw, options: ArrayData, findings: RowErrors) -> npt.NDArray[np.float32]:
    """[rows, features] numbers of the table; 0 in a bad row. Every cell must hold a finite number."""
    names = feature_columns(raw, options)
    return np.stack([_numbers(raw, name, options, findings) for name in names], axis=1)


def _numbers(raw: Raw, name: str, options: ArrayData, findings: RowErrors) -> npt.NDArray[np.float32]:
    cells = raw.frame[name] if raw.frame.schema[name].is_numeric() else texts(raw, name, "features")
    if raw.frame.schema[name] == pl.Boolean:
        cells = raw.frame[name].cast(pl.Float64)
    numbers = cells.cast(pl.Float64, strict=False)
    if not options.features and numbers.null_count() == len(numbers) > cells.null_count():
        message = f'{raw.source}: the column "{name}" holds text, not numbers'
        refuse(f"{message}; name the columns of numbers under data.features")
    empty = cells.is_null().to_numpy()
    with np.errstate(over="ignore"):
        values = numbers.to_numpy().astype(np.float64).astype(np.float32)
    findings.add(np.flatnonzero(empty), name, EMPTY)
    wrong = np.flatnonzero(~np.isfinite(values) & ~empty)
    findings.add(wrong, name, [f"{cells[int(row)]} is not a finite number" for row in wrong])
    return np.where(np.isfinite(values), values, 0).astype(np.float32)

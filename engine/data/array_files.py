"""Reads `.npy` files: features, labels and groups, mapped into memory. Must not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.options import ArrayData
from engine.data.place import located
from engine.data.row_errors import refuse
from engine.data.rows import Names, Raw

GROUP = "group"
SUFFIX = ".npy"


def read_arrays(options: ArrayData) -> Raw:
    """The labels and groups as columns, a row for each row of the features, counted from 0.

    Raises `ValueError` where the files do not fit each other, `OSError` where one cannot be read.
    """
    count = len(mapped(options.source))
    columns: dict[str, pl.Series] = {}
    if options.labels_file:
        labels = _fitting(options.labels_file, options.source, count)
        wide = labels.reshape(count, -1)
        for place, name in enumerate(label_columns(options, wide.shape[1])):
            columns[name] = pl.Series(name, np.ascontiguousarray(wide[:, place]))
    if options.groups_file:
        columns[GROUP] = pl.Series(GROUP, np.array(_fitting(options.groups_file, options.source, count)))
    numbers = np.arange(count, dtype=np.int64)
    frame = pl.DataFrame(columns) if columns else pl.DataFrame({"row": numbers})
    called = options.labels_file or options.source
    return Raw(called, frame, Names(called, numbers), Path(options.source).parent)


def renamed(options: ArrayData) -> ArrayData:
    """The options with the columns that `read_arrays` makes; those of a table as they are. Raises `ValueError` where
    labels are missing."""
    if not options.is_array:
        return options
    if not options.labels_file:
        refuse("data.labels_file: name the .npy file of the labels")
    labels = mapped(options.labels_file)
    names = label_columns(options, 1 if labels.ndim == 1 else int(np.prod(labels.shape[1:])))
    group = GROUP if options.groups_file else ""
    return msgspec.structs.replace(options, label=names if len(names) > 1 else names[0], group=group)


def label_columns(options: ArrayData, count: int) -> list[str]:
    """Names of the label columns: the user's where there are as many, else `label_0` onwards."""
    given = [options.label] if isinstance(options.label, str) else options.label
    return given if len(given) == count else [f"label_{place}" for place in range(count)]


def mapped(name: str) -> npt.NDArray[Any]:
    """The array in the file, mapped. Raises `ValueError` or `FileNotFoundError`."""
    path = Path(located(name)).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no such file; it is named from the folder the run is started in")
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        refuse(f"{name} cannot be read as .npy: {error}")
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "biuf":
        refuse(f"{name} must hold one array of numbers with a row for each example")
    return array


def _fitting(name: str, source: str, count: int) -> npt.NDArray[Any]:
    """The array in the file `name`, which must have as many rows as `source`."""
    array = mapped(name)
    if len(array) != count:
        refuse(f"{name} has {len(array):,} rows and {source} has {count:,}; each row needs its own")
    return array

"""Writes predictions row by row as CSV or JSON lines, or as raw arrays in `.npz`. A file appears whole or not at all.

Must not import torch.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from engine.errors import Problem, Refused
from tputui import csv_cells
from tputui.telemetry.atomic_write import becoming, open_new

STDOUT = "-"
WIDEST = 256
"""Maximum number of values per example in a row."""
EXAMPLE = "example"
"""The first column: the example's index in the input, from 0."""

Arrays = dict[str, npt.NDArray[Any]]


class PredictionWriter:
    """Writes rows of predictions to a file."""

    raw = False
    """Whether it takes raw predictions instead of readable columns."""

    def __init__(self, file: IO[bytes]) -> None:
        self.rows = 0
        self.columns: list[str] = []
        self._file = file

    def add(self, indices: npt.NDArray[np.int64], arrays: Arrays) -> None:
        """Writes the rows of a batch: [n] or [n, values] by name. Raises `Refused`."""
        flat = {EXAMPLE: indices, **_flat(arrays, len(indices))}
        if not self.columns:
            self.columns = list(flat)
            self._head()
        self._body([_cells(values) for values in flat.values()])
        self.rows += len(indices)

    def close(self) -> None:
        """Writes what is buffered."""

    def _head(self) -> None:
        """Writes what precedes the first row."""

    def _body(self, cells: list[list[Any]]) -> None:
        raise NotImplementedError


class CsvWriter(PredictionWriter):
    """A header, then one line per row. No text is a formula."""

    def _head(self) -> None:
        self._lines([self.columns])

    def _body(self, cells: list[list[Any]]) -> None:
        self._lines(list(zip(*cells, strict=True)))

    def _lines(self, rows: list[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(map(csv_cells.cells, rows))
        # A file name may be bytes that are not text.
        self._file.write(text.getvalue().encode("utf-8", "surrogateescape"))


class JsonWriter(PredictionWriter):
    """One JSON object per line; a float that is not finite is "NaN", "Infinity" or "-Infinity"."""

    def _body(self, cells: list[list[Any]]) -> None:
        for row in zip(*cells, strict=True):
            values = {name: _json_value(cell) for name, cell in zip(self.columns, row, strict=True)}
            self._file.write(json.dumps(values, allow_nan=False).encode() + b"\n")


class ArrayWriter(PredictionWriter):
    """Raw predictions by name, [n, ...]; held in memory until the end."""

    raw = True

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, indices: npt.NDArray[np.int64], arrays: Arrays) -> None:
        """Stores the arrays of a batch."""
        for name, values in {EXAMPLE: indices, **arrays}.items():
            self._parts.setdefault(name, []).append(values)
        self.columns = list(self._parts)
        self.rows += len(indices)

    def close(self) -> None:
        """Writes the file."""
        np.savez_compressed(self._file, **{name: np.concatenate(parts) for name, parts in self._parts.items()})  # type: ignore[arg-type]


FORMS: dict[str, type[PredictionWriter]] = {"csv": CsvWriter, "jsonl": JsonWriter, "npz": ArrayWriter}


@contextlib.contextmanager
def open_table(out: str, form: str) -> Iterator[PredictionWriter]:
    """Writes a table to `out`, which appears under its name when it is complete; `-` is standard output.

    Raises `Refused` if it cannot be written.
    """
    if out == STDOUT:
        # The file descriptor: Python's own stdout is redirected to keep prints out of the data.
        with os.fdopen(os.dup(1), "wb") as file:
            table = FORMS[form](file)
            yield table
            table.close()
        return
    path = Path(out)
    made: list[Path] = []
    try:
        with becoming(path) as temporary:
            made.append(temporary)
            with os.fdopen(open_new(temporary, os.O_WRONLY, only_owner=False), "wb") as file:
                table = FORMS[form](file)
                yield table
                table.close()
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        if error.filename is not None and Path(os.fsdecode(error.filename)) not in made:
            raise
        raise Refused([Problem("", f"{path}: cannot be written: {error.strerror}; choose another --out")]) from error


def _flat(arrays: Arrays, rows: int) -> Arrays:
    """One column per value; several values per example are numbered."""
    flat: Arrays = {}
    for name, values in arrays.items():
        if values.ndim == 0 or len(values) != rows:
            shape = list(values.shape)
            raise Refused([Problem("task", f'columns() returned "{name}" of shape {shape} for {rows} examples')])
        wide = values.reshape(rows, -1)
        if wide.shape[1] > WIDEST:
            message = f'"{name}" has {wide.shape[1]:,} values per example, too many for a row; use --out FILE.npz'
            raise Refused([Problem("", message)])
        if values.ndim == 1:
            flat[name] = values
        else:
            flat |= {f"{name}_{place}": wide[:, place] for place in range(wide.shape[1])}
    return flat


def _cells(values: npt.NDArray[Any]) -> list[Any]:
    """Values as they are written: a float with the fewest digits that give the same float again."""
    if values.dtype.kind == "f":
        return [float(str(value)) if np.isfinite(value) else value.item() for value in values]
    return list(values.tolist())


def _json_value(cell: Any) -> Any:
    if isinstance(cell, float) and not np.isfinite(cell):
        return "NaN" if np.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    return cell

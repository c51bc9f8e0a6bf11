"""A run as tables: CSV, JSON lines or Parquet files in a folder, with the manifest as JSON.

steps      metric, step, core, value, t
metrics    name, split, step, epoch, value, t, kind
epochs     epoch, step, t, train_s, valid_s, lr, best_so_far, then one column per metric and section
events     process, seq, kind, t, fields (JSON)
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from tputui import csv_cells
from tputui.exports.rows import EpochRow, EventRow, MetricRow, Row, StepRow
from tputui.telemetry.codec import spell_non_finite

TABLES: dict[type[Row], str] = {StepRow: "steps", MetricRow: "metrics", EpochRow: "epochs", EventRow: "events"}
_PARQUET_ROWS = 1 << 18
"""Rows held as Python objects before they become columns."""
_encode = msgspec.json.Encoder().encode


class MissingPackage(Exception):
    """A format needs a package that is not installed; the message names both."""


class TableWriter(Protocol):
    def add(self, row: Sequence[Any]) -> None: ...
    def close(self) -> None: ...


def write(folder: Path, form: str, rows: Iterator[Row]) -> dict[str, int]:
    """Writes all rows as tables of the form `csv`, `jsonl` or `parquet`; returns the number of rows by table.

    A table without rows has only its header. Raises `OSError`, and `MissingPackage` before anything is written.
    """
    make = _maker(form)
    epochs: list[EpochRow] = []
    # The columns of the epochs are known at the end.
    writers = {kind: make(folder / f"{name}.{form}", kind._fields) for kind, name in TABLES.items() if kind != EpochRow}
    counts = dict.fromkeys(TABLES.values(), 0)
    try:
        for row in rows:
            counts[TABLES[type(row)]] += 1
            if isinstance(row, EpochRow):
                epochs.append(row)
            elif isinstance(row, EventRow):
                writers[EventRow].add(row._replace(fields=_encode(row.fields).decode()))  # type: ignore[arg-type]
            else:
                writers[type(row)].add(row)
        names = list(dict.fromkeys(name for row in epochs for name in row.values))
        writers[EpochRow] = make(folder / f"epochs.{form}", [*EpochRow._fields[:-1], *names])
        for row in epochs:
            writers[EpochRow].add([*row[:-1], *map(row.values.get, names)])
    finally:
        for writer in writers.values():
            writer.close()
    return counts


def _maker(form: str) -> Callable[[Path, Sequence[str]], TableWriter]:
    if form == "parquet":
        try:
            import polars
        except ImportError:
            raise MissingPackage("Parquet files need polars; pip install polars") from None
        return lambda path, columns: _Parquet(path, columns, polars)
    return _Csv if form == "csv" else _JsonLines


class _Csv:
    """NaN and infinities as `nan`, `inf` and `-inf`, which readers of CSV know; unknown values are empty. No text is
    a formula."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file: IO[str] = path.open("w", newline="", encoding="utf-8", errors="backslashreplace")
        self._writer = csv.writer(self._file)
        self.add(columns)

    def add(self, row: Sequence[Any]) -> None:
        self._writer.writerow(csv_cells.cells(row))

    def close(self) -> None:
        self._file.close()


class _JsonLines:
    """One object a row; NaN and infinities are the strings of the journals, unknown values null."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = path.open("wb")
        self._columns = columns

    def add(self, row: Sequence[Any]) -> None:
        values = [_spelled(value) for value in row]
        self._file.write(_encode(dict(zip(self._columns, values, strict=True))) + b"\n")

    def close(self) -> None:
        self._file.close()


def _spelled(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else spell_non_finite(value)
    return value


class _Parquet:
    """Columns of the types that the rows have, written when the table is closed."""

    def __init__(self, path: Path, columns: Sequence[str], polars: Any) -> None:
        self._path = path
        self._columns = columns
        self._polars = polars
        self._rows: list[Sequence[Any]] = []
        self._frames: list[Any] = []

    def add(self, row: Sequence[Any]) -> None:
        self._rows.append(tuple(row))
        if len(self._rows) >= _PARQUET_ROWS:
            self._pack()

    def close(self) -> None:
        if self._rows or not self._frames:
            self._pack()
        self._polars.concat(self._frames, how="vertical_relaxed").write_parquet(self._path)

    def _pack(self) -> None:
        schema: Mapping[str, Any] = {name: _type_of(name, self._polars) for name in self._columns}
        self._frames.append(self._polars.DataFrame(self._rows, schema=schema, orient="row", strict=False))
        self._rows = []


def _type_of(column: str, polars: Any) -> Any:
    if column in ("step", "core", "seq"):
        return polars.Int64
    if column == "best_so_far":
        return polars.Boolean
    return polars.String if column in ("metric", "name", "split", "kind", "process", "fields") else polars.Float64

"""Parquet: a column per metric, or a row per value with the name of its metric, as Neptune's exporter writes it.

Needs `polars`, which is imported when the first parquet file is opened.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tputui.logs.damage_notes import DamageNotes, Region
from tputui.logs.growing import files_under, state_of
from tputui.logs.rows import (
    TAG_CHARS_MAX,
    LoggedValue,
    LogReader,
    RowContext,
    UnknownLog,
    context_of,
    epoch_number,
    number,
    step_number,
    unix_time_s,
)

SUFFIX = ".parquet"
MAGIC = b"PAR1"
COLUMNS_MAX = 10_000
CELLS_PER_READ = 200_000
CONFIG_MAX = 10_000
_NAME_COLUMNS = ("attribute_path", "metric", "metric_name", "tag", "key")
_VALUE_COLUMNS = ("float_value", "value", "metric_value")
_CONFIG_COLUMNS = ("string_value", "bool_value", "int_value")
_RUN_COLUMN = "run_id"


class _ParquetTable(NamedTuple):
    """A parquet file, and how it is read."""

    path: Path
    frame: Any
    """A `polars.LazyFrame`."""
    columns: list[str]
    context: RowContext
    name_column: str | None
    """Column with the names of metrics, if there is a row per value; None if there is a column per metric."""
    value_column: str
    num_rows: int
    first_row: int = 0
    """The first row that was not read yet."""


class _Failed(NamedTuple):
    """What could not be read of a file, which is read on once the file has changed."""

    state: tuple[int, ...]
    first_row: int
    """The first row that was not read."""
    region: Region


class ParquetReader(LogReader):
    """Reads a parquet file, or all parquet files under a folder."""

    form = "parquet file"

    def __init__(self, path: Path) -> None:
        """Raises `UnknownLog` if polars is missing, or if there is no parquet file."""
        self._polars = _polars(path)
        self._errors: tuple[type[BaseException], ...] = (Exception, self._polars.exceptions.PanicException)
        """What polars may raise for a damaged file."""
        self._path = path
        self._notes = DamageNotes()
        self._config: dict[str, Any] = {}
        self._seen_paths: set[Path] = set()
        self._failed: dict[Path, _Failed] = {}
        self._tables: list[_ParquetTable] = []
        self._runs: set[str] = set()
        self._add_files()
        self._num_runs = len(self._runs)

    @property
    def damage(self) -> list[str]:
        return self._notes.sentences

    @property
    def config(self) -> dict[str, Any]:
        """Of Neptune's exports: attributes that are not series, as far as the files were read."""
        return self._config

    def read(self) -> list[LoggedValue]:
        while True:
            while self._tables:
                table = self._tables[0]
                num_rows = max(1, CELLS_PER_READ // len(table.columns))
                rows = self._rows(table, num_rows)
                following = table._replace(first_row=table.first_row + num_rows)
                is_last = rows is None or following.first_row >= table.num_rows
                self._tables[:1] = [] if is_last else [following]
                values = [value for row in rows or () for value in self._values(table, row)]
                if values:
                    return values
            if not self._add_files():
                return []

    def close(self) -> None:
        self._tables.clear()

    def _add_files(self) -> bool:
        changed = [path for path, failed in self._failed.items() if _state(path) not in ((), failed.state)]
        new = [path for path in parquet_files(self._path) if path not in self._seen_paths]
        for path in changed + new:
            self._seen_paths.add(path)
            failed, state = self._failed.pop(path, None), _state(path)
            if failed is not None:
                self._notes.forget(failed.region)
            first_row = failed.first_row if failed is not None else 0
            try:
                self._tables.append(self._table(path)._replace(first_row=first_row))
            except self._errors as error:
                self._note(path, error, state, first_row)
        return bool(changed or new)

    def _table(self, path: Path) -> _ParquetTable:
        frame = self._polars.scan_parquet(path, glob=False)
        columns = list(frame.collect_schema().names())
        if not 0 < len(columns) <= COLUMNS_MAX:
            raise ValueError(f"it has {len(columns)} columns")
        num_rows = frame.select(self._polars.len()).collect().item()
        if _RUN_COLUMN in columns:
            runs = frame.select(self._polars.col(_RUN_COLUMN).unique()).collect()[_RUN_COLUMN].to_list()
            self._runs.update(str(run) for run in runs)
        value_column = next((name for name in _VALUE_COLUMNS if name in columns), "")
        name_column = next((name for name in _NAME_COLUMNS if name in columns), None) if value_column else None
        return _ParquetTable(path, frame, columns, context_of(tuple(columns)), name_column, value_column, num_rows)

    def _rows(self, table: _ParquetTable, num_rows: int) -> list[dict[str, Any]] | None:
        """The next rows of a table; None if they cannot be read."""
        state = _state(table.path)
        try:
            rows: list[dict[str, Any]] = table.frame.slice(table.first_row, num_rows).collect().to_dicts()
        except self._errors as error:
            self._note(table.path, error, state, table.first_row)
            return None
        return rows

    def _note(self, path: Path, error: BaseException, state: tuple[int, ...], first_row: int) -> None:
        reason = str(error).partition("\n")[0][:200]
        self._failed[path] = failed = _Failed(state, first_row, Region(path, 0, 0))
        self._notes.add(f"{path}: not readable as parquet: {reason}", failed.region)

    def _values(self, table: _ParquetTable, row: dict[str, Any]) -> Iterator[LoggedValue]:
        step_name, epoch_name, time_name = table.context
        step = step_number(_simple(row[step_name])) if step_name is not None else None
        epoch = epoch_number(_simple(row[epoch_name])) if epoch_name is not None else None
        t = unix_time_s(_simple(row[time_name])) if time_name is not None else None
        prefix = f"{row[_RUN_COLUMN]}/" if self._num_runs > 1 and _RUN_COLUMN in row else ""
        if table.name_column is None:
            for name, cell in row.items():
                value = number(_simple(cell)) if name not in table.context else None
                if value is not None and 0 < len(name) <= TAG_CHARS_MAX:
                    yield LoggedValue(prefix + name, step, t, value, epoch)
            return
        name = row[table.name_column]
        value = number(_simple(row[table.value_column]))
        if not isinstance(name, str) or not 0 < len(name) <= TAG_CHARS_MAX:
            return
        if step_name is not None and row[step_name] is None and table.name_column == _NAME_COLUMNS[0]:
            self._add_config(prefix + name, value, row)
        elif value is not None:
            yield LoggedValue(prefix + name, step, t, value, epoch)

    def _add_config(self, name: str, value: float | None, row: dict[str, Any]) -> None:
        """Keeps an attribute of Neptune that is not a series."""
        attribute = (
            value if value is not None else next((row.get(c) for c in _CONFIG_COLUMNS if row.get(c) is not None), None)
        )
        if type(attribute) in (float, int, str, bool) and len(self._config) < CONFIG_MAX:
            self._config[name] = attribute


def _polars(path: Path) -> Any:
    try:
        return importlib.import_module("polars")
    except ImportError:
        raise UnknownLog(f"{path}: reading parquet needs polars; install it with: pip install polars") from None


def _state(path: Path) -> tuple[int, ...]:
    try:
        return state_of(os.stat(path))
    except OSError:
        return ()


def parquet_files(path: Path) -> list[Path]:
    """The parquet files under a folder, or the file itself."""
    return [path] if path.is_file() else list(files_under(path, lambda name: name.endswith(SUFFIX)))


def _simple(cell: Any) -> Any:
    """A cell as a number or text: decimals are numbers, dates are Unix time, in UTC if they have no zone."""
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    if isinstance(cell, datetime):
        return (cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)).timestamp()
    return cell.isoformat() if isinstance(cell, date) else cell

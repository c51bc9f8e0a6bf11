"""Reads a table: CSV, TSV (either may be gzipped) or Parquet. Must not import torch.

Cells of a CSV are kept as text, so that `007` stays a name and a wrong cell can be quoted as it stands.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import numpy as np
import polars as pl

from engine.data.options import SourceOptions
from engine.data.row_errors import refuse
from engine.data.rows import Names, Raw

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".csv.gz", ".tsv.gz", ".txt.gz")
FIRST_ROW = 2
"""The header is row 1."""
NOT_UTF8 = "it is not UTF-8; save it as UTF-8"
IN_BRACES = re.compile(r"\{([^{}]*)\}")


def read_table(options: SourceOptions, source: str = "") -> Raw:
    """The table at `source`, or at the options' own source.

    Raises `ValueError` for what is no table, `FileNotFoundError` where there is no such file.
    """
    name = source or options.source
    path = Path(name).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no such file; data.source names it from the folder the run is started in")
    frame = _parquet(path, name) if path.suffix == ".parquet" else _text(path, name, options.separator)
    numbers = np.arange(FIRST_ROW, FIRST_ROW + frame.height, dtype=np.int64)
    return Raw(name, frame, Names(name, numbers), path.parent)


def column(raw: Raw, name: str, key: str) -> pl.Series:
    """The column `name`, which the user wrote under `key`. Raises `ValueError` with the nearest name."""
    if name not in raw.frame.columns:
        what = "feature" if raw.names.unit == "record" else "column"
        near = difflib.get_close_matches(name, raw.frame.columns, n=1, cutoff=0.5)
        columns = ", ".join(raw.frame.columns[:20]) + (", ..." if raw.frame.width > 20 else "")
        hint = f'did you mean "{near[0]}"?' if near else f"its {what}s: {columns}"
        refuse(f'{raw.source} has no {what} "{name}" (data.{key}); {hint}')
    if f"{name}_duplicated_0" in raw.frame.columns:
        refuse(f'{raw.source} has two columns "{name}" (data.{key}); rename one of them')
    return raw.frame[name]


def texts(raw: Raw, name: str, key: str) -> pl.Series:
    """A column as text without blanks around it; an empty cell is null."""
    series = column(raw, name, key)
    if series.dtype.is_float():  # Numbers with gaps are read as floats; 7.0 is called 7 in a path.
        whole = series.cast(pl.Int64, strict=False)
        if (whole.cast(pl.Float64) == series.cast(pl.Float64)).fill_null(True).all():
            series = whole
    if series.dtype == pl.Binary:
        series = pl.Series(name, [None if cell is None else cell.decode("utf-8", "replace") for cell in series])
    if series.dtype.is_nested():
        refuse(f'{raw.source}: the column "{name}" (data.{key}) holds {series.dtype}, not text or numbers')
    stripped = series.cast(pl.String, strict=False).str.strip_chars()
    return stripped.replace("", None)


def filled(raw: Raw, pattern: str, key: str) -> tuple[pl.Series, str]:
    """Text that a column holds, or that a pattern such as `images/{id}.jpg` makes; and the columns it comes from.

    Null where a cell is empty.
    """
    names = IN_BRACES.findall(pattern)
    if not names:
        return texts(raw, pattern, key), pattern
    cells = pl.DataFrame([texts(raw, name, key).alias(str(place)) for place, name in enumerate(names)])
    pieces = _pieces(IN_BRACES.split(pattern)[::2], len(names))
    made = cells.select(pl.concat_str(pieces, ignore_nulls=False)).to_series()
    return made, ", ".join(dict.fromkeys(names))


def _pieces(between: list[str], num_cells: int) -> list[pl.Expr]:
    pieces = [pl.lit(between[0])]
    for place in range(num_cells):
        pieces += [pl.col(str(place)), pl.lit(between[place + 1])]
    return pieces


def _text(path: Path, name: str, separator: str) -> pl.DataFrame:
    by_name = "\t" if ".tsv" in path.name else ","
    if len((separator or by_name).encode()) != 1:
        refuse(f"data.separator: {separator!r} must be one character, such as ;")
    try:
        frame = pl.read_csv(path, separator=separator or by_name, infer_schema=False)
    except pl.exceptions.NoDataError:
        refuse(f"{name} is empty; its first row must name the columns")
    except pl.exceptions.PolarsError as error:
        refuse(f"{name} cannot be read as a table: {_reason(str(error))}")
    _check_header(frame.columns, name, separator)
    stripped = [column.strip() for column in frame.columns]
    return _without_blank_end(frame.rename(dict(zip(frame.columns, stripped, strict=True))))


def _check_header(columns: list[str], name: str, separator: str) -> None:
    """Refuses what reads as a table and is none as it was meant."""
    if any("\0" in column or "\ufffd" in column for column in columns):
        refuse(f"{name} cannot be read as a table: {NOT_UTF8}")
    if any("\r" in column for column in columns):
        refuse(f"{name} ends its lines with a carriage return alone; save it with the line ends of Unix or Windows")
    if len({column.strip() for column in columns}) < len(columns):
        refuse(f"{name} has two columns of one name: {', '.join(columns[:20])}")
    if len(columns) == 1 and not separator:
        for found, written in ((";", ";"), ("\t", "\\t"), ("|", "|")):
            if found in columns[0]:
                refuse(f'{name} seems to have "{written}" between its cells; write data.separator = "{written}"')


def _reason(error: str) -> str:
    if "more fields" in error:
        return "a row has more cells than the header; put a text that holds the separator in double quotes"
    if "utf-8" in error:
        return NOT_UTF8
    return error.strip().splitlines()[0]


def _parquet(path: Path, name: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        refuse(f"{name} cannot be read as Parquet: {str(error).strip().splitlines()[0]}")


def _without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Blank lines at the end of a file are no rows."""
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    end = frame.height
    while end and blank[end - 1]:
        end -= 1
    return frame.head(end)

"""Reads source files into `Raw` rows: tables (CSV, TSV, Parquet), folders of images, and `.npy` files. Without torch.

Cells of a CSV stay text, so that `007` stays a name and messages quote a wrong cell as it is in the file.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.options import ArrayData, SourceOptions
from engine.data.rows import TEST, TRAIN, VALID, Names, Raw, refuse
from tputui.engine_api import DATA_SET_SOURCE, data_folder, expanded

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".csv.gz", ".tsv.gz", ".txt.gz")
FIRST_ROW = 2
"""The header is row 1."""
NOT_UTF8 = "it is not UTF-8; save it as UTF-8"
IN_BRACES = re.compile(r"\{([^{}]*)\}")


def read_table(options: SourceOptions, source: str = "") -> Raw:
    """The table at `source`, by default the options' own source.

    Raises `ValueError` if the file is not a table, `FileNotFoundError` if there is no such file.
    """
    name = source or options.source
    path = expanded(name)
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no such file; data.source names it from the folder the run is started in")
    frame = _parquet(path, name) if path.suffix == ".parquet" else _text(path, name, options.separator)
    numbers = np.arange(FIRST_ROW, FIRST_ROW + frame.height, dtype=np.int64)
    return Raw(name, frame, Names(name, numbers), path.parent)


def column(raw: Raw, name: str, key: str) -> pl.Series:
    """The column `name`, which the user set as `data.<key>`. Raises `ValueError` with the closest name."""
    if name not in raw.frame.columns:
        noun = "feature" if raw.names.unit == "record" else "column"
        near = difflib.get_close_matches(name, raw.frame.columns, n=1, cutoff=0.5)
        columns = ", ".join(raw.frame.columns[:20]) + (", ..." if raw.frame.width > 20 else "")
        hint = f'did you mean "{near[0]}"?' if near else f"its {noun}s: {columns}"
        if all(_is_number(header) for header in raw.frame.columns):
            hint = f"its first row, {columns}, is taken as the names of the columns; add a row with the names"
        refuse(f'{raw.source} has no {noun} "{name}" (data.{key}); {hint}')
    if f"{name}_duplicated_0" in raw.frame.columns:
        refuse(f'{raw.source} has two columns "{name}" (data.{key}); rename one of them')
    return raw.frame[name]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def texts(raw: Raw, name: str, key: str) -> pl.Series:
    """A column as stripped text; an empty cell is null."""
    series = column(raw, name, key)
    if series.dtype.is_float():  # Polars reads integers with gaps as floats; in a path, 7.0 is 7.
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
    """The text of a column, or of a pattern such as `images/{id}.jpg`, per row; and the names of the columns it uses.

    Null if a cell is empty.
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
    """Refuses files that can be parsed as a table but are probably in another format."""
    if any("\0" in column or "\ufffd" in column for column in columns):
        refuse(f"{name} cannot be read as a table: {NOT_UTF8}")
    if any("\r" in column for column in columns):
        refuse(f"{name} has carriage returns as line ends; save it with Unix or Windows line ends")
    if len({column.strip() for column in columns}) < len(columns):
        refuse(f"{name} has two columns of the same name: {', '.join(columns[:20])}")
    if len(columns) == 1 and not separator:
        for sign, written in ((";", ";"), ("\t", "\\t"), ("|", "|")):
            if sign in columns[0]:
                refuse(f'{name} seems to be separated by "{written}"; set data.separator = "{written}"')


def _reason(error: str) -> str:
    if "more fields" in error:
        return "a row has more cells than the header; quote text that contains the separator"
    if "utf-8" in error:
        return NOT_UTF8
    return error.strip().splitlines()[0]


def _parquet(path: Path, name: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        refuse(f"{name} cannot be read as Parquet: {str(error).strip().splitlines()[0]}")


def _without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    end = frame.height
    while end and blank[end - 1]:
        end -= 1
    return frame.head(end)


SCHEME = "set:"


def source_path(source: str) -> str:
    """The path of a source; `set:NAME/FILE` is a file of a fetched data set. Raises `ValueError` if the set was not
    fetched."""
    if not source.startswith(SCHEME):
        return source
    name, _, file = source.removeprefix(SCHEME).partition("/")
    try:
        folder = data_folder(os.environ) / name
    except OSError as error:
        refuse(f"data.source: {error.strerror}")
    try:
        is_fetched = (folder / DATA_SET_SOURCE).read_text().startswith(f"set: {name},")
    except (OSError, UnicodeDecodeError):
        is_fetched = False
    if not is_fetched:
        refuse(f"data.source: the data set {name} was not fetched; run `tputui data fetch {name}`")
    return str(folder / file)


IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm")
SPLITS = TRAIN + VALID + TEST
FOLDER_LABEL, FOLDER_SPLIT = "folder", "split"
"""Columns made from the folder names: the class and the split."""


def read_folders(options: SourceOptions) -> Raw:
    """The images of a source with one folder per class, sorted by path, with the columns `folder` and `split`.

        train/cat/1.png  train/dog/2.png  valid/cat/3.png        or        cat/1.png  dog/2.png

    Raises `ValueError` if there are no images, `FileNotFoundError` if there is no such folder.
    """
    root = _root(options.source)
    parts = [name for name in _folders(root) if name.lower() in SPLITS]
    classes = [(split, name) for split in parts or [""] for name in _folders(root / split)]
    rows = [(split, name, path) for split, name in classes for path in _images(root / split / name)]
    if not rows:
        refuse(f"{options.source} has no folders of images named by class, such as {options.source}/cat/1.png")
    frame = pl.DataFrame({FOLDER_LABEL: [name for _, name, _ in rows], FOLDER_SPLIT: [split for split, _, _ in rows]})
    return _raw(options.source, root, frame, [path for _, _, path in rows])


def has_splits(source: str) -> bool:
    """Whether the folder has subfolders such as `train` and `valid`."""
    return any(name.lower() in SPLITS for name in _folders(_root(source)))


def read_images(source: str, classes: Collection[str] = ()) -> Raw:
    """Every image below a folder, or one image file, sorted by path. Raises as `read_folders` does.

    The column `folder` is the class of each image in a folder named after one of the `classes`, else empty.
    """
    path = expanded(source)
    if path.is_file():
        return _raw(source, path.parent, pl.DataFrame({FOLDER_LABEL: [""]}), [str(path)])
    paths = _images(_root(source))
    if not paths:
        refuse(f"{source} has no images; supported are {', '.join(IMAGES)}")
    labels = [_class_of(Path(image).relative_to(path).parts, classes) for image in paths]
    return _raw(source, path, pl.DataFrame({FOLDER_LABEL: labels}), paths)


def test_folder(source: str) -> Path | None:
    """The subfolder of the test split, if there is one."""
    root = _root(source)
    return next((root / name for name in _folders(root) if name.lower() in TEST), None)


def _class_of(parts: tuple[str, ...], classes: Collection[str]) -> str:
    """The class given by the folders of an image's path, with or without a folder for the split; else empty."""
    folder = parts[1] if len(parts) > 2 and parts[0].lower() in SPLITS and parts[0] not in classes else parts[0]
    return folder if len(parts) > 1 and folder in classes else ""


def _raw(source: str, root: Path, frame: pl.DataFrame, paths: list[str]) -> Raw:
    return Raw(source, frame, Names(source, own=paths), root, paths)


def _root(source: str) -> Path:
    root = expanded(source)
    if not root.is_dir():
        raise FileNotFoundError(f"{source}: no such folder; data.source names it from the folder the run is started in")
    return root


def _folders(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _images(root: Path) -> list[str]:
    paths = [
        os.path.join(parent, name)
        for parent, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.lower().endswith(IMAGES) and not name.startswith(".")
    ]
    return sorted(paths)


GROUP = "group"
SUFFIX = ".npy"


def read_arrays(options: ArrayData) -> Raw:
    """The labels and groups of a `.npy` source as columns, with one row per row of the features, counted from 0.

    Raises `ValueError` if the files have different lengths, `OSError` if one cannot be read.
    """
    count = len(map_array(options.source))
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


def with_array_columns(options: ArrayData) -> ArrayData:
    """The options with the column names that `read_arrays` makes; unchanged for a table. Raises `ValueError` if
    `labels_file` is not set."""
    if not options.is_array:
        return options
    if not options.labels_file:
        refuse("data.labels_file: name the .npy file of the labels")
    labels = map_array(options.labels_file)
    names = label_columns(options, 1 if labels.ndim == 1 else int(np.prod(labels.shape[1:])))
    group = GROUP if options.groups_file else ""
    return msgspec.structs.replace(options, label=names if len(names) > 1 else names[0], group=group)


def label_columns(options: ArrayData, count: int) -> list[str]:
    """Names of the label columns: the user's names if there are `count` of them, else `label_0` onwards."""
    given = [options.label] if isinstance(options.label, str) else options.label
    return given if len(given) == count else [f"label_{place}" for place in range(count)]


def map_array(name: str) -> npt.NDArray[Any]:
    """The memory-mapped array [rows, ...] of a `.npy` file. Raises `ValueError` or `FileNotFoundError`."""
    path = expanded(source_path(name))
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no such file; it is named from the folder the run is started in")
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        refuse(f"{name} cannot be read as .npy: {error}")
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "biuf":
        refuse(f"{name} must hold one numeric array with one row per example")
    return array


def _fitting(name: str, source: str, count: int) -> npt.NDArray[Any]:
    """The array in the file `name`, which must have `count` rows, as `source` has."""
    array = map_array(name)
    if len(array) != count:
        refuse(f"{name} has {len(array):,} rows and {source} has {count:,}; the numbers of rows must be equal")
    return array

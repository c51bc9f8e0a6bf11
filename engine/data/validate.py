"""Checks the `Raw` rows of any source and makes `Rows` of them. Must not import torch.

Detects empty cells, duplicate ids, missing files, labels out of range, and invalid folds and splits. Labels are checked
on the host, because a device silently clamps a class that is out of range.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.file_readers import column, filled, source_path, texts
from engine.data.options import ArrayData, ImageData, SourceOptions, TextData
from engine.data.rows import TEST, TRAIN, VALID, Ints, Raw, RowErrors, Rows, refuse
from tputui.engine_api import expanded


class _Files(NamedTuple):
    paths: dict[str, list[str]]
    columns: dict[str, str]
    folder: str


def checked_rows(raw: Raw, options: SourceOptions, *, labelled: bool = True) -> Rows:
    """The usable rows. Raises `ValueError` with the problems if more rows are bad than may be left out.

    Without `labelled`, as for predictions, labels, groups, folds and splits are ignored.
    """
    errors = RowErrors(raw.names, options.max_bad_rows)
    for row, where, why in raw.bad:
        errors.add([row], where, why)
    files = _files(raw, options, errors, labelled)
    row_texts = _row_texts(raw, options, errors)
    tabular = options if isinstance(options, ArrayData) and not options.is_array else None
    features = read_features(raw, tabular, errors) if tabular is not None else None
    labels = read_labels(raw, options, errors) if labelled and options.label else None
    ids = _ids(raw, options, errors) if options.id else None
    groups, group_names = _groups(raw, options, errors) if labelled and options.group else (None, ())
    folds = _folds(raw, options, errors) if labelled and options.fold_column else None
    split = _split(raw, options, errors) if labelled and options.split_column else None
    dropped = errors.settle()
    keep = errors.usable(raw.frame.height)
    if split is not None:
        keep &= split >= 0
    whole = Rows(
        names=raw.names,
        count=raw.frame.height,
        folder=files.folder,
        files=files.paths,
        columns=files.columns,
        spans=raw.spans,
        texts=row_texts,
        features=features,
        feature_names=feature_columns(raw, tabular) if tabular is not None else (),
        labels=None if labels is None else labels.values,
        label_names=() if labels is None else labels.names,
        ids=ids,
        groups=groups,
        group_names=group_names,
        folds=folds,
        split=None if split is None else split == 1,
        dropped=dropped,
        notes=() if labels is None else labels.notes,
    )
    rows = whole if keep.all() else take(whole, np.flatnonzero(keep))
    if not len(rows):
        refuse(f"{raw.source} has no usable row")
    return rows


def take(rows: Rows, which: Ints) -> Rows:
    """The rows `which`, in that order."""

    def part(values: Any) -> Any:
        return None if values is None else values[which]

    def texts_of(values: list[str] | None) -> list[str] | None:
        return None if values is None else [values[row] for row in which]

    return replace(
        rows,
        names=rows.names.take(which),
        count=len(which),
        files={name: [paths[row] for row in which] for name, paths in rows.files.items()},
        spans=part(rows.spans),
        texts=texts_of(rows.texts),
        features=part(rows.features),
        labels=part(rows.labels),
        ids=texts_of(rows.ids),
        groups=part(rows.groups),
        folds=part(rows.folds),
        split=part(rows.split),
    )


def _files(raw: Raw, options: SourceOptions, errors: RowErrors, labelled: bool) -> _Files:
    if not isinstance(options, ImageData):
        return _Files({}, {}, "")
    folder = images_folder(raw, options)
    files = _Files({}, {}, str(folder))
    if raw.paths is not None:
        files.paths["image"] = raw.paths
        files.columns["image"] = options.image if raw.names.unit == "record" else ""
        return files
    wanted = {"image": options.image}
    if labelled:
        wanted |= {"mask": options.mask, "depth": options.depth, "depth_valid": options.depth_valid}
    for key, pattern in wanted.items():
        if pattern:
            made, names = filled(raw, pattern, key)
            errors.add(np.flatnonzero(made.is_null().to_numpy()), names, EMPTY)
            files.paths[key] = _existing(made, folder, names, errors)
            files.columns[key] = names
    return files


def images_folder(raw: Raw, options: ImageData) -> Path:
    """Folder that the paths of images are relative to."""
    given = options.image_folder if raw.paths is None else ""
    return expanded(source_path(given)) if given else raw.folder


def _existing(made: pl.Series, folder: Path, column_name: str, errors: RowErrors) -> list[str]:
    """Absolute paths. Every folder is listed once, because testing each file takes far longer."""
    inside = pl.lit(os.path.join(folder, "")) + pl.col("name")
    whole = pl.when(pl.col("name").str.starts_with("/")).then(pl.col("name")).otherwise(inside)
    paths: list[str] = made.alias("name").to_frame().select(whole).to_series().fill_null("").to_list()
    listings: dict[str, set[str]] = {}
    missing: list[int] = []
    for row, path in enumerate(paths):
        parent, _, name = path.rpartition("/")
        held = listings.get(parent)
        if held is None:
            held = listings[parent] = _listing(parent)
        if path and name not in held:
            missing.append(row)
    errors.add(missing, column_name, [f"there is no file {paths[row]}" for row in missing])
    return paths


def _listing(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder or "/"))
    except OSError:
        return set()


def _row_texts(raw: Raw, options: SourceOptions, errors: RowErrors) -> list[str] | None:
    if not isinstance(options, TextData):
        return None
    cells = texts(raw, options.text, "text")
    errors.add(np.flatnonzero(cells.is_null().to_numpy()), options.text, EMPTY)
    return cells.fill_null("").to_list()


def _ids(raw: Raw, options: SourceOptions, errors: RowErrors) -> list[str]:
    cells = texts(raw, options.id, "id")
    errors.add(np.flatnonzero(cells.is_null().to_numpy()), options.id, EMPTY)
    twice = np.flatnonzero((~cells.is_first_distinct() & cells.is_not_null()).to_numpy())
    wanted = set(cells.gather(twice.tolist()).to_list())
    first = {cell: row for row, cell in reversed(list(enumerate(cells.to_list()))) if cell in wanted} if wanted else {}
    errors.add(
        twice, options.id, [f'"{cells[int(row)]}" is also {_first(raw, first, cells, int(row))}' for row in twice]
    )
    return cells.fill_null("").to_list()


def _first(raw: Raw, first: dict[str, int], cells: pl.Series, row: int) -> str:
    return raw.names.place(first[cells[row]]).removeprefix(f"{raw.names.source} ")


def _groups(raw: Raw, options: SourceOptions, errors: RowErrors) -> tuple[Ints, tuple[str, ...]]:
    cells = texts(raw, options.group, "group")
    errors.add(np.flatnonzero(cells.is_null().to_numpy()), options.group, EMPTY)
    values, codes = np.unique(cells.fill_null("").to_numpy().astype(str), return_inverse=True)
    return codes.astype(np.int64), tuple(values.tolist())


def _folds(raw: Raw, options: SourceOptions, errors: RowErrors) -> Ints:
    cells = texts(raw, options.fold_column, "fold_column")
    errors.add(np.flatnonzero(cells.is_null().to_numpy()), options.fold_column, EMPTY)
    numbers = cells.cast(pl.Float64, strict=False).fill_null(-1).to_numpy()
    right: npt.NDArray[np.bool_] = (numbers >= 0) & (numbers < 1000) & (np.floor(numbers) == numbers)
    wrong = np.flatnonzero(~right & cells.is_not_null().to_numpy())
    errors.add(wrong, options.fold_column, [f"{cells[int(row)]} is not a fold: use integers from 0" for row in wrong])
    return np.where(right, numbers, 0).astype(np.int64)


def _split(raw: Raw, options: SourceOptions, errors: RowErrors) -> Ints:
    """[rows] 0 trains, 1 validates, -1 neither."""
    name = options.split_column
    column(raw, name, "split_column")
    cells = texts(raw, name, "split_column")
    errors.add(np.flatnonzero(cells.is_null().to_numpy()), name, EMPTY)
    number = {word: part for words, part in ((TRAIN, 0), (VALID, 1), (TEST, -1)) for word in words}
    values = np.array([number.get((cell or "test").lower(), -2) for cell in cells.to_list()], dtype=np.int64)
    wrong = np.flatnonzero(values == -2)
    errors.add(wrong, name, [f'"{cells[int(row)]}" is neither train nor valid nor test' for row in wrong])
    return values


EMPTY = "the cell is empty"
MOST_CLASSES = 1_000_000


class LabelColumns(NamedTuple):
    """Labels of every row; 0 for a bad row."""

    values: npt.NDArray[Any]
    """int64 [rows] classes, or float32 [rows, columns]."""
    names: tuple[str, ...]
    """Names of the classes, or of the columns."""
    notes: tuple[str, ...] = ()


def read_labels(raw: Raw, options: SourceOptions, errors: RowErrors) -> LabelColumns:
    """The labels of the columns that the options name. Raises `ValueError` if a column is missing."""
    names = [options.label] if isinstance(options.label, str) else options.label
    if not names:
        refuse("data.label: no column is named")
    if options.label_kind == "class":
        if len(names) != 1:
            refuse(f'data.label: label_kind = "class" takes one column, and {len(names)} are named')
        return _classes(raw, names[0], options, errors)
    columns = [_label_values(raw, name, options.label_kind, errors) for name in names]
    return LabelColumns(np.stack(columns, axis=1), tuple(names))


def _label_values(raw: Raw, name: str, kind: str, errors: RowErrors) -> npt.NDArray[np.float32]:
    cells = texts(raw, name, "label") if raw.frame.schema.get(name) == pl.String else _present(raw, name)
    values = cells.cast(pl.Float64, strict=False).to_numpy().astype(np.float64)
    empty = cells.is_null().to_numpy()
    errors.add(np.flatnonzero(empty), name, EMPTY)
    with np.errstate(over="ignore"):
        right = np.isin(values, (0.0, 1.0)) if kind == "binary" else np.isfinite(values.astype(np.float32))
    wrong = np.flatnonzero(~right & ~empty)
    need = "is not 0 or 1" if kind == "binary" else "is not a finite number"
    errors.add(wrong, name, [f"{cells[int(row)]} {need}" for row in wrong])
    return np.where(right & ~empty, values, 0).astype(np.float32)


def _present(raw: Raw, name: str) -> pl.Series:
    texts(raw, name, "label")  # Raises if the column is missing.
    return raw.frame[name]


def _classes(raw: Raw, name: str, options: SourceOptions, errors: RowErrors) -> LabelColumns:
    cells = texts(raw, name, "label")
    errors.add(np.flatnonzero(cells.is_null().to_numpy()), name, EMPTY)
    if options.classes:
        return _named_classes(cells, name, tuple(options.classes), errors)
    numbers = cells.cast(pl.Float64, strict=False)
    # A single typo among numbers is a bad row, not a new class.
    if options.num_classes or 2 * (len(numbers) - numbers.null_count()) > len(cells) - cells.null_count():
        return _numbered_classes(cells, numbers.to_numpy(), name, options.num_classes, errors)
    return _named_classes(cells, name, tuple(sorted(cells.drop_nulls().unique().to_list())), errors)


def _named_classes(cells: pl.Series, name: str, classes: tuple[str, ...], errors: RowErrors) -> LabelColumns:
    if len(set(classes)) < len(classes):
        refuse("data.classes: a name occurs twice")
    keys = pl.Series(list(classes), dtype=pl.String)
    numbers = cells.replace_strict(keys, pl.Series(range(len(classes)), dtype=pl.Int64), default=-1)
    values = numbers.fill_null(-1).to_numpy().astype(np.int64)
    wrong = np.flatnonzero((values < 0) & cells.is_not_null().to_numpy())
    listed = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    errors.add(wrong, name, [f'"{cells[int(row)]}" is not one of the classes {listed}' for row in wrong])
    return LabelColumns(np.maximum(values, 0), classes, _unused(values, classes))


def _numbered_classes(
    cells: pl.Series, numbers: npt.NDArray[np.float64], name: str, num_classes: int, errors: RowErrors
) -> LabelColumns:
    numbers = numbers.astype(np.float64)
    whole = np.isfinite(numbers) & (np.floor(numbers) == numbers)
    most = num_classes or int(min(np.max(numbers, where=whole, initial=0), MOST_CLASSES - 1)) + 1
    right = whole & (numbers >= 0) & (numbers < most)
    wrong = np.flatnonzero(~right & cells.is_not_null().to_numpy())
    need = f"a class from 0 to {most - 1}" if num_classes else "a class: use integers from 0"
    errors.add(wrong, name, [f"{cells[int(row)]} is not {need}" for row in wrong])
    values = np.where(right, numbers, 0).astype(np.int64)
    classes = tuple(str(number) for number in range(most))
    return LabelColumns(values, classes, _unused(values[right], classes))


def _unused(values: npt.NDArray[np.int64], classes: tuple[str, ...]) -> tuple[str, ...]:
    """A note if some classes never occur."""
    counts = np.bincount(values[values >= 0], minlength=len(classes))
    missing = [classes[place] for place in np.flatnonzero(counts == 0)]
    if not missing or not len(values):
        return ()
    shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
    return (f"no row has the class {shown}",)


def feature_columns(raw: Raw, options: ArrayData) -> tuple[str, ...]:
    """The feature columns: those in `data.features`, else every column that no other key names, in the order of the
    table.

    Raises `ValueError` if there are none.
    """
    if options.features:
        for name in options.features:
            column(raw, name, "features")
        return options.features
    labels = [options.label] if isinstance(options.label, str) else options.label
    others = {*labels, options.id, options.group, options.fold_column, options.split_column}
    columns = tuple(name for name in raw.frame.columns if name not in others)
    if not columns:
        refuse(f"{raw.source} has no column besides label, id, group, fold and split, so there are no features")
    return columns


def read_features(raw: Raw, options: ArrayData, errors: RowErrors) -> npt.NDArray[np.float32]:
    """[rows, features] feature values of the table; 0 in a bad row. Every cell must be a finite number."""
    names = feature_columns(raw, options)
    return np.stack([_feature_values(raw, name, options, errors) for name in names], axis=1)


def _feature_values(raw: Raw, name: str, options: ArrayData, errors: RowErrors) -> npt.NDArray[np.float32]:
    cells = raw.frame[name] if raw.frame.schema[name].is_numeric() else texts(raw, name, "features")
    if raw.frame.schema[name] == pl.Boolean:
        cells = raw.frame[name].cast(pl.Float64)
    numbers = cells.cast(pl.Float64, strict=False)
    if not options.features and numbers.null_count() == len(numbers) > cells.null_count():
        message = f'{raw.source}: the column "{name}" holds text, not numbers'
        refuse(f"{message}; name the numeric columns in data.features")
    empty = cells.is_null().to_numpy()
    with np.errstate(over="ignore"):
        values = numbers.to_numpy().astype(np.float64).astype(np.float32)
    errors.add(np.flatnonzero(empty), name, EMPTY)
    wrong = np.flatnonzero(~np.isfinite(values) & ~empty)
    errors.add(wrong, name, [f"{cells[int(row)]} is not a finite number" for row in wrong])
    return np.where(np.isfinite(values), values, 0).astype(np.float32)

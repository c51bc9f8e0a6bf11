"""Makes checked `Rows` of a source as it was read: one place for every check, whatever the source. No torch.

Here are found: empty cells, duplicate names, missing files, labels out of range, folds and splits that are none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.features import feature_columns, read_features
from engine.data.labels import EMPTY, Labels, read_labels
from engine.data.options import ArrayData, ImageData, SourceOptions, TextData
from engine.data.place import located
from engine.data.row_errors import RowErrors, refuse
from engine.data.rows import TEST, TRAIN, VALID, Ints, Raw, Rows
from engine.data.table import column, filled, texts



class _Files(NamedTuple):
    paths: dict[str, list[str]]
    columns: dict[str, str]
    folder: str


def assemble(raw: Raw, options: SourceOptions, *, labelled: bool = True) -> Rows:
    """The rows that can be used. Raises `ValueError` with what is wrong where that is more than may be left out.

    Without `labelled`, as for a prediction, neither labels nor what belongs to training are looked for.
    """
    findings = RowErrors(raw.names, options.max_bad_rows)
    for row, where, why in raw.bad:
        findings.add([row], where, why)
    files = _files(raw, options, findings, labelled)
    words = _words(raw, options, findings)
    tabular = options if isinstance(options, ArrayData) and not options.is_array else None
    features = read_features(raw, tabular, findings) if tabular is not None else None
    labels = read_labels(raw, options, findings) if labelled and options.label else None
    ids = _ids(raw, options, findings) if options.id else None
    groups, group_names = _groups(raw, options, findings) if labelled and options.group else (None, ())
    folds = _folds(raw, options, findings) if labelled and options.fold_column else None
    split = _split(raw, options, findings) if labelled and options.split_column else None
    dropped = findings.settle()
    keep = findings.usable(raw.frame.height)
    if split is not None:
        keep &= split >= 0
    whole = Rows(
        names=raw.names,
        count=raw.frame.height,
        folder=files.folder,
        files=files.paths,
        columns=files.columns,
        spans=raw.spans,
        texts=words,
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
        notes=_notes(labels),
    )
    rows = whole if keep.all() else take(whole, np.flatnonzero(keep))
    if not len(rows):
        refuse(f"{raw.source} holds no row that can be used")
    return rows


def take(rows: Rows, which: Ints) -> Rows:
    """The rows `which`, in that order."""

    def part(values: Any) -> Any:
        return None if values is None else values[which]

    def texts_of(values: list[str] | None) -> list[str] | None:
        return None if values is None else [values[row] for row in which]

    return Rows(
        names=rows.names.take(which),
        count=len(which),
        folder=rows.folder,
        files={name: [paths[row] for row in which] for name, paths in rows.files.items()},
        columns=rows.columns,
        spans=part(rows.spans),
        texts=texts_of(rows.texts),
        features=part(rows.features),
        feature_names=rows.feature_names,
        labels=part(rows.labels),
        label_names=rows.label_names,
        ids=texts_of(rows.ids),
        groups=part(rows.groups),
        group_names=rows.group_names,
        folds=part(rows.folds),
        split=part(rows.split),
        dropped=rows.dropped,
        notes=rows.notes,
    )


def _notes(labels: Labels | None) -> tuple[str, ...]:
    return () if labels is None else labels.notes


def _files(raw: Raw, options: SourceOptions, findings: RowErrors, labelled: bool) -> _Files:
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
            findings.add(np.flatnonzero(made.is_null().to_numpy()), names, EMPTY)
            files.paths[key] = _existing(made, folder, names, findings)
            files.columns[key] = names
    return files


def images_folder(raw: Raw, options: ImageData) -> Path:
    """What paths of images start in."""
    given = options.image_folder if raw.paths is None else ""
    return Path(located(given)).expanduser() if given else raw.folder


def _existing(made: pl.Series, folder: Path, column_name: str, findings: RowErrors) -> list[str]:
    """Whole paths; every folder is listed once, since asking for each file takes far longer."""
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
    findings.add(missing, column_name, [f"there is no file {paths[row]}" for row in missing])
    return paths


def _listing(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder or "/"))
    except OSError:
        return set()


def _words(raw: Raw, options: SourceOptions, findings: RowErrors) -> list[str] | None:
    if not isinstance(options, TextData):
        return None
    cells = texts(raw, options.text, "text")
    findings.add(np.flatnonzero(cells.is_null().to_numpy()), options.text, EMPTY)
    return cells.fill_null("").to_list()


def _ids(raw: Raw, options: SourceOptions, findings: RowErrors) -> list[str]:
    cells = texts(raw, options.id, "id")
    findings.add(np.flatnonzero(cells.is_null().to_numpy()), options.id, EMPTY)
    twice = np.flatnonzero((~cells.is_first_distinct() & cells.is_not_null()).to_numpy())
    wanted = set(cells.gather(twice.tolist()).to_list())
    first = {cell: row for row, cell in reversed(list(enumerate(cells.to_list()))) if cell in wanted} if wanted else {}
    findings.add(
        twice, options.id, [f'"{cells[int(row)]}" is also {_first(raw, first, cells, int(row))}' for row in twice]
    )
    return cells.fill_null("").to_list()


def _first(raw: Raw, first: dict[str, int], cells: pl.Series, row: int) -> str:
    return raw.names.place(first[cells[row]]).removeprefix(f"{raw.names.source} ")


def _groups(raw: Raw, options: SourceOptions, findings: RowErrors) -> tuple[Ints, tuple[str, ...]]:
    cells = texts(raw, options.group, "group")
    findings.add(np.flatnonzero(cells.is_null().to_numpy()), options.group, EMPTY)
    values, codes = np.unique(cells.fill_null("").to_numpy().astype(str), return_inverse=True)
    return codes.astype(np.int64), tuple(values.tolist())


def _folds(raw: Raw, options: SourceOptions, findings: RowErrors) -> Ints:
    cells = texts(raw, options.fold_column, "fold_column")
    findings.add(np.flatnonzero(cells.is_null().to_numpy()), options.fold_column, EMPTY)
    numbers = cells.cast(pl.Float64, strict=False).fill_null(-1).to_numpy()
    right: npt.NDArray[np.bool_] = (numbers >= 0) & (numbers < 1000) & (np.floor(numbers) == numbers)
    wrong = np.flatnonzero(~right & cells.is_not_null().to_numpy())
    findings.add(
        wrong, options.fold_column, [f"{cells[int(row)]} is no fold: whole numbers from 0 are" for row in wrong]
    )
    return np.where(right, numbers, 0).astype(np.int64)


def _split(raw: Raw, options: SourceOptions, findings: RowErrors) -> Ints:
    """[rows] 0 trains, 1 validates, -1 neither."""
    name = options.split_column
    column(raw, name, "split_column")
    cells = texts(raw, name, "split_column")
    findings.add(np.flatnonzero(cells.is_null().to_numpy()), name, EMPTY)
    number = {word: part for words, part in ((TRAIN, 0), (VALID, 1), (TEST, -1)) for word in words}
    values = np.array([number.get((cell or "test").lower(), -2) for cell in cells.to_list()], dtype=np.int64)
    wrong = np.flatnonzero(values == -2)
    findings.add(wrong, name, [f'"{cells[int(row)]}" is neither train nor valid nor test' for row in wrong])
    return values

"""From a user's files to checked rows, and to which of them train and validate. Torch-free and quick.

The strict check calls `sizes` before anything starts; a task's `load` calls `cut` and makes a dataset of each half.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data import arrays, folders, tfrecord
from engine.data.assemble import assemble
from engine.data.findings import listed, refuse
from engine.data.folds import folds_of, held_out, leaks, rare
from engine.data.options import ArrayData, ImageData, SourceOptions
from engine.data.place import located
from engine.data.rows import Ints, Rows
from engine.data.table import SUFFIXES, read_table
from engine.tasks.base import Sizes

SHOWN_IN_NOTE = 3


class Cut(NamedTuple):
    """The rows of a source and which of them train and validate."""

    rows: Rows
    train: Ints
    """Rows that train, in the order of the source."""
    valid: Ints
    """Rows that validate, in the order of the source."""
    notes: tuple[str, ...]
    """What a user should know before the start."""


def open_rows(options: SourceOptions) -> Rows:
    """The rows of the options' source. Raises `ValueError` or `OSError` in the user's words."""
    options = msgspec.structs.replace(options, source=located(options.source))
    source = options.source
    if not source:
        refuse("data.source: name a table, a folder with a folder for each class, a .npy file, or TFRecord files")
    if isinstance(options, ArrayData):
        return assemble(arrays.read_arrays(options), arrays.renamed(options))
    if isinstance(options, ImageData):
        if tfrecord.is_tfrecord(source):
            return assemble(tfrecord.read_records(options), options)
        if Path(source).expanduser().is_dir():
            split = folders.SPLIT if folders.has_splits(source) else ""
            renamed = msgspec.structs.replace(options, label=folders.LABEL, label_kind="class", split_column=split)
            return assemble(folders.read_folders(options), renamed)
    _refuse_unknown(source)
    return assemble(read_table(options), options)


def open_inputs(options: SourceOptions, source: Path) -> Rows:
    """The rows of a file without labels, for predictions: a table, an image, or a folder of images.

    Raises as `open_rows` does.
    """
    name = str(source)
    plain = msgspec.structs.replace(options, source=name, id="", max_bad_rows=0)
    if isinstance(plain, ArrayData):
        return assemble(
            arrays.read_arrays(msgspec.structs.replace(plain, labels_file="", groups_file="")), plain, labelled=False
        )
    if isinstance(plain, ImageData) and tfrecord.is_tfrecord(name):
        unlabelled = msgspec.structs.replace(plain, features={}, label=[])
        return assemble(tfrecord.read_records(unlabelled), unlabelled, labelled=False)
    if isinstance(plain, ImageData) and not name.lower().endswith(SUFFIXES):
        return assemble(folders.read_images(name), plain, labelled=False)
    _refuse_unknown(name)
    return assemble(read_table(plain), plain, labelled=False)


def cut(options: SourceOptions, seed: int) -> Cut:
    """Reads the rows and cuts them; the same for the same options and seed. Raises as `open_rows` does."""
    rows = open_rows(options)
    notes = list(rows.notes)
    if rows.split is not None:
        if options.fold is not None:
            refuse("data.fold: the source says by itself what trains and what validates; leave fold away")
        valid = rows.split
        torn = leaks(rows, rows.split)
    elif rows.folds is not None or options.fold is not None:
        folds = rows.folds if rows.folds is not None else folds_of(rows, options, seed)
        num_folds = int(folds.max()) + 1
        fold = options.fold or 0
        if fold >= num_folds:
            refuse(f"data.fold: {fold} is not a fold; there are {num_folds}, counted from 0")
        valid, torn = folds == fold, leaks(rows, folds)
        notes += rare(rows, num_folds) if "stratified" in options.folds_by and rows.folds is None else []
    else:
        valid = held_out(rows, options, seed)
        torn = leaks(rows, valid)
    notes += _leak_notes(torn, options, rows)
    if valid.all() or not valid.any():
        refuse(f"{options.source}: every row is in {'validation' if valid.any() else 'training'}; both need some")
    notes += [*_one_sided(rows, ~valid, "training"), *_one_sided(rows, valid, "validation")]
    return Cut(rows, np.flatnonzero(~valid), np.flatnonzero(valid), tuple(notes))


def sizes(options: SourceOptions, seed: int) -> Sizes:
    """How many rows train and validate. Raises as `open_rows` does."""
    parts = cut(options, seed)
    return Sizes(len(parts.train), len(parts.valid))


def num_folds(options: SourceOptions) -> int:
    """How many folds there are; 0 where the source says by itself what validates."""
    if options.fold_column:
        folds = open_rows(options).folds
        return int(folds.max()) + 1 if folds is not None else 0
    source = located(options.source)
    folder = isinstance(options, ImageData) and Path(source).expanduser().is_dir()
    presplit = bool(options.split_column) or (folder and folders.has_splits(source))
    return 0 if presplit else options.folds


def _one_sided(rows: Rows, part: npt.NDArray[np.bool_], what: str) -> list[str]:
    """A note where all rows of a part have the same class, or the same answer to binary labels."""
    labels = rows.labels
    if labels is None or (labels.dtype != np.int64 and not np.isin(labels, (0, 1)).all()):
        return []
    held = labels[part].reshape(int(part.sum()), -1)
    alike = np.flatnonzero((held == held[0]).all(axis=0))
    if not len(alike):
        return []
    if labels.ndim == 1:
        said = f'the class "{rows.label_names[held[0, 0]]}"'
    else:
        said = ", ".join(f"{rows.label_names[place]} = {held[0, place]:g}" for place in alike[:SHOWN_IN_NOTE])
        said += f" and {len(alike) - SHOWN_IN_NOTE} more labels alike" if len(alike) > SHOWN_IN_NOTE else ""
    without = "there is nothing to learn of it" if what == "training" else "it has no AUC"
    return [f"every row of {what} has {said}, so {without}"]


def _leak_notes(torn: list[str], options: SourceOptions, rows: Rows) -> list[str]:
    """Of groups that are torn apart: a note where that is allowed. Raises `ValueError` otherwise."""
    if not torn:
        return []
    if options.allow_leaks:
        of = "group is" if len(torn) == 1 else "groups are"
        some = listed(torn[:SHOWN_IN_NOTE])
        return [f"{len(torn):,} {of} in training and in validation, which flatters the figures: {some}"]
    given = options.split_column if rows.split is not None else options.fold_column if rows.folds is not None else ""
    advice = f"mend the column {given}" if given else "take folds_by = group or stratified_group"
    refuse(f"data.group: {listed(torn)}; {advice}, or allow it with allow_leaks = true")


def _refuse_unknown(source: str) -> None:
    path = Path(source).expanduser()
    if not source.lower().endswith(SUFFIXES) and path.exists():
        refuse(f"data.source: {source} is no table, known by its name: {', '.join(SUFFIXES)}")

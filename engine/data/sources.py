"""Opens the user's files as checked rows and splits them into training and validation. Does not import torch.

The check before a run calls `sizes`; `load` of a task calls `split_rows` and makes a dataset of each half.

Splits rows into folds, or holds out a share of them for validation: a pure function of labels, groups and seed.

The same seed gives the same split on every machine and with every version of numpy. Must not import torch.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data import file_readers, tfrecord
from engine.data.file_readers import IN_BRACES, SUFFIXES, filled, read_table, source_path, texts
from engine.data.options import ArrayData, ImageData, SourceOptions, SplitOptions
from engine.data.rows import TEST, Ints, Raw, Rows, join_problems, refuse
from engine.data.sampler import permutation
from engine.data.validate import checked_rows, images_folder
from engine.task import Dataset, Sizes, Splits
from tputui.engine_api import expanded

FOLDS = 0
"""Number of the split in the seed's stream; epochs count from 1."""

Weights = npt.NDArray[np.float64]


def folds_of(rows: Rows, options: SplitOptions, seed: int) -> Ints:
    """[rows] the fold in which each row validates, from 0 to `options.folds` - 1. Raises `ValueError`."""
    if len(rows) < options.folds:
        refuse(f"data.folds: {len(rows)} rows cannot be split into {options.folds} folds")
    return _cut(rows, options, seed, np.ones(options.folds) / options.folds)


def held_out(rows: Rows, options: SplitOptions, seed: int) -> npt.NDArray[np.bool_]:
    """[rows] whether each row is held out for validation. Raises `ValueError`."""
    share = options.valid_fraction
    if len(rows) < 2:
        refuse("one row cannot be split into training and validation")
    parts = _cut(rows, options, seed, np.array([1 - share, share]))
    return np.asarray(parts == 1)


def strata_of(rows: Rows) -> Ints:
    """[rows] the stratum of each row: its class, or the rarest of its binary labels that is 1, or the number of labels
    if none is. Raises `ValueError` for float labels."""
    labels = rows.labels
    if labels is None:
        refuse("data.folds_by: rows without labels cannot be stratified; take kfold or group")
    if labels.dtype == np.int64:
        return np.asarray(labels)
    if not np.isin(labels, (0, 1)).all():
        refuse('data.folds_by: label_kind = "float" cannot be stratified; take kfold or group')
    order = np.argsort(labels.sum(axis=0), kind="stable")
    present = labels[:, order] > 0
    rarest = np.where(present.any(axis=1), order[present.argmax(axis=1)], labels.shape[1])
    return np.asarray(rarest, dtype=np.int64)


def _cut(rows: Rows, options: SplitOptions, seed: int, shares: Weights) -> Ints:
    by = options.folds_by
    strata = strata_of(rows) if by in ("stratified", "stratified_group") else np.zeros(len(rows), dtype=np.int64)
    order = permutation(len(rows), seed, FOLDS)
    if by in ("kfold", "stratified"):
        return _dealt(strata, order, shares)
    if rows.groups is None:
        refuse(f'data.group: folds_by = "{by}" needs the column of the group')
    groups, codes = np.unique(rows.groups, return_inverse=True)
    if len(groups) < len(shares):
        refuse(f"data.folds_by: {len(groups)} groups cannot be split into {len(shares)} parts")
    return _packed(strata, codes.astype(np.int64), order, shares)


def _dealt(strata: Ints, order: Ints, shares: Weights) -> Ints:
    """Deals the rows out like cards, one stratum after another, so that each part gets its share of each stratum,
    within one row."""
    dealt = order[np.argsort(strata[order], kind="stable")]
    parts = np.empty(len(strata), dtype=np.int64)
    positions = np.arange(len(strata), dtype=np.int64)
    if len(set(shares)) == 1:
        parts[dealt] = positions % len(shares)
        return parts
    held = min(len(strata) - 1, math.ceil(len(strata) * shares[-1]))
    parts[dealt] = (positions + 1) * held // len(strata) - positions * held // len(strata)
    return parts


def _packed(strata: Ints, codes: Ints, order: Ints, shares: Weights) -> Ints:
    """Assigns whole groups to parts so that strata and row counts stay closest to the shares; largest groups first."""
    counts = _counts(strata, codes)
    scaled = counts / counts.sum(axis=0)
    drawn = np.empty(len(codes), dtype=np.int64)
    drawn[order] = np.arange(len(order))
    rank = np.full(len(counts), len(codes), dtype=np.int64)
    np.minimum.at(rank, codes, drawn)
    largest = np.lexsort((rank, -scaled.max(axis=1)))
    filled = np.zeros((len(shares), counts.shape[1]))
    place = np.empty(len(counts), dtype=np.int64)
    empty = len(shares)
    for done, group in enumerate(largest):
        gain = scaled[group]
        # Increase of the sum of squares over each part's share by adding the group: smallest where most is missing.
        cost = (2 * (filled @ gain) + gain @ gain) / shares
        if len(largest) - done <= empty:  # No part may stay empty.
            cost[filled[:, -1] > 0] = np.inf
        part = int(np.argmin(cost))
        empty -= int(filled[part, -1] == 0)
        filled[part] += gain
        place[group] = part
    return np.asarray(place[codes])


def _counts(strata: Ints, codes: Ints) -> Weights:
    """[groups, strata + 1] rows of each stratum in each group; the last column counts all rows of the group."""
    _, strata = np.unique(strata, return_inverse=True)
    counts = np.zeros((int(codes.max()) + 1, int(strata.max()) + 2))
    np.add.at(counts, (codes, strata), 1)
    counts[:, -1] = counts[:, :-1].sum(axis=1)
    return counts


def leaks(rows: Rows, parts: npt.NDArray[Any]) -> list[str]:
    """A sentence for each group with rows in more than one part, with two such rows."""
    if rows.groups is None:
        return []
    order = np.lexsort((parts, rows.groups))
    groups, sorted_parts = rows.groups[order], np.asarray(parts)[order]
    torn = np.flatnonzero((groups[1:] == groups[:-1]) & (sorted_parts[1:] != sorted_parts[:-1]))
    first = torn[np.unique(groups[torn], return_index=True)[1]]
    return [_leak(rows, int(order[at]), int(order[at + 1])) for at in first]


def _leak(rows: Rows, row: int, other_row: int) -> str:
    assert rows.groups is not None
    name = rows.group_names[int(rows.groups[row])] if rows.group_names else str(rows.groups[row])
    first, second = rows.names.place(min(row, other_row)), rows.names.place(max(row, other_row))
    return f'group "{name}" is split: {first} and {second}'


def rare(rows: Rows, num_parts: int) -> list[str]:
    """A note for each class with fewer rows than there are parts: some part must lack it."""
    strata = strata_of(rows)
    values, counts = np.unique(strata, return_counts=True)
    few: Sequence[tuple[int, int]] = [
        (int(value), int(count))
        for value, count in zip(values, counts, strict=True)
        if count < num_parts and value < len(rows.label_names)
    ]
    return [f'"{rows.label_names[value]}" has {count} rows for {num_parts} parts' for value, count in few[:10]]


SHOWN_IN_NOTE = 3


class SplitRows(NamedTuple):
    """The rows of a source, and which of them train and validate."""

    rows: Rows
    train: Ints
    """[n] rows that train, in the order of the source."""
    valid: Ints
    """[n] rows that validate, in the order of the source."""
    notes: tuple[str, ...]
    """Notes for the user before the start."""

    def splits(self, dataset: Callable[[Ints], Dataset], **more: Any) -> Splits:
        """The data of a task: the `dataset` of the rows of each split. `more` is digested too, see `digests`."""
        return Splits(dataset(self.train), dataset(self.valid), self.rows.dropped, self.notes, digests(self, **more))


def open_rows(options: SourceOptions) -> Rows:
    """The rows of the options' source. Raises `ValueError` or `OSError` with a message for the user."""
    options = msgspec.structs.replace(options, source=source_path(options.source))
    source = options.source
    if not source:
        refuse("data.source: name a table, a folder with a folder for each class, a .npy file, or TFRecord files")
    if isinstance(options, ArrayData) and options.is_array:
        return checked_rows(file_readers.read_arrays(options), file_readers.with_array_columns(options))
    if isinstance(options, ImageData):
        if tfrecord.is_tfrecord(source):
            return checked_rows(tfrecord.read_records(options), options)
        if expanded(source).is_dir():
            split = file_readers.FOLDER_SPLIT if file_readers.has_splits(source) else ""
            renamed = msgspec.structs.replace(
                options, label=file_readers.FOLDER_LABEL, label_kind="class", split_column=split
            )
            return checked_rows(file_readers.read_folders(options), renamed)
    _refuse_unknown(source)
    return checked_rows(read_table(options), options)


def open_inputs(options: SourceOptions, source: Path, classes: Sequence[str] | None = None) -> Rows:
    """The rows of a user's file for predictions: a table, TFRecord or `.npy` file, an image, or a folder of images.

    Labels, masks, depths and ids are included if the file has them. `classes` are those of the network, in order; None
    takes those of the options' own source. Raises as `open_rows` does, also if only some of the rows have a label.
    """
    name = str(source)
    classes = _classes(options) if classes is None else classes
    plain = _for_predictions(msgspec.structs.replace(options, source=name, max_bad_rows=0))
    if isinstance(plain, ArrayData) and plain.is_array:
        return _available_rows(file_readers.read_arrays(plain), plain, classes)
    if isinstance(plain, ImageData) and tfrecord.is_tfrecord(name):
        return _available_rows(tfrecord.read_records(plain), plain, classes)
    if isinstance(plain, ImageData) and not name.lower().endswith(SUFFIXES):
        labelled = msgspec.structs.replace(plain, label=file_readers.FOLDER_LABEL, label_kind="class", id="")
        return _available_rows(file_readers.read_images(name, classes), labelled, classes)
    _refuse_unknown(name)
    return _available_rows(read_table(plain), plain, classes)


def open_test(options: SourceOptions, classes: Sequence[str] | None = None) -> Rows:
    """The rows of the options' source that belong to its test split, as `open_inputs` returns them.

    Raises `ValueError` if there is no test split.
    """
    options = msgspec.structs.replace(options, source=source_path(options.source))
    source = options.source
    classes = _classes(options) if classes is None else classes
    if isinstance(options, ImageData) and expanded(source).is_dir():
        folder = file_readers.test_folder(source)
        if folder is None:
            refuse(f"{source} has no folder test, so there is no test split")
        return open_inputs(options, folder, classes)
    if (isinstance(options, ArrayData) and options.is_array) or not options.split_column:
        refuse("data.split_column is not set, so there is no test split; name a file of examples instead")
    records = isinstance(options, ImageData) and tfrecord.is_tfrecord(source)
    raw = tfrecord.read_records(options) if isinstance(options, ImageData) and records else read_table(options)
    split_names = texts(raw, options.split_column, "split_column").str.to_lowercase()
    which = np.flatnonzero(split_names.is_in(list(TEST)).fill_null(False).to_numpy())
    if not len(which):
        refuse(f'{source}: no row has "test" in column {options.split_column}, so there is no test split')
    return _available_rows(raw.take(which), _for_predictions(options), classes)


def _classes(options: SourceOptions) -> Sequence[str]:
    """The classes that a network was trained on; empty if labels are not classes, or they are not known."""
    if options.label_kind != "class" or not options.label:
        return ()
    try:
        return options.classes or open_rows(options).label_names
    except (OSError, ValueError):
        # The training data may be on another machine.
        return ()


def _for_predictions(options: SourceOptions) -> SourceOptions:
    """The options without those that only training uses."""
    plain = msgspec.structs.replace(options, group="", fold_column="", split_column="")
    if isinstance(plain, ArrayData):
        named = file_readers.with_array_columns(plain) if plain.labels_file else plain
        return msgspec.structs.replace(named, group="", groups_file="")
    return msgspec.structs.replace(plain, features={}) if isinstance(plain, ImageData) else plain


def _available_rows(raw: Raw, options: SourceOptions, classes: Sequence[str]) -> Rows:
    """Checked rows, with the labels, masks, depths and ids that the source has."""
    columns = set(raw.frame.columns)
    changes: dict[str, object] = {"id": options.id if options.id in columns else ""}
    if not _is_labelled(raw, options):
        changes["label"] = ""
    elif options.label_kind == "class" and not options.classes and not classes:
        # Class numbers need no names; the number of a named class is not known.
        changes["label"] = options.label if isinstance(options, ArrayData) and options.is_array else ""
    elif options.label_kind == "class" and not options.classes:
        numbered = list(classes) == [str(number) for number in range(len(classes))]
        changes |= {"num_classes": len(classes)} if numbered else {"classes": tuple(classes)}
    if isinstance(options, ImageData) and raw.paths is None:
        for key in ("mask", "depth", "depth_valid"):
            if getattr(options, key) and not _has_files(raw, options, key):
                changes[key] = ""
    return checked_rows(raw, msgspec.structs.replace(options, **changes))


def _is_labelled(raw: Raw, options: SourceOptions) -> bool:
    """Whether every row has a label. Raises `ValueError` if only some have."""
    names = [options.label] if isinstance(options.label, str) else options.label
    if not names or not all(name in raw.frame.columns for name in names):
        return False
    empty = np.stack([texts(raw, name, "label").is_null().to_numpy() for name in names])
    if empty.all():
        return False
    if empty.any():
        column, row = np.argwhere(empty)[0]
        hint = "label every row, or remove all labels to predict without metrics"
        refuse(f"{raw.names.place(int(row), names[column])}: the label is empty and others are not; {hint}")
    return True


def _has_files(raw: Raw, options: ImageData, key: str) -> bool:
    """Whether the source has files for `key`. If names are made from other columns, at least one file must exist."""
    pattern = getattr(options, key)
    columns = IN_BRACES.findall(pattern)
    if not all(name in raw.frame.columns for name in columns or [pattern]):
        return False
    paths = filled(raw, pattern, key)[0].drop_nulls().to_list()
    return any((images_folder(raw, options) / path).exists() for path in paths) if columns else bool(paths)


def split_rows(options: SourceOptions, seed: int) -> SplitRows:
    """Reads the rows and splits them; same options and seed, same split. Raises as `open_rows` does."""
    rows = open_rows(options)
    notes = list(rows.notes)
    if rows.split is not None:
        if options.fold is not None:
            refuse("data.fold: the source has its own split into training and validation; remove fold")
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
    return SplitRows(rows, np.flatnonzero(~valid), np.flatnonzero(valid), tuple(notes))


def sizes(options: SourceOptions, seed: int) -> Sizes:
    """Numbers of training and validation rows. Raises as `open_rows` does."""
    parts = split_rows(options, seed)
    return Sizes(len(parts.train), len(parts.valid))


def num_folds(options: SourceOptions) -> int:
    """The number of folds; 0 if the source has its own split."""
    if options.fold_column:
        folds = open_rows(options).folds
        return int(folds.max()) + 1 if folds is not None else 0
    source = source_path(options.source)
    folder = isinstance(options, ImageData) and expanded(source).is_dir()
    presplit = bool(options.split_column) or (folder and file_readers.has_splits(source))
    return 0 if presplit else options.folds


def _one_sided(rows: Rows, part: npt.NDArray[np.bool_], split: str) -> list[str]:
    """A note if all rows of a split have the same class, or the same value of a binary label."""
    labels = rows.labels
    if labels is None or (labels.dtype != np.int64 and not np.isin(labels, (0, 1)).all()):
        return []
    held = labels[part].reshape(int(part.sum()), -1)
    alike = np.flatnonzero((held == held[0]).all(axis=0))
    if not len(alike):
        return []
    if labels.ndim == 1:
        same = f'the class "{rows.label_names[held[0, 0]]}"'
    else:
        same = ", ".join(f"{rows.label_names[place]} = {held[0, place]:g}" for place in alike[:SHOWN_IN_NOTE])
        same += f" and {len(alike) - SHOWN_IN_NOTE} more labels alike" if len(alike) > SHOWN_IN_NOTE else ""
    without = "there is nothing to learn" if split == "training" else "it has no AUC"
    return [f"every row of {split} has {same}, so {without}"]


def _leak_notes(torn: list[str], options: SourceOptions, rows: Rows) -> list[str]:
    """A note on groups that are in both splits, if that is allowed. Raises `ValueError` otherwise."""
    if not torn:
        return []
    if options.allow_leaks:
        of = "group is" if len(torn) == 1 else "groups are"
        some = join_problems(torn[:SHOWN_IN_NOTE])
        return [f"{len(torn):,} {of} in training and in validation, which makes the scores too good: {some}"]
    given = options.split_column if rows.split is not None else options.fold_column if rows.folds is not None else ""
    advice = f"fix the column {given}" if given else "take folds_by = group or stratified_group"
    refuse(f"data.group: {join_problems(torn)}; {advice}, or allow it with allow_leaks = true")


def _refuse_unknown(source: str) -> None:
    path = expanded(source)
    if not source.lower().endswith(SUFFIXES) and path.exists():
        refuse(f"data.source: {source} is not a table; the file name must end in one of {', '.join(SUFFIXES)}")


SAMPLES_MAX = 2_000
"""Maximum number of files whose sizes are read, and of feature rows that are hashed, evenly spaced."""


def digests(
    parts: SplitRows, *, features: npt.NDArray[Any] | None = None, vocabulary: Iterable[str] | None = None
) -> dict[str, str]:
    """A digest for each part of the examples, to detect changes since a checkpoint: `ids`, `labels`, `texts`, `files`,
    `split`; also of `features` [rows, ...] and `vocabulary` if given.

    Cheap: of files only names and sizes are read, and of many files only some.
    """
    rows = parts.rows
    by_part = {"split": _digest([parts.train.tobytes(), b"|", parts.valid.tobytes()])}
    if rows.ids is not None:
        by_part["ids"] = _text_digest(rows.ids)
    if rows.labels is not None:
        by_part["labels"] = _digest([np.ascontiguousarray(rows.labels).tobytes(), repr(rows.label_names).encode()])
    if rows.texts is not None:
        by_part["texts"] = _text_digest(rows.texts)
    paths = [path for name in sorted(rows.files) for path in rows.files[name]]
    if paths:
        spans = rows.spans.tobytes() if rows.spans is not None else b""
        by_part["files"] = _digest([*_file_sizes(paths), spans])
    if features is not None:
        sample = features[:: -(-len(features) // SAMPLES_MAX)]
        by_part["features"] = _digest([repr((features.shape, features.dtype)).encode(), sample.tobytes()])
    if vocabulary is not None:
        by_part["vocabulary"] = _text_digest(vocabulary)
    return by_part


def _text_digest(texts: Iterable[str]) -> str:
    return _digest(f"{len(text)}:{text}".encode("utf-8", "surrogatepass") for text in texts)


def _file_sizes(paths: list[str]) -> Iterable[bytes]:
    """Name and size of each file, without its folder, which may have been renamed."""
    stride = -(-len(paths) // SAMPLES_MAX)
    for path in paths[::stride]:
        try:
            size = os.stat(path).st_size
        except OSError:
            size = -1
        yield f"{os.path.basename(path)}:{size}\n".encode("utf-8", "surrogateescape")


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()

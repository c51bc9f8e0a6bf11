"""Splits rows into folds, or holds out a share of them for validation: a pure function of labels, groups and seed.

The same seed gives the same split on every machine and with every version of numpy. Must not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.options import SplitOptions
from engine.data.rows import Ints, Rows, refuse
from engine.data.sampler import permutation

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

"""Folds of rows with any labels, groups and seed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.options import SplitOptions
from engine.data.rows import Names, Rows
from engine.data.sources import folds_of, held_out, leaks, strata_of

By = Literal["kfold", "stratified", "group", "stratified_group"]
ALL: tuple[By, ...] = ("kfold", "stratified", "group", "stratified_group")
GROUPED: tuple[By, ...] = ("group", "stratified_group")


def rows_of(labels: list[int], groups: list[int] | None = None) -> Rows:
    return Rows(
        names=Names("t.csv", np.arange(2, 2 + len(labels))),
        count=len(labels),
        labels=np.array(labels, dtype=np.int64),
        label_names=tuple(str(name) for name in range(max(labels) + 1)),
        groups=None if groups is None else np.array(groups, dtype=np.int64),
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, int]:
    """Rows with at least as many groups as folds, and the number of folds."""
    folds = draw(st.integers(2, 5))
    count = draw(st.integers(folds, 80))
    labels = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    free = draw(st.lists(st.integers(0, 12), min_size=count - folds, max_size=count - folds))
    return rows_of(labels, list(range(folds)) + free), folds


@given(tables(), st.sampled_from(ALL), st.integers(0, 2**31 - 1))
@settings(max_examples=60)
def test_each_row_validates_in_one_fold_and_none_is_empty(table: tuple[Rows, int], by: By, seed: int) -> None:
    rows, num_folds = table
    options = SplitOptions(folds=num_folds, folds_by=by)
    folds = folds_of(rows, options, seed)
    assert len(folds) == len(rows)
    assert set(folds.tolist()) == set(range(num_folds))
    assert (folds == folds_of(rows, options, seed)).all(), "the same seed cuts in the same way"


@given(tables(), st.sampled_from(GROUPED), st.integers(0, 1000))
@settings(max_examples=60)
def test_groups_are_never_split(table: tuple[Rows, int], by: By, seed: int) -> None:
    rows, num_folds = table
    assert leaks(rows, folds_of(rows, SplitOptions(folds=num_folds, folds_by=by), seed)) == []
    valid = held_out(rows, SplitOptions(folds_by=by), seed)
    assert leaks(rows, valid) == []
    assert 0 < valid.sum() < len(rows)


@given(tables(), st.integers(0, 1000))
@settings(max_examples=60)
def test_strata_and_folds_are_equal_within_one_row(table: tuple[Rows, int], seed: int) -> None:
    rows, num_folds = table
    folds = folds_of(rows, SplitOptions(folds=num_folds, folds_by="stratified"), seed)
    assert np.ptp(np.bincount(folds, minlength=num_folds)) <= 1
    assert rows.labels is not None
    for label in np.unique(rows.labels):
        assert np.ptp(np.bincount(folds[rows.labels == label], minlength=num_folds)) <= 1


@given(tables(), st.floats(0.05, 0.95), st.integers(0, 1000))
@settings(max_examples=60)
def test_held_out_share_is_met_per_class_within_one_row(table: tuple[Rows, int], share: float, seed: int) -> None:
    rows, _ = table
    valid = held_out(rows, SplitOptions(folds_by="stratified", valid_fraction=share), seed)
    held = valid.sum()
    assert abs(held - len(rows) * share) <= 1
    assert 0 < held < len(rows)
    assert rows.labels is not None
    for label in np.unique(rows.labels):
        of_class = rows.labels == label
        assert abs(valid[of_class].sum() - of_class.sum() * held / len(rows)) < 1


def test_stratified_groups_keep_a_rare_class_in_every_fold() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 400, 2000)
    labels = (rng.random(400) < 0.06)[groups].astype(int)
    rows = rows_of(labels.tolist(), groups.tolist())
    folds = folds_of(rows, SplitOptions(folds_by="stratified_group"), seed=3)
    positives = np.bincount(folds, weights=labels, minlength=5)
    assert positives.min() >= 0.8 * positives.mean()
    sizes = np.bincount(folds, minlength=5)
    assert sizes.min() >= 0.95 * sizes.mean()


def test_other_seed_gives_other_folds() -> None:
    rows = rows_of([0, 1] * 50, list(range(100)))
    for by in ALL:
        options = SplitOptions(folds_by=by)
        assert (folds_of(rows, options, 0) != folds_of(rows, options, 1)).any()


def test_binary_labels_are_stratified_by_rarest_present() -> None:
    labels = np.array([[1, 0], [1, 1], [1, 0], [0, 0]], dtype=np.float32)
    rows = Rows(names=Names("t.csv"), count=4, labels=labels, label_names=("often", "rare"))
    assert strata_of(rows).tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (rows_of([0, 1]), {"folds": 5}, "2 rows cannot be split into 5 folds"),
        (rows_of([0, 1, 0]), {"folds": 2, "folds_by": "group"}, "needs the column of the group"),
        (rows_of([0, 1, 0], [1, 1, 1]), {"folds": 2, "folds_by": "group"}, "1 groups cannot be split into 2 parts"),
    ],
)
def test_impossible_split_is_rejected(rows: Rows, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folds_of(rows, SplitOptions(**options), 0)


def test_measurements_cannot_be_stratified() -> None:
    rows = Rows(names=Names("t.csv"), count=3, labels=np.array([[0.5], [1], [2]], dtype=np.float32))
    with pytest.raises(ValueError, match="cannot be stratified; take kfold or group"):
        held_out(rows, SplitOptions(folds_by="stratified"), 0)


def test_split_group_is_named_with_two_rows() -> None:
    rows = rows_of([0, 0, 0], [7, 8, 7])
    assert leaks(rows, np.array([0, 1, 1])) == ['group "7" is split: t.csv row 2 and t.csv row 4']

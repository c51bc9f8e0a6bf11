"""Scores compared with scikit-learn's, and the reasons of undefined ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine import scores

Rows = list[tuple[bool, float]]
# Few values, so that ties are common, and any others.
VALUES = st.one_of(
    st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.floats(-1e6, 1e6, width=32), st.sampled_from([-np.inf, np.inf])
)
ROWS = st.lists(st.tuples(st.booleans(), VALUES), min_size=2, max_size=60)
MASKS = arrays(bool, st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5)))


def metrics() -> Any:
    """scikit-learn's metrics, whose import takes seconds that other tests need not wait for."""
    from sklearn import metrics as imported

    return imported


def columns(rows: Rows) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Targets and scores of rows."""
    return np.array([row[0] for row in rows], np.float32), np.array([row[1] for row in rows], np.float32)


@given(ROWS.filter(lambda rows: 0 < sum(row[0] for row in rows) < len(rows)))
def test_auc_is_the_share_of_pairs_in_order(rows: Rows) -> None:
    targets, values = columns(rows)
    above = values[targets == 1][:, None], values[targets == 0][None]
    pairs = (above[0] > above[1]).mean() + (above[0] == above[1]).mean() / 2
    assert scores.auc(targets, values).value == pytest.approx(pairs, abs=1e-12)


@given(ROWS.filter(lambda rows: 0 < sum(row[0] for row in rows) < len(rows)))
def test_auc_and_average_precision_match_scikit_learn(rows: Rows) -> None:
    # scikit-learn rejects infinity; only the order matters.
    targets, values = columns(rows)
    finite = np.clip(values, -2e6, 2e6)
    assert scores.auc(targets, values).value == pytest.approx(metrics().roc_auc_score(targets, finite), abs=1e-12)
    ours, theirs = scores.average_precision(targets, values), metrics().average_precision_score(targets, finite)
    assert ours.value == pytest.approx(theirs, abs=1e-12)
    assert ours.reason == ""


def test_auc_is_exact_for_many_examples() -> None:
    drawn = np.random.default_rng(0)
    targets = (drawn.random(200_000) < 0.02).astype(np.int64)
    values = (targets + drawn.normal(size=200_000)).astype(np.float16)
    assert scores.auc(targets, values).value == pytest.approx(metrics().roc_auc_score(targets, values), abs=1e-12)


@pytest.mark.parametrize(
    ("targets", "words"),
    [([0, 0, 0], "all 3 examples are negative"), ([1, 1], "all 2 examples are positive"), ([], "no example")],
)
def test_auc_of_one_class_is_nan_with_reason(targets: list[int], words: str) -> None:
    found = scores.auc(np.array(targets), np.zeros(len(targets)))
    assert np.isnan(found.value)
    assert words in found.reason


def test_average_precision_of_one_class_is_1_or_undefined() -> None:
    assert scores.average_precision(np.ones(3), np.arange(3)) == scores.Score(1.0)
    found = scores.average_precision(np.zeros(3), np.arange(3))
    assert np.isnan(found.value)
    assert "needs positives" in found.reason


@pytest.mark.parametrize("score", [scores.auc, scores.average_precision])
def test_nan_prediction_invalidates_score_and_is_counted(score: scores.Ranking) -> None:
    found = score(np.array([0, 1, 1]), np.array([0.1, np.nan, 0.9]))
    assert np.isnan(found.value)
    assert found.reason == "1 of 3 predictions are not a number"


def test_invalid_target_class_names_its_example() -> None:
    with pytest.raises(ValueError, match="example 2 is 7"):
        scores.auc(np.array([0, 1, 7]), np.zeros(3))
    with pytest.raises(ValueError, match=r"\(3,\) and scores \(2,\)"):
        scores.auc(np.zeros(3), np.zeros(2))


def test_labels_are_scored_singly_and_averaged_if_defined() -> None:
    drawn = np.random.default_rng(1)
    targets, values = (drawn.random((50, 3)) < 0.4).astype(int), drawn.random((50, 3))
    targets[:, 1] = 0
    found = scores.by_label(scores.auc, targets, values, ["liver", "spleen", "aorta"])
    expected = [metrics().roc_auc_score(targets[:, label], values[:, label]) for label in (0, 2)]
    assert [one.value for one in found.each if not np.isnan(one.value)] == pytest.approx(expected)
    assert found.macro.value == pytest.approx(np.mean(expected))
    assert "2 of 3 labels; spleen: all 50 examples are negative" in found.macro.reason


def test_no_scorable_label_gives_no_mean() -> None:
    found = scores.by_label(scores.auc, np.zeros((4, 2)), np.zeros((4, 2)))
    assert np.isnan(found.macro.value)
    assert found.macro.reason.startswith("0: all 4 examples are negative")


@given(st.data())
def test_iou_matches_scikit_learn_on_valid_pixels(data: st.DataObject) -> None:
    targets = data.draw(MASKS)
    predicted = data.draw(arrays(bool, targets.shape))
    valid = data.draw(arrays(bool, targets.shape))
    found = scores.iou(targets, predicted.astype(np.float32), valid)
    if ((targets | predicted) & valid).any():
        assert found.value == pytest.approx(metrics().jaccard_score(targets[valid], predicted[valid]))
    else:
        assert np.isnan(found.value)
        assert "foreground" in found.reason


def test_mean_iou_skips_and_counts_empty_examples() -> None:
    targets = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    predicted = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    found = scores.mean_iou(targets, predicted)
    assert found.value == pytest.approx((1 / 2 + 1) / 2)
    assert found.reason.startswith("1 of 3 examples")


def test_one_validity_mask_serves_all_channels() -> None:
    targets, valid = np.ones((2, 3, 4, 4), bool), np.zeros((2, 1, 4, 4), bool)
    valid[0, 0, 0] = True
    both, either = scores.overlaps(targets, targets, valid)
    assert both.tolist() == either.tolist() == [12, 0]


@given(st.data())
def test_mae_is_the_mean_distance_of_valid_pixels(data: st.DataObject) -> None:
    targets = data.draw(arrays(np.float32, (3, 4), elements=st.floats(-100, 100, width=32)))
    predicted = data.draw(arrays(np.float32, (3, 4), elements=st.floats(-100, 100, width=32)))
    valid = data.draw(arrays(bool, (3, 4)))
    found = scores.mae(np.where(valid, targets, np.nan), predicted, valid)
    if valid.any():
        expected = metrics().mean_absolute_error(targets[valid].astype(float), predicted[valid].astype(float))
        assert found.value == pytest.approx(expected, rel=1e-12)
    else:
        assert found.reason == "no element is valid"


def test_accuracy_is_the_share_of_hits() -> None:
    assert scores.accuracy(np.array([0, 1, 2, 3]), np.array([0, 1, 2, 0])) == scores.Score(0.75)
    assert scores.accuracy(np.array([]), np.array([])).reason == "there is no example"

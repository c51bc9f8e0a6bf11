"""Exact scores of a whole split, computed on the host with numpy. Must not import torch.

A score that is not defined for the split is NaN with a reason. NaN in the predictions makes the score NaN too: leaving
those examples out would overrate a network that failed on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]


class Score(NamedTuple):
    """A value, with a reason if it is NaN."""

    value: float
    reason: str = ""
    """Why the value is NaN, or what was left out of it; empty otherwise."""


class LabelScores(NamedTuple):
    """One score per label."""

    each: tuple[Score, ...]
    """In the order of the labels."""
    macro: Score
    """The mean over the labels whose score is not NaN; the reason names the others."""


Ranking = Callable[[Array, Array], Score]


def auc(targets: Array, scores: Array) -> Score:
    """Area under the ROC curve of `scores` [n] for `targets` [n] of 0 and 1.

    The share of pairs of a positive and a negative that the scores order correctly; a tie counts half. NaN if a class
    is missing or a score is NaN. Raises `ValueError` if the shapes differ or a target is neither 0 nor 1.
    """
    positive, values = _binary(targets, scores)
    reason = _unranked(positive, values, "the AUC needs both classes")
    if reason:
        return Score(np.nan, reason)
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    # Mean rank of equal values, from 1.
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    num = int(positive.sum())
    return Score(float((ranks[positive].sum() - num * (num + 1) / 2) / (num * (len(positive) - num))))


def average_precision(targets: Array, scores: Array) -> Score:
    """Average precision of `scores` [n] for `targets` [n]: the mean over the positives of the precision at their own
    score. Raises as `auc`."""
    positive, values = _binary(targets, scores)
    if not _nan_reason(values) and positive.all() and len(positive):
        return Score(1.0)
    reason = _unranked(positive, values, "the average precision needs positives")
    if reason:
        return Score(np.nan, reason)
    order = np.argsort(-values, kind="stable")
    hits, values = np.cumsum(positive[order]), values[order]
    # Of equal scores only the last is a threshold, because they cannot be separated.
    last = np.append(values[1:] != values[:-1], True)
    found = hits[last]
    precision = found / (np.flatnonzero(last) + 1)
    return Score(float((precision * np.diff(found, prepend=0)).sum() / found[-1]))


def by_label(score: Ranking, targets: Array, scores: Array, names: Sequence[str] = ()) -> LabelScores:
    """`score` of each column of `targets` and `scores` [n, labels], with their mean. Raises as `score`.

    `names` of the labels are used in reasons; by default they are numbered from 0.
    """
    if targets.ndim != 2 or targets.shape != scores.shape:
        raise ValueError(f"targets {targets.shape} and scores {scores.shape} must both be [examples, labels]")
    each = tuple(score(targets[:, label], scores[:, label]) for label in range(targets.shape[1]))
    values = np.array([one.value for one in each])
    known = ~np.isnan(values)
    names = names or [str(label) for label in range(len(each))]
    left_out = [f"{name}: {one.reason}" for name, one in zip(names, each, strict=True) if np.isnan(one.value)]
    if not known.any():
        return LabelScores(each, Score(np.nan, "; ".join(left_out) or "there is no label"))
    reason = f"the mean of {known.sum()} of {len(each)} labels; {'; '.join(left_out)}" if left_out else ""
    return LabelScores(each, Score(float(values[known].mean()), reason))


def accuracy(targets: Array, predicted: Array) -> Score:
    """Share of equal elements of two arrays of the same shape. Raises `ValueError` if the shapes differ."""
    _same(targets, predicted)
    if not targets.size:
        return Score(np.nan, "there is no example")
    return Score(float((targets == predicted).mean()))


def iou(targets: Array, predicted: Array, valid: Array | None = None) -> Score:
    """Intersection over union of two masks of the same shape, bool or 0 and 1, pooled over all examples. Raises
    `ValueError`."""
    both, either = overlaps(targets, predicted, valid)
    if not either.sum():
        return Score(np.nan, "no valid pixel is foreground, neither in the targets nor in the predictions")
    return Score(float(both.sum() / either.sum()))


def mean_iou(targets: Array, predicted: Array, valid: Array | None = None) -> Score:
    """The mean intersection over union of the examples [n, ...]; examples without foreground in both masks are left
    out."""
    both, either = overlaps(targets, predicted, valid)
    known = either > 0
    if not known.any():
        return Score(np.nan, "no valid pixel is foreground, neither in the targets nor in the predictions")
    missing = int((~known).sum())
    reason = f"{missing} of {len(known)} examples have no foreground, neither in target nor prediction" * bool(missing)
    return Score(float((both[known] / either[known]).mean()), reason)


def overlaps(
    targets: Array, predicted: Array, valid: Array | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pixels in both masks and pixels in either mask of each example: [n, ...] -> [n], [n]."""
    _same(targets, predicted)
    counts = np.ones(targets.shape, bool) if valid is None else _fitting(valid, targets)
    one, other = _mask(targets, counts), _mask(predicted, counts)
    dims = tuple(range(1, targets.ndim))
    return (one & other).sum(axis=dims, dtype=np.int64), (one | other).sum(axis=dims, dtype=np.int64)


def mae(targets: Array, predicted: Array, valid: Array | None = None) -> Score:
    """Mean absolute error over the valid elements of two arrays of the same shape."""
    _same(targets, predicted)
    counts = np.ones(targets.shape, bool) if valid is None else _fitting(valid, targets)
    if not counts.any():
        return Score(np.nan, "no element is valid")
    distances = np.abs(targets[counts].astype(np.float64) - predicted[counts].astype(np.float64))
    wrong = _nan_reason(distances)
    return Score(np.nan, wrong) if wrong else Score(float(distances.mean()))


def rmse(targets: Array, predicted: Array) -> Score:
    """Root mean squared error over all elements of two arrays of the same shape."""
    _same(targets, predicted)
    if not targets.size:
        return Score(np.nan, "there is no example")
    squares = (targets.astype(np.float64) - predicted.astype(np.float64)) ** 2
    wrong = _nan_reason(squares)
    return Score(np.nan, wrong) if wrong else Score(float(np.sqrt(squares.mean())))


def r2(targets: Array, predicted: Array) -> Score:
    """Coefficient of determination of `predicted` [n] for `targets` [n]: 1 if exact, 0 for their mean."""
    _same(targets, predicted)
    if not targets.size:
        return Score(np.nan, "there is no example")
    known, guessed = targets.astype(np.float64), predicted.astype(np.float64)
    wrong = _nan_reason(guessed)
    spread = ((known - known.mean()) ** 2).sum()
    if wrong or not spread:
        return Score(np.nan, wrong or "all targets are equal, so there is no variance to explain")
    return Score(float(1 - ((known - guessed) ** 2).sum() / spread))


def _binary(targets: Array, scores: Array) -> tuple[npt.NDArray[np.bool_], Doubles]:
    if targets.ndim != 1 or targets.shape != scores.shape:
        raise ValueError(f"targets {targets.shape} and scores {scores.shape} must both be [examples]")
    positive = targets == 1
    wrong = ~(positive | (targets == 0))
    if wrong.any():
        raise ValueError(f"the target of example {wrong.argmax()} is {targets[wrong][0]}; it must be 0 or 1")
    return positive, scores.astype(np.float64)


def _unranked(positive: npt.NDArray[np.bool_], values: Doubles, need: str) -> str | None:
    """Why the scores cannot be ranked; None if they can."""
    if not len(positive):
        return "there is no example"
    if positive.all() or not positive.any():
        return f"all {len(positive)} examples are {'positive' if positive.all() else 'negative'}; {need}"
    return _nan_reason(values)


def _nan_reason(values: Doubles) -> str | None:
    missing = int(np.isnan(values).sum())
    return f"{missing} of {values.size} predictions are not a number" if missing else None


def _same(targets: Array, predicted: Array) -> None:
    if targets.shape != predicted.shape:
        raise ValueError(f"targets {targets.shape} and predictions {predicted.shape} must have the same shape")


def _fitting(valid: Array, targets: Array) -> npt.NDArray[np.bool_]:
    """`valid` broadcast to the elements; a mask with one channel applies to all channels."""
    return np.broadcast_to(valid, targets.shape).astype(bool)


def _mask(values: Array, counts: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return values.astype(bool) & counts

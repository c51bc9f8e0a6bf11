"""Limits of a comparison for CI: how much slower, or worse in a metric, a run may be than the base.

The interval of a metric covers the noise from epoch to epoch of both curves, not that between two seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Literal, NamedTuple

import msgspec

from tputui.compare.direction import less_is_better
from tputui.compare.verdict import LEVEL, PaceVerdict
from tputui.state.conditions import split_of
from tputui.state.metric_series import MetricSource, metric_series
from tputui.state.snapshot import Snapshot

SLOWDOWN = "slowdown"
POINTS_MIN = 6
"""Values of a curve from which its noise is estimated."""
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
_MAD_OF_NORMAL = NormalDist().inv_cdf(0.75)
"""Median of the absolute values of noise with a standard deviation of 1."""


class Limit(NamedTuple):
    """What a run may be worse by than the base."""

    name: str
    """`SLOWDOWN`: time per example; else a metric, such as `valid.loss`, by its best value."""
    share: float


class LimitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run keeps a limit."""

    label: str
    """Of the run."""
    name: str
    """`slowdown`, or the metric."""
    limit: float
    """As a share of the base's value."""
    worse: float | None
    """By how much the run is worse than the base, as a share; negative if it is better, null if not known."""
    low: float | None
    """Bounds of the 95 % interval; null if not known."""
    high: float | None
    outcome: Literal["within", "exceeded", "undecided"]
    sentence: str
    """The result with its figures."""


def check(
    limits: Sequence[Limit], snapshots: Sequence[Snapshot], verdicts: Sequence[PaceVerdict | None], base: int
) -> list[LimitResult]:
    """The results of all limits for all runs but the base, whose verdict is None."""
    results = []
    for limit in limits:
        for snapshot, verdict in zip(snapshots, verdicts, strict=True):
            if verdict is not None:
                found = _slowdown(verdict) if limit.name == SLOWDOWN else _worse(limit.name, snapshot, snapshots[base])
                results.append(_judged(limit, verdict.label, found))
    return results


def values_of(name: str, snapshot: Snapshot) -> list[float]:
    """The finite values of a metric: of a training metric those of whole epochs, if there are any."""
    split, wanted = split_of(name)
    series = next((one for one in metric_series(MetricSource.of(snapshot)) if one.name == wanted), None)
    if series is None:
        return []
    points = series.valid if split == "valid" or (not split and not series.train) else series.train
    points = [point for point in points if point.ends_epoch] or points
    return [point.value for point in points if math.isfinite(point.value)]


_Worse = tuple[float, float, float] | str
"""By how much a run is worse with the bounds of the interval, or why that is not known."""


def _judged(limit: Limit, label: str, found: _Worse) -> LimitResult:
    worse, low, high = (None, None, None) if isinstance(found, str) else found
    outcome: Literal["within", "exceeded", "undecided"] = "undecided"
    if low is None or high is None or worse is None:
        figures = f"not known: {found}"
    else:
        outcome = "exceeded" if low > limit.share else "within" if high <= limit.share else "undecided"
        figures = f"{worse * 100:+.1f} % (95 % interval {low * 100:+.1f} to {high * 100:+.1f} %)"
        figures += "; it contains the limit, so longer runs are needed" if outcome == "undecided" else ""
    what = SLOWDOWN if limit.name == SLOWDOWN else f"worse {limit.name}"
    sentence = f"{outcome}: {what} of {label}, at most {limit.share * 100:g} %: {figures}"
    return LimitResult(
        label=label, name=limit.name, limit=limit.share, worse=worse, low=low, high=high, outcome=outcome,
        sentence=sentence,
    )  # fmt: skip


def _slowdown(verdict: PaceVerdict) -> _Worse:
    if verdict.ratio is None or verdict.low is None or verdict.high is None:
        return verdict.sentence
    return 1 / verdict.ratio - 1, 1 / verdict.high - 1, 1 / verdict.low - 1


def _worse(name: str, snapshot: Snapshot, base: Snapshot) -> _Worse:
    """Compares the best values; the noise of a curve is that of its second differences, which have no trend."""
    values, before = values_of(name, snapshot), values_of(name, base)
    if not values or not before:
        return f"{'the base' if not before else 'the run'} has no value of it"
    is_falling = less_is_better(split_of(name)[1], base)
    best, best_before = (min(one) if is_falling else max(one) for one in (values, before))
    if not best_before:
        return "the base's best value is 0"
    worse = (best - best_before if is_falling else best_before - best) / abs(best_before)
    if values == before:
        return 0.0, 0.0, 0.0
    if (few := min(len(values), len(before))) < POINTS_MIN:
        return f"{few} values, and their noise needs {POINTS_MIN}"
    within = _Z * math.hypot(_noise(values), _noise(before)) / abs(best_before)
    return worse, worse - within, worse + within


def _noise(values: Sequence[float]) -> float:
    """Standard deviation from value to value in the later half of a curve, where it is flattest."""
    later = values[-max(POINTS_MIN, len(values) // 2) :]
    second = [abs(one - 2 * two + three) for one, two, three in zip(later, later[1:], later[2:], strict=False)]
    return median(second) / _MAD_OF_NORMAL / math.sqrt(6)

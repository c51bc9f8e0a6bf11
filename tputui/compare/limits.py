"""Limits of a comparison for CI: how much slower, or worse in a metric, a run may be than the base.

The interval of a metric covers the noise from epoch to epoch of both curves, not that between two seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Literal

import msgspec

from tputui.compare.verdict import LEVEL, PaceVerdict
from tputui.diagnosis.curve import noise_around_trend
from tputui.logs.tags import is_falling
from tputui.state.conditions import split_of
from tputui.state.metric_series import Metrics, MetricSource
from tputui.state.snapshot import Snapshot

SLOWDOWN = "slowdown"
POINTS_MIN = 6
"""Values of a curve from which its noise is estimated."""


Limit = tuple[str, float]
"""`SLOWDOWN`, the time per example, or a metric, such as `valid.loss`, by its best value; and the share by which a run
may be worse than the base."""


class LimitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run keeps a limit."""

    label: str
    name: str
    limit: float
    outcome: Literal["within", "exceeded", "undecided"]
    sentence: str
    worse: float | None = None
    """By what share of the base's value the run is worse, negative if it is better; null if not known."""
    low: float | None = None
    high: float | None = None
    """Bounds of the 95 % interval."""


def check(
    limits: Sequence[Limit], snapshots: Sequence[Snapshot], verdicts: Sequence[PaceVerdict | None], base: int
) -> Iterator[LimitResult]:
    """The results of all limits for all runs but the base, whose verdict is None."""
    for name, share in limits:
        for snapshot, verdict in zip(snapshots, verdicts, strict=True):
            if verdict is None:
                continue
            found = _slowdown(verdict) if name == SLOWDOWN else _worse(name, snapshot, snapshots[base])
            worse, low, high = (None, None, None) if isinstance(found, str) else found
            outcome: Literal["within", "exceeded", "undecided"] = "undecided"
            figures = f"not known: {found}"
            if worse is not None and low is not None and high is not None:
                outcome = "exceeded" if low > share else "within" if high <= share else "undecided"
                figures = f"{worse * 100:+.1f} % (95 % interval {low * 100:+.1f} to {high * 100:+.1f} %)"
                figures += "; it contains the limit, so longer runs are needed" if outcome == "undecided" else ""
            what = f"{'' if name == SLOWDOWN else 'worse '}{name} of {verdict.label}, at most {share * 100:g} %"
            yield LimitResult(
                label=verdict.label, name=name, limit=share, outcome=outcome, sentence=f"{outcome}: {what}: {figures}",
                worse=worse, low=low, high=high,
            )  # fmt: skip


def values_of(name: str, snapshot: Snapshot) -> list[float]:
    """The finite values of a metric: of a training metric those of whole epochs, if there are any."""
    split, wanted = split_of(name)
    series = Metrics(MetricSource.of(snapshot)).get(wanted)
    if series is None:
        return []
    points = series.valid if split == "valid" or (not split and not series.train) else series.train
    points = [point for point in points if point.ends_epoch] or points
    return [point.value for point in points if math.isfinite(point.value)]


def _slowdown(verdict: PaceVerdict) -> tuple[float, float, float] | str:
    """By what share the run is slower, with the interval, or why that is not known."""
    if verdict.ratio is None or verdict.low is None or verdict.high is None:
        return verdict.sentence
    return 1 / verdict.ratio - 1, 1 / verdict.high - 1, 1 / verdict.low - 1


def _worse(name: str, snapshot: Snapshot, base: Snapshot) -> tuple[float, float, float] | str:
    """By what share the best value is worse, with the interval, or why that is not known."""
    values, before = values_of(name, snapshot), values_of(name, base)
    if not values or not before:
        return f"{'the run' if before else 'the base'} has no value of it"
    sign, best = (1, min) if less_is_better(split_of(name)[1], base) else (-1, max)
    if not (size := abs(best(before))):
        return "the base's best value is 0"
    if values == before:
        return 0.0, 0.0, 0.0
    if (few := min(len(values), len(before))) < POINTS_MIN:
        return f"{few} values, and their noise needs {POINTS_MIN}"
    worse = sign * (best(values) - best(before)) / size
    within = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.hypot(_noise(values), _noise(before)) / size
    return worse, worse - within, worse + within


def _noise(values: Sequence[float]) -> float:
    """Standard deviation from value to value in the later half of a curve."""
    return noise_around_trend(values[-max(POINTS_MIN, len(values) // 2) :])


def less_is_better(name: str, snapshot: Snapshot) -> bool:
    """Whether lower values are better: by the configuration for the monitored meter, else by its name."""
    checkpoint = snapshot.config.get("checkpoint")
    if isinstance(checkpoint, dict) and checkpoint.get("monitor") == name and checkpoint.get("mode") in ("min", "max"):
        return bool(checkpoint["mode"] == "min")
    return is_falling(name)

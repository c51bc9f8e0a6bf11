"""Steady training speed of a run after warm-up, and whether two runs differ by more than their noise.

**Warm-up.** The first report includes the first trace, and caches fill after it. The warm-up ends at the cut that
minimises the sum of squared deviations of the remaining log speeds over the square of their number (the MSER rule), at
most at half of the reports.

**Noise.** Neighbouring reports are correlated: a busy host stays busy for a while. So the reports after the warm-up are
split into `BATCHES` consecutive batches, and the error of the overall median is estimated from the spread of the batch
medians, widened by their autocorrelation. Two runs differ if the 95 % interval of the ratio of their medians, by
Student's t with Welch's degrees of freedom, excludes 1. All computations use logarithms, so swapping the runs inverts
the ratio exactly.

The interval describes these two runs; it does not cover the difference between machines. Pairs are compared
independently: among seven runs as fast as the base, at least one stands out in three of ten comparisons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median
from typing import NamedTuple

import msgspec

BATCHES = 8
"""Number of batches for the noise estimate: few and long, so that neighbouring batches are nearly independent."""
REPORTS_MIN = 4 * BATCHES
"""Minimum number of reports after the warm-up for a comparison."""
LEVEL = 0.95

_MAX_CORRELATION = 0.9
"""Upper limit of the estimated correlation, which eight batches cannot determine better."""


class SteadyPace(msgspec.Struct, frozen=True, kw_only=True):
    """Training speed of a run after warm-up."""

    num_reports: int
    """Number of reports after the warm-up; in a long run, averaged neighbours count as one."""
    num_warmup: int
    """Number of reports in the warm-up."""
    step_s: float
    """Median step time in seconds."""
    spread: float
    """Half the distance from the 10th to the 90th percentile of the step times, relative to the median."""
    examples_per_s: float
    """Median speed."""
    error: float | None
    """Standard error of the logarithm of the speed; None with fewer than `REPORTS_MIN` reports."""


class Ratio(NamedTuple):
    """Speed of one run divided by that of another, with a confidence interval."""

    ratio: float
    low: float
    high: float
    """Bounds of the interval."""

    @property
    def stands_out(self) -> bool:
        """Whether the interval excludes 1."""
        return not self.low <= 1.0 <= self.high

    @property
    def within(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def inverse(self) -> Ratio:
        """The ratio with the runs swapped."""
        return Ratio(1 / self.ratio, 1 / self.high, 1 / self.low)


def steady(reports: Sequence[tuple[float, float]]) -> SteadyPace | None:
    """The speed from reports (seconds per step, examples per second) in time order; None without a valid report."""
    valid = [report for report in reports if all(math.isfinite(value) and value > 0 for value in report)]
    if not valid:
        return None
    cut = warmup([math.log(examples_per_s) for _, examples_per_s in valid])
    warm = valid[cut:]
    logs = [math.log(examples_per_s) for _, examples_per_s in warm]
    steps_s = sorted(step_s for step_s, _ in warm)
    middle = median(steps_s)
    return SteadyPace(
        num_reports=len(warm),
        num_warmup=cut,
        step_s=middle,
        spread=(_percentile(steps_s, 0.9) - _percentile(steps_s, 0.1)) / (2 * middle),
        examples_per_s=math.exp(median(logs)),
        error=error_of_median(logs) if len(logs) >= REPORTS_MIN else None,
    )


def warmup(values: Sequence[float]) -> int:
    """Number of leading values in the warm-up: at least one, unless there is only one; at most half."""
    best, cut = math.inf, 0
    mean, squares = 0.0, 0.0
    for count, index in enumerate(range(len(values) - 1, 0, -1), start=1):
        off = values[index] - mean
        mean += off / count
        squares += off * (values[index] - mean)
        if index <= max(len(values) // 2, 1) and squares / count**2 <= best:
            best, cut = squares / count**2, index
    return cut


def error_of_median(values: Sequence[float]) -> float:
    """Standard error of the median of values in time order, which may be correlated with their neighbours."""
    middle, count = median(values), len(values)
    batches = [median(values[i * count // BATCHES : (i + 1) * count // BATCHES]) for i in range(BATCHES)]
    variance = sum((batch - middle) ** 2 for batch in batches) / (BATCHES - 1)
    correlation = _correlation(batches)
    return math.sqrt(variance / BATCHES * (1 + correlation) / (1 - correlation))


def judge(run: SteadyPace, base: SteadyPace) -> Ratio | None:
    """Speed of `run` relative to `base`, in examples per second; None if either has too few reports."""
    if run.error is None or base.error is None:
        return None
    variances = run.error**2, base.error**2
    both = sum(variances)
    logarithm = math.log(run.examples_per_s) - math.log(base.examples_per_s)
    within = 0.0
    if both > 0:
        freedom = (BATCHES - 1) / sum((variance / both) ** 2 for variance in variances)
        within = student((1 + LEVEL) / 2, freedom) * math.sqrt(both)
    return Ratio(math.exp(logarithm), math.exp(logarithm - within), math.exp(logarithm + within))


def student(share: float, freedom: float) -> float:
    """Quantile of Student's t by the Cornish-Fisher expansion; accurate to three digits for `freedom` >= 5."""
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def _correlation(batches: Sequence[float]) -> float:
    """Lag-1 autocorrelation, at least 0, with a correction for the small number of batches."""
    mean = fmean(batches)
    squares = sum((batch - mean) ** 2 for batch in batches)
    if squares <= 0:
        return 0.0
    products = sum((left - mean) * (right - mean) for left, right in itertools.pairwise(batches))
    return min(max(products / squares + 1 / len(batches), 0.0), _MAX_CORRELATION)


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

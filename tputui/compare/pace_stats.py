"""How fast a run trains once it is warm, and whether two runs differ by more than their noise. Pure.

**Warm-up.** The first report holds the first trace, and caches fill after it. The cut is the one after which the mean
of the logarithms is known best: the least of the squared deviations behind it over the square of their number (the
MSER rule), at most half of the reports.

**Noise.** Neighbouring reports are alike: a busy host stays busy for a while. So the reports behind the warm-up are
cut into `BATCHES` pieces of neighbours, and the error of the median of all is told by how far the medians of the
pieces lie from it; where even neighbouring pieces are alike it is widened by their correlation. Two runs differ if
the 95 % interval of the ratio of their medians, by Student's t with Welch's degrees of freedom, leaves out 1.
Everything is done in logarithms, so exchanging the runs inverts the ratio exactly.

The interval is of these two runs: that a repetition lies elsewhere, since the machine was another one, it cannot tell.
Each pair is judged by itself: of seven runs as fast as the base, one or more stand out in three comparisons of ten.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median
from typing import NamedTuple

import msgspec

BATCHES = 8
"""Pieces that tell the noise: few and long, so that neighbouring pieces hardly know of each other."""
REPORTS_MIN = 4 * BATCHES
"""Reports after the warm-up that it takes to judge."""
LEVEL = 0.95

_ALIKE_MAX = 0.9
"""Largest correlation of neighbouring pieces that is believed: eight of them cannot tell more."""


class SteadyPace(msgspec.Struct, frozen=True, kw_only=True):
    """The steady pace of a run."""

    num_reports: int
    """Reports after the warm-up; of a long run neighbours come averaged, and count as one."""
    num_warmup: int
    """Reports that the warm-up takes."""
    step_s: float
    """Median of their step times."""
    spread: float
    """Half the way from the 10th to the 90th percentile of their step times, as a share of the median."""
    examples_per_s: float
    """Median of their paces."""
    error: float | None
    """Standard error of the logarithm of the pace; None where there are too few reports to tell."""


class Ratio(NamedTuple):
    """How many times as fast one run is as another."""

    ratio: float
    low: float
    high: float
    """Bounds of the interval."""

    @property
    def stands_out(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1.0 <= self.high

    @property
    def within(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def inverse(self) -> Ratio:
        """With the runs exchanged."""
        return Ratio(1 / self.ratio, 1 / self.high, 1 / self.low)


def steady(reports: Sequence[tuple[float, float]]) -> SteadyPace | None:
    """The pace by reports (seconds a step, examples a second) in order; None where none makes sense."""
    sound = [report for report in reports if all(math.isfinite(value) and value > 0 for value in report)]
    if not sound:
        return None
    cut = warmup([math.log(examples_per_s) for _, examples_per_s in sound])
    warm = sound[cut:]
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
    """How many values at the start belong to the warm-up: the first at least, where others remain, half at most."""
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
    """Standard error of the median of values in order of time, neighbours of which may be alike."""
    middle, count = median(values), len(values)
    pieces = [median(values[i * count // BATCHES : (i + 1) * count // BATCHES]) for i in range(BATCHES)]
    variance = sum((piece - middle) ** 2 for piece in pieces) / (BATCHES - 1)
    alike = _correlation(pieces)
    return math.sqrt(variance / BATCHES * (1 + alike) / (1 - alike))


def judge(run: SteadyPace, base: SteadyPace) -> Ratio | None:
    """How many times as fast `run` is as `base`, in examples a second; None where one has too few reports."""
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
    """The quantile of Student's t, right to three digits from five degrees of freedom on (Cornish and Fisher)."""
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def _correlation(pieces: Sequence[float]) -> float:
    """How much neighbouring pieces are alike, from 0 on; what so few pieces tell too little of it is added."""
    mean = fmean(pieces)
    squares = sum((piece - mean) ** 2 for piece in pieces)
    if squares <= 0:
        return 0.0
    products = sum((left - mean) * (right - mean) for left, right in itertools.pairwise(pieces))
    return min(max(products / squares + 1 / len(pieces), 0.0), _ALIKE_MAX)


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

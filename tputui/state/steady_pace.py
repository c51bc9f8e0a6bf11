"""The speed of a run: step time and examples per second at steady state, over the whole run.

**Warm-up.** The first report includes the first trace, and caches fill after it. The warm-up ends at the cut that
minimises the sum of squared deviations of the remaining log speeds over the square of their number (the MSER rule), at
most at half of the reports.

**Noise.** Neighbouring reports are correlated: a busy host stays busy for a while. So the reports after the warm-up are
split into `BATCHES` consecutive batches, and the error of the overall median is estimated from the spread of the batch
medians, widened by their autocorrelation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

BATCHES = 8
"""Number of batches for the noise estimate: few and long, so that neighbouring batches are nearly independent."""
REPORTS_MIN = 4 * BATCHES
"""Minimum number of reports after the warm-up for a comparison."""
_MAX_CORRELATION = 0.9
"""Upper limit of the estimated correlation, which eight batches cannot determine better."""


class SteadyPace(msgspec.Struct, frozen=True, kw_only=True):
    """Training speed of a run after warm-up."""

    num_reports: int
    """Number of reports after the warm-up; in a long run, averaged neighbours count as one."""
    num_warmup: int
    """Number of reports in the warm-up."""
    step_s: float
    """Median step time in seconds, without compiling, evaluating and saving."""
    spread: float
    """Half the distance from the 10th to the 90th percentile of the step times, relative to the median."""
    examples_per_s: float
    """Median speed; NaN if the run does not report how many examples a step takes."""
    error: float | None
    """Standard error of the logarithm of the speed; None with fewer than `REPORTS_MIN` reports."""


def steady_pace(reports: Sequence[tuple[float, float]]) -> SteadyPace | None:
    """The speed from reports (seconds per step, examples per second) in time order; None without a valid report.

    Reports without examples, which are NaN, count only if no report has any.
    """
    timed = [report for report in reports if 0 < report[0] < math.inf]
    valid = [report for report in timed if 0 < report[1] < math.inf]
    has_examples = bool(valid)
    valid = valid or [report for report in timed if math.isnan(report[1])]
    if not valid:
        return None
    logs = [math.log(examples_per_s) if has_examples else -math.log(step_s) for step_s, examples_per_s in valid]
    cut = warmup(logs)
    logs = logs[cut:]
    steps_s = sorted([step_s for step_s, _ in valid[cut:]])
    middle = median(steps_s)
    return SteadyPace(
        num_reports=len(logs),
        num_warmup=cut,
        step_s=middle,
        spread=(_percentile(steps_s, 0.9) - _percentile(steps_s, 0.1)) / (2 * middle),
        examples_per_s=math.exp(median(logs)) if has_examples else math.nan,
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

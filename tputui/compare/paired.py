"""The ratio of two speeds that were measured in pairs of neighbouring blocks, with a confidence interval.

The estimate is the median of all means of two pairs (Hodges-Lehmann), and the interval is that of Wilcoxon's
signed-rank test, which is exact for any symmetric noise: a block that another program disturbs moves neither far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from tputui.compare.verdict import LEVEL, Ratio

PAIRS_MIN = 6
"""Pairs from which the test has an interval of 95 %."""
METHOD = "median of the paired ratios (Hodges-Lehmann); 95 % by the signed-rank test"


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """The second speed relative to the first, from pairs of both; None with fewer than `PAIRS_MIN` pairs."""
    if len(pairs) < PAIRS_MIN:
        return None
    logs = [math.log(second / first) for first, second in pairs]
    means = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i, len(logs)))
    cut = _critical(len(logs))
    return Ratio(*(math.exp(value) for value in (median(means), means[cut], means[-1 - cut])))


def _critical(count: int) -> int:
    """Means to leave out at either end: the largest rank sum that `count` pairs stay at or below in at most 2.5 % of
    cases."""
    most = count * (count + 1) // 2
    ways = [1] + [0] * most
    for rank in range(1, count + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    tail, index = 0, 0
    limit = (1 - LEVEL) / 2 * 2**count
    while tail + ways[index] <= limit:
        tail += ways[index]
        index += 1
    return index - 1

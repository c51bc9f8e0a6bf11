"""Finds steps that are slow in a rhythm: every Nth of them. Pure arithmetic over step times.

A step is slow if it is beyond the noise of the fast ones; of steps whose noise has a long tail, if it is among the
slowest. A period is accepted only if as many slow steps at random would show one with a probability below `CHANCE`,
among all periods and offsets that could have been found: random pauses have none, however many there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

STEPS_MIN = 64
REPEATS_MIN = 5
"""Slow steps that a period needs."""
CHANCE = 1e-6
FAST_QUANTILE, FASTEST_QUANTILE = 0.3, 0.05
"""Even if every other step is slow these are of fast ones; their distance is 1.1 to 1.5 standard deviations."""
NOISES = 3.0
"""A step is slow from so many of these distances above the fast ones ..."""
SLOW_LEAST = 0.05
"""... and at least this share above them."""
SLOW_SHARES = (0.55, 0.3, 0.14, 0.07, 0.035, 0.018, 0.009, 0.0045)
"""Shares of the steps, at most, that count as slow in turn. With more there is no rhythm but another pace."""
HITS_MIN = 0.8
"""Share of the steps in the rhythm that must be slow ..."""
OTHERS_MAX = 0.3
"""... and the share of the other steps that may be, relative to it."""
_NEXT = 5
"""Following slow steps whose distances are tried as periods."""
_TRIED = 10


class Period(NamedTuple):
    """A rhythm of slow steps."""

    steps: int
    """Every so many steps one is slow."""
    offset: int
    """Index of the first one."""
    num: int
    """Slow steps in the rhythm."""
    extra_s: float
    """Median time that they take longer than the others."""
    lost_s: float
    """Seconds that they took longer, in total."""
    share: float
    """`lost_s` as a share of the time of all steps."""


def period_of(times: Sequence[float]) -> Period | None:
    """The rhythm that takes most time; `times` are seconds of consecutive steps, NaN where unknown. None if there is
    none."""
    known = sorted(seconds for seconds in times if math.isfinite(seconds))
    if len(known) < STEPS_MIN:
        return None
    fast = known[int(FAST_QUANTILE * len(known))]
    noise = max(fast - known[int(FASTEST_QUANTILE * len(known))], fast * SLOW_LEAST / NOISES)
    bounds = {max(fast + NOISES * noise, known[int((1.0 - share) * len(known))]) for share in SLOW_SHARES}
    found = [period for bound in sorted(bounds) if (period := _beyond(times, bound, len(known))) is not None]
    return max(found, key=lambda period: period.lost_s, default=None)


def _beyond(times: Sequence[float], bound: float, num_known: int) -> Period | None:
    """The rhythm of the steps that take longer than a bound."""
    slow = [place for place, seconds in enumerate(times) if seconds > bound]
    if not REPEATS_MIN <= len(slow) <= SLOW_SHARES[0] * num_known:
        return None
    distances = Counter(
        later - place for at, place in enumerate(slow) for later in slow[at + 1 : at + 1 + _NEXT] if later > place + 1
    )
    # A multiple of a period has half of its seconds at most.
    tried = sorted(distance for distance, _ in distances.most_common(_TRIED))
    periods = [found for steps in tried if (found := _with(times, slow, steps, num_known)) is not None]
    return max(periods, key=lambda period: period.lost_s, default=None)


def _with(times: Sequence[float], slow: Sequence[int], steps: int, num_known: int) -> Period | None:
    """The rhythm with a period; None if the slow steps do not have it."""
    offset, num_slow = Counter(place % steps for place in slow).most_common(1)[0]
    inside = [seconds for seconds in times[offset::steps] if math.isfinite(seconds)]
    num_others = num_known - len(inside)
    if num_slow < max(REPEATS_MIN, HITS_MIN * len(inside)) or not num_others:
        return None
    if (len(slow) - num_slow) / num_others > OTHERS_MAX * num_slow / len(inside):
        return None
    if _log_chance(num_slow, len(inside), len(slow) / num_known) + _log_tests(len(times)) > math.log(CHANCE):
        return None
    usual = median(seconds for place, seconds in enumerate(times) if place % steps != offset and math.isfinite(seconds))
    lost_s = math.fsum(max(0.0, seconds - usual) for seconds in inside)
    total_s = math.fsum(seconds for seconds in times if math.isfinite(seconds))
    return Period(steps, offset, num_slow, median(inside) - usual, lost_s, lost_s / total_s)


def _log_tests(num: int) -> float:
    """Logarithm of the number of periods with their offsets and bounds."""
    return math.log(len(SLOW_SHARES) * num**2 / (2 * REPEATS_MIN))


def _log_chance(hits: int, num: int, rate: float) -> float:
    """Logarithm of the probability, at most, that `hits` of `num` random steps are slow at a rate below 1."""
    ways = math.lgamma(num + 1) - math.lgamma(hits + 1) - math.lgamma(num - hits + 1)
    return ways + hits * math.log(rate)

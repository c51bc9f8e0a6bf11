"""The time of a run by the records of a journal: within bounds, and going on where the clock of the host was set back.

A record says the unix time of its host. What orders records, and what lengths of time are counted from, must not go
back: when the clock is set back, the times after that are counted on from the newest one before. Pure.
"""

from __future__ import annotations

import math

T_MAX = 253_402_300_799.0
"""The last second of the year 9999, in unix time: later ones cannot be shown as a date."""
JITTER_S = 5.0
"""Records may stand out of order by this: several threads write, each with the time at which its fact was true."""


def is_time(t: float) -> bool:
    """Whether a figure is a unix time that a record can have: finite, from 1970 to 9999."""
    return 0.0 <= t <= T_MAX


def run_time(t: float, newest_t: float | None, set_back_s: float) -> tuple[float, float]:
    """The time of a record in its run, and by how many seconds the clock was set back up to it.

    `t` is what the record says, `newest_t` the newest time in the run of the records before, None at the first. NaN
    where the record says no time that can be.
    """
    if not is_time(t):
        return math.nan, set_back_s
    moved = t + set_back_s
    if newest_t is None or moved >= newest_t - JITTER_S:
        return min(moved, T_MAX), set_back_s
    return newest_t, newest_t - t

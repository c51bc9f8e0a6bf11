"""Converts the times of events to run time, which does not go back when the host's clock does.

Every event contains the unix time of its host. Run time orders events and measures durations, so it must not go back:
after the host's clock was set back, times continue from the newest one before. Pure.
"""

from __future__ import annotations

import math

T_MAX = 253_402_300_799.0
"""The last second of the year 9999, in unix time: later ones cannot be shown as a date."""
JITTER_S = 5.0
"""Events may be out of order by this much: several threads emit them, each with its own time."""


def is_time(t: float) -> bool:
    """Whether a number is a unix time that an event can have: finite, from 1970 to 9999."""
    return 0.0 <= t <= T_MAX


def run_time(t: float, newest_t: float | None, set_back_s: float) -> tuple[float, float]:
    """The run time of an event, and the seconds by which the clock was set back before it, in total.

    `t` is the time in the event, `newest_t` the newest run time of the events before it, None for the first event. The
    run time is NaN if `t` is invalid.
    """
    if not is_time(t):
        return math.nan, set_back_s
    moved = t + set_back_s
    if newest_t is None or moved >= newest_t - JITTER_S:
        return min(moved, T_MAX), set_back_s
    return newest_t, newest_t - t

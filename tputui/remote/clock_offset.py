"""How far the clock of a host is ahead of that of the viewer, by messages that go there and back."""

from __future__ import annotations

from typing import NamedTuple

from tputui.telemetry.events import is_time

WINDOW_S = 180.0
"""Seconds for which a measurement counts: clocks drift."""
ROUND_TRIP_MAX_S = 10.0
"""A message that takes longer measures nothing that a viewer could use."""
SET_S = 0.1
"""Measurements that differ by more than their errors and this were made before and after a clock was set."""
MEASUREMENTS_MAX = 64
"""More than there are pings in the window; a host may send any number of answers."""


class _Measurement(NamedTuple):
    t: float
    """Time of the viewer."""
    offset_s: float
    error_s: float
    """Greatest error: half of the time that the measurement took."""


class ClockOffset:
    """The measurements of one connection."""

    def __init__(self) -> None:
        self._recent: list[_Measurement] = []

    def measure(self, sent_t: float, host_t: float, received_t: float) -> float | None:
        """Takes the answer of a host, and returns the clock of the host minus that of the viewer, in seconds.

        Of the measurements of the last minutes the one with the shortest round trip counts. None if there is none.
        """
        error_s = (received_t - sent_t) / 2
        if 0 <= error_s < ROUND_TRIP_MAX_S / 2 and is_time(host_t):
            new = _Measurement(received_t, host_t - (sent_t + received_t) / 2, error_s)
            agreeing = [one for one in self._recent if 0 <= received_t - one.t < WINDOW_S and _agree(one, new)]
            self._recent = [*agreeing, new][-MEASUREMENTS_MAX:]
        best = min(self._recent, key=lambda one: one.error_s, default=None)
        return best.offset_s if best is not None else None


def _agree(one: _Measurement, other: _Measurement) -> bool:
    return abs(one.offset_s - other.offset_s) <= one.error_s + other.error_s + SET_S

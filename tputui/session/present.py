"""The present by the clock of a followed run, which may differ from the clock of the viewer."""

from __future__ import annotations

from collections.abc import Callable

SKEW_S = 5.0
"""Difference of another host's clock, in seconds, from which it is corrected; heartbeats arrive up to a second late."""


class Present:
    """Now in the time of a run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives the unix time of the viewer."""
        self._clock = clock
        self.ahead_s: float | None = None
        """Seconds that the clock of the hosts is ahead of this one, as the connection to them measured it."""
        self.set_s = 0.0
        """Seconds by which the clock of this host was set forward since the run began here."""
        self._skew_s = 0.0
        """Seconds that another host's clock is ahead beyond that, measured when an event arrived."""
        self._caught_up_t = clock()
        """Time of the viewer at which the journals were last read to their end."""

    def note_caught_up(self) -> None:
        """Notes that the journals were read to their end."""
        self._caught_up_t = self._clock()

    def measure_skew(self, newest_t: float) -> None:
        """Measures the clock of another host by an event that just arrived: it was written after the journals were
        last read to their end."""
        ahead_s = newest_t - self.now()
        behind_s = self._of_run(self._caught_up_t) - newest_t
        skew_s = ahead_s if ahead_s > 0 else -max(behind_s, 0.0)
        self._skew_s = skew_s if abs(skew_s) > SKEW_S else 0.0

    def now(self) -> float:
        """The unix time by the clock that the processes of the run have, if that is known."""
        return self._of_run(self._clock())

    def elsewhere(self, heard: float | None) -> float:
        """Now for processes of other hosts; `heard`: time of the viewer after which nothing is known of them."""
        now = self._clock()
        return self._of_run(now if heard is None else min(now, heard)) + self._skew_s

    def _of_run(self, t: float) -> float:
        return t + (self.ahead_s if self.ahead_s is not None else -self.set_s)

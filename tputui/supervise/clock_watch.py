"""Warns if the clock of the system was set while a run goes on."""

from __future__ import annotations

from collections.abc import Callable

from tputui import formatting as fmt
from tputui.telemetry.run_clock import RunClock

WARNED_S = 5.0
"""A clock that is set by less is not reported."""


class ClockWatch:
    """Watches the clock of the system on this host."""

    def __init__(self, clock: RunClock, warn: Callable[[str], None]) -> None:
        self._clock = clock
        self._warn = warn
        self._set_s = 0.0

    def check(self) -> None:
        """Compares the clock of the system with that of the run. Two readings."""
        set_s = self._clock.set_s
        by_s = set_s - self._set_s
        if abs(by_s) < WARNED_S:
            return
        self._set_s = set_s
        where = "forward" if by_s > 0 else "back"
        differs = "" if not set_s else f", which now differ from the clock by {fmt.duration(abs(set_s))}"
        self._warn(
            f"the clock of this host was set {where} by {fmt.duration(abs(by_s))}; the times of this run go on without "
            f"a jump{differs}"
        )

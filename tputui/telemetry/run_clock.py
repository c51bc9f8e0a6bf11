"""The clock of a run on one host: unix time that does not jump when the clock of the system is set.

It is the unix time at which the run began there, plus the time since by a clock that nobody can set. A supervisor
passes its start on to the processes that it starts (`TPUTUI_CLOCK`), so that all of them have one clock. Events get
their times from it, so no time of a run goes back, and no pause appears where there was none.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, MutableMapping

from tputui.telemetry.rundir import host_id

VARIABLE = "TPUTUI_CLOCK"
SET_S = 1.0
"""A smaller difference between the clocks of the run and of the system does not matter."""


def since_boot() -> float:
    """Seconds since this host was booted, also while it was suspended."""
    # Only Linux has this clock. Elsewhere runs can be viewed, and scripts can report one.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class RunClock:
    def __init__(
        self,
        boot_t: float | None = None,
        system: Callable[[], float] = time.time,
        ticks: Callable[[], float] = since_boot,
    ) -> None:
        """`boot_t` is the unix time at which the host was booted, by the clock of the run; None begins a run now."""
        self._system = system
        self._ticks = ticks
        self.boot_t = system() - ticks() if boot_t is None else boot_t
        """Unix time at which the host was booted, by this clock."""
        self._set_s = self._set_before_s = 0.0

    def now(self) -> float:
        """The unix time."""
        return self.boot_t + self._ticks()

    @property
    def set_s(self) -> float:
        """Seconds by which the clock of the system was set forward since the run began; 0 if by less than `SET_S`."""
        forward_s = self._system() - self.now()
        return forward_s if abs(forward_s) > SET_S else 0.0

    def was_set(self) -> bool:
        """Whether the clock of the system was set since the run began; remembers by how much."""
        set_s = self.set_s
        if abs(set_s - self._set_s) > SET_S:
            self._set_before_s, self._set_s = self._set_s, set_s
        return bool(self._set_s or self._set_before_s)

    def of_event(self, t: float) -> float:
        """The time of an event that happened a moment ago, by the clock of the system or by this one.

        The clock of the system may have been set between the event and now.
        """
        if not self.was_set():
            return t
        now = self.now()
        return min(t, t - self._set_s, t - self._set_before_s, key=lambda candidate: abs(candidate - now))

    def pass_on(self, environ: MutableMapping[str, str]) -> None:
        """Has the processes that are started with an environment use this clock."""
        environ[VARIABLE] = f"{self.boot_t!r}@{host_id()}"


@functools.cache
def run_clock() -> RunClock:
    """The clock of the run that started this process, or else one that begins with the first call."""
    boot_t, _, host = os.environ.get(VARIABLE, "").partition("@")
    try:
        value = float(boot_t) if host == host_id() else math.nan
    except ValueError:
        value = math.nan
    return RunClock(value if math.isfinite(value) else None)


def now() -> float:
    """The unix time by the clock of the run of this process."""
    return run_clock().now()

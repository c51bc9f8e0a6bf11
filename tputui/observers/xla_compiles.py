"""Attributes the compilations of a process to the threads that made them: the runtime counts those of all together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tputui.observers.totals import ResettableTotal
from tputui.observers.xla_runtime import XlaRuntime

UNCLAIMED_MAX = 256
SLACK_S = 0.002
"""Clocks of the runtime and of Python may differ by that much."""


class Compilation(NamedTuple):
    """A compilation of one program; times are unix times."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Time inside the compiler."""
        return self.ended - self.began

    def is_within(self, began: float, ended: float) -> bool:
        """Whether it happened between two times."""
        return began - SLACK_S <= self.began and self.ended <= ended + SLACK_S


class Compilations:
    """The compilations that no thread has claimed yet. The caller holds a lock."""

    def __init__(self, runtime: XlaRuntime) -> None:
        times = runtime.compile_times()
        self._runtime = runtime
        self._compiled = ResettableTotal(runtime.compiled())
        self._timed, self._seconds = ResettableTotal(times.total), ResettableTotal(times.seconds)
        self._num_untimed = 0
        """Those that were counted, but whose time was not yet."""
        self._unclaimed: list[Compilation] = []

    def claim_all(self) -> tuple[int, float]:
        """The number of compilations, and the seconds inside the compiler: for the only thread of a process."""
        seconds = self._read()
        count, self._num_untimed = len(self._unclaimed) + self._num_untimed, 0
        if not count:
            return 0, 0.0
        self._unclaimed.clear()
        return count, seconds

    def claim(self, is_own: Callable[[Compilation], bool]) -> list[Compilation]:
        """Removes and returns those for which `is_own` is true, oldest first."""
        self._read()
        if not self._unclaimed:
            return []
        own = [one for one in self._unclaimed if is_own(one)]
        self._unclaimed = [one for one in self._unclaimed if one not in own]
        return own

    def _read(self) -> float:
        """Reads the counters; returns the seconds of all that are unclaimed."""
        before_s = sum(one.seconds for one in self._unclaimed)
        self._num_untimed += int(self._compiled.read(self._runtime.compiled()))
        if self._num_untimed <= 0:
            return before_s
        times = self._runtime.compile_times()
        added = min(int(self._timed.read(times.total)), len(times.samples), self._num_untimed)
        self._num_untimed = max(0, self._num_untimed - added)
        newest = times.samples[len(times.samples) - added :]
        self._unclaimed += [Compilation(ended - seconds, ended) for ended, seconds in newest]
        del self._unclaimed[:-UNCLAIMED_MAX]
        return before_s + self._seconds.read(times.seconds)

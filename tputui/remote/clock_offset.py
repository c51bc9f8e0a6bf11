"""How far the clock of a host is ahead of that of the viewer, by messages that go there and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir
from tputui.telemetry.codec import DamagedLine, decode
from tputui.telemetry.events import JournalOpened, is_time
from tputui.telemetry.files import read_at
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.run_clock import RunClock

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
    def __init__(self) -> None:
        self._recent: list[_Measurement] = []

    def measure(self, sent_t: float, host_t: float, received_t: float) -> float | None:
        """Takes the answer of a host, and returns the clock of the host minus that of the viewer, in seconds.

        Of the measurements of the last minutes the one with the shortest round trip counts. None if there is none.
        """
        error_s = (received_t - sent_t) / 2
        if 0 <= error_s < ROUND_TRIP_MAX_S / 2 and is_time(host_t):
            new = _Measurement(received_t, host_t - (sent_t + received_t) / 2, error_s)
            agreeing = [
                recent for recent in self._recent if 0 <= received_t - recent.t < WINDOW_S and _agree(recent, new)
            ]
            self._recent = [*agreeing, new][-MEASUREMENTS_MAX:]
        best = min(self._recent, key=lambda measurement: measurement.error_s, default=None)
        return best.offset_s if best is not None else None


def _agree(left: _Measurement, right: _Measurement) -> bool:
    return abs(left.offset_s - right.offset_s) <= left.error_s + right.error_s + SET_S


HEAD_BYTES = 4_096
"""A head has less than 1 KB."""


class HostRunTime:
    """The unix time by the clock that the processes of a run have on this host, which differs from that of the system
    if that was set since; by the clock of the system if none of them is from here."""

    def __init__(self, run_dir: Path, system: Callable[[], float]) -> None:
        self._run_dir = run_dir
        self._system = system
        self._clock: RunClock | None = None
        self._heads_read: set[str] = set()
        """Journals whose heads were read."""

    def now(self) -> float:
        if self._clock is None:
            self._clock = self._find_clock()
        return self._system() - (self._clock.set_s if self._clock is not None else 0.0)

    def _find_clock(self) -> RunClock | None:
        try:
            paths = [path for _, path in rundir.journal_paths(self._run_dir) if path.name not in self._heads_read]
        except OSError:
            return None
        for path in paths:
            head = _head(path) if path.name.endswith(SUFFIX) else None
            if head is not None:
                self._heads_read.add(path.name)
            if head is not None and head.host_id == rundir.host_id() and head.boot_t and is_time(head.boot_t):
                return RunClock(head.boot_t, self._system)
        return None


def _head(path: Path) -> JournalOpened | None:
    """The head of a journal; None if it cannot be read, or is not written yet."""
    try:
        line, newline, _ = read_at(path, 0, HEAD_BYTES).partition(b"\n")
        head = decode(line).event if newline else None
    except (OSError, DamagedLine):
        return None
    return head if isinstance(head, JournalOpened) else None

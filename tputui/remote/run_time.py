"""The present by the clock of a run, on the host that streams it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tputui.telemetry import rundir
from tputui.telemetry.codec import DamagedLine, decode
from tputui.telemetry.events import JournalOpened, is_time
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.run_clock import RunClock
from tputui.telemetry.safe_open import open_plain

HEAD_BYTES = 4_096
"""A head has less than 1 KB."""


class RunTime:
    """The unix time by the clock that the processes of a run have on this host, which differs from that of the system
    if that was set since; by the clock of the system if none of them is from here."""

    def __init__(self, run_dir: Path, system: Callable[[], float]) -> None:
        self._run_dir = run_dir
        self._system = system
        self._clock: RunClock | None = None
        self._known: set[str] = set()
        """Journals whose heads were read."""

    def now(self) -> float:
        """The time."""
        if self._clock is None:
            self._clock = self._find_clock()
        return self._system() - (self._clock.set_s if self._clock is not None else 0.0)

    def _find_clock(self) -> RunClock | None:
        try:
            paths = [path for _, path in rundir.journal_paths(self._run_dir) if path.name not in self._known]
        except OSError:
            return None
        for path in paths:
            head = _head(path) if path.name.endswith(SUFFIX) else None
            if head is not None:
                self._known.add(path.name)
            if head is not None and head.host_id == rundir.host_id() and head.boot_t and is_time(head.boot_t):
                return RunClock(head.boot_t, self._system)
        return None


def _head(path: Path) -> JournalOpened | None:
    """The head of a journal; None if it cannot be read, or is not written yet."""
    try:
        fd = open_plain(path)
    except OSError:
        return None
    try:
        line, newline, _ = os.pread(fd, HEAD_BYTES, 0).partition(b"\n")
        head = decode(line).event if newline else None
    except (OSError, DamagedLine):
        return None
    finally:
        os.close(fd)
    return head if isinstance(head, JournalOpened) else None

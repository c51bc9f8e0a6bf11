"""The thread that reads the runs of a directory for the list, and hands over rows.

A run that goes on is followed by a session of its own; one that ended is read once, and again only where one of its
journals changed. Rows are handed over as they come, so that the first stand on the screen while hundreds are still to
be read. Must not know Textual.
"""

from __future__ import annotations

import errno
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tputui.session.session import Session
from tputui.telemetry import rundir
from tputui.ui.base.polling_thread import PollingThread
from tputui.ui.runs.rows import RunRow, row_of

REFRESH_S = 1.0
"""Seconds between two looks at the directory and at the runs that go on."""
TELL_S = 0.1
"""Least seconds between two messages to the screen ..."""
TELL_S_A_ROW = 1e-4
"""... and so many for each run: the screen orders and filters all of them for each message, and keys are to be answered
between."""
MOST_FOLLOWED = 64
"""Runs that are followed at once, each with a few open files; further ones are read anew when they change."""
_SLICE_S = 0.1
"""Longest reading of one run before those that go on are looked at again."""

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each journal."""


class Listing(NamedTuple):
    """What is known of a directory of runs."""

    rows: Mapping[Path, RunRow]
    """By the run's directory, newest first by name."""
    why_not: str
    """Why the directory cannot be listed; empty where it can."""


class RunsReader(PollingThread):
    """Reads runs until stopped."""

    def __init__(self, runs_dir: Path, tell: Callable[[Listing], object], clock: Callable[[], float]) -> None:
        """`tell` is called from the thread; `clock` gives unix time."""
        super().__init__()
        self._runs_dir = runs_dir
        self._tell = tell
        self._clock = clock
        self._rows: dict[Path, RunRow] = {}
        self._signatures: dict[Path, Signature] = {}
        """Of the runs that were read to their end and are not followed."""
        self._sessions: dict[Path, Session] = {}
        self._forget = threading.Event()
        self._told = -math.inf

    def close(self) -> None:
        """Closes what is open."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def reload(self) -> None:
        """Reads every run again, also those that ended."""
        self._forget.set()
        self.wake()

    def poll(self) -> float:
        """Reads what changed in every run."""
        self._read_runs()
        return REFRESH_S

    def _read_runs(self) -> None:
        if self._forget.is_set():
            self._forget.clear()
            self._signatures.clear()
        try:
            paths = rundir.listing(self._runs_dir)
        except OSError as error:
            self._rows = {}
            self._tell(Listing({}, f"{self._runs_dir}: runs cannot be listed: {error.strerror or error}"))
            return
        has_more = any(path not in self._rows for path in paths)
        self._rows = {path: self._rows.get(path) or RunRow(path, "reading") for path in paths}
        for gone in self._sessions.keys() - self._rows.keys():
            self._sessions.pop(gone).close()
        self._follow()
        self._hand_over(at_once=has_more)
        for path in paths:
            if self.is_stopped:
                return
            if path not in self._sessions:
                self._look(path)
        self._hand_over(at_once=True)

    def _look(self, path: Path) -> None:
        """Reads a run that is not followed, unless nothing changed since it was read."""
        try:
            signature = signature_of(path)
        except OSError as error:
            self._rows[path] = _unreadable(path, error)
            self._signatures.pop(path, None)
            return
        if self._signatures.get(path) == signature:
            return
        grew = path in self._signatures
        session = Session.live(path, self._clock)
        while not self.is_stopped:
            self._read(path, session)
            if session.caught_up:
                break
            self._follow()
        if grew and self._rows[path].state == "lost":
            # Its host's clock may differ from this one's: what grows is not lost.
            session.update_clock_skew()
            self._read(path, session)
        if self._rows[path].ended or len(self._sessions) >= MOST_FOLLOWED:
            session.close()
            self._signatures[path] = signature
        else:
            self._sessions[path] = session

    def _follow(self) -> None:
        """Reads on in the runs that go on."""
        for path, session in list(self._sessions.items()):
            self._read(path, session)
            if session.caught_up and self._rows[path].ended:
                # Judged by its processes, it may have ended before its journals were read to their end.
                self._sessions.pop(path).close()

    def _read(self, path: Path, session: Session) -> None:
        session.poll(_SLICE_S)
        self._rows[path] = row_of(path, session.snapshot(), whole=session.caught_up)
        self._hand_over()

    def _hand_over(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._told >= tell_interval_s(len(self._rows)):
            self._told = now
            self._tell(Listing(dict(self._rows), ""))


def tell_interval_s(num_rows: int) -> float:
    """Least seconds between two messages about so many runs."""
    return max(TELL_S, TELL_S_A_ROW * num_rows)


def signature_of(run_dir: Path) -> Signature:
    """What changes when something is written in a run. Raises `OSError` where it cannot be looked into."""
    if why := rundir.why_shut(run_dir):
        raise PermissionError(errno.EACCES, why, str(run_dir))
    found = []
    for name, path in rundir.journal_paths(run_dir):
        told = path.stat()
        found.append((name, told.st_size, told.st_mtime_ns))
    return tuple(found)


def _unreadable(path: Path, error: OSError) -> RunRow:
    return RunRow(path, "unreadable", why=f"it cannot be read: {error.strerror or error}")

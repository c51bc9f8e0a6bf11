"""The thread that reads the runs of a directory for the run list.

An active run keeps an open session; a run that is over is read once, and again only if one of its journals changed.
Rows are sent as they are read, so that the first ones appear while hundreds are still unread. Does not import Textual.
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
"""Seconds between two polls of the directory and of the active runs."""
MESSAGE_INTERVAL_S = 0.1
"""Minimum seconds between two messages to the screen."""
MESSAGE_INTERVAL_S_PER_ROW = 1e-4
"""The same per run: the screen sorts and filters all of them for each message, and must handle keys in between."""
MAX_SESSIONS = 64
"""Active runs with an open session, each with a few open files; others are read from the start on each change."""
_SLICE_S = 0.1
"""Maximum seconds spent on one run before the active ones are polled again."""

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and modification time of each journal."""


class Listing(NamedTuple):
    """The runs of a directory."""

    rows: Mapping[Path, RunRow]
    """By run directory, newest name first."""
    error: str | None
    """Why the directory cannot be listed."""


class RunsReader(PollingThread):
    """Polls every run of a directory."""

    def __init__(self, runs_dir: Path, on_listing: Callable[[Listing], object], clock: Callable[[], float]) -> None:
        """`on_listing` is called in the thread; `clock` returns unix time."""
        super().__init__()
        self._runs_dir = runs_dir
        self._on_listing = on_listing
        self._clock = clock
        self._rows: dict[Path, RunRow] = {}
        self._signatures: dict[Path, Signature] = {}
        """Signatures of the runs without a session, as of when they were read to their end."""
        self._sessions: dict[Path, Session] = {}
        self._must_reload = threading.Event()
        self._last_sent = -math.inf

    def close(self) -> None:
        """Closes every session."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def reload(self) -> None:
        """Reads every run again, also the ones that are over; callable from any thread."""
        self._must_reload.set()
        self.wake()

    def poll(self) -> float:
        """Reads the runs that changed."""
        self._read_runs()
        return REFRESH_S

    def _read_runs(self) -> None:
        if self._must_reload.is_set():
            self._must_reload.clear()
            self._signatures.clear()
        try:
            paths = rundir.listing(self._runs_dir)
        except OSError as error:
            self._rows = {}
            self._on_listing(Listing({}, f"{self._runs_dir}: cannot list runs: {error.strerror or error}"))
            return
        has_new = any(path not in self._rows for path in paths)
        self._rows = {path: self._rows.get(path) or RunRow(path, "reading") for path in paths}
        for gone in self._sessions.keys() - self._rows.keys():
            self._sessions.pop(gone).close()
        self._poll_sessions()
        self._send(now=has_new)
        for path in paths:
            if self.is_stopped:
                return
            if path not in self._sessions:
                self._read_if_changed(path)
        self._send(now=True)

    def _read_if_changed(self, path: Path) -> None:
        """Reads a run without a session unless it is unchanged since the last time."""
        try:
            signature = signature_of(path)
        except OSError as error:
            self._rows[path] = _unreadable(path, error)
            self._signatures.pop(path, None)
            return
        if self._signatures.get(path) == signature:
            return
        has_changed = path in self._signatures
        session = Session.live(path, self._clock)
        while not self.is_stopped:
            self._read(path, session)
            if session.caught_up:
                break
            self._poll_sessions()
        if has_changed and self._rows[path].state == "lost":
            # The clock of its host may differ from ours: a run that still writes is not lost.
            session.update_clock_skew()
            self._read(path, session)
        if self._rows[path].ended or len(self._sessions) >= MAX_SESSIONS:
            session.close()
            self._signatures[path] = signature
        else:
            self._sessions[path] = session

    def _poll_sessions(self) -> None:
        """Reads the active runs."""
        for path, session in list(self._sessions.items()):
            self._read(path, session)
            if session.caught_up and self._rows[path].ended:
                # Its processes may be gone before its journals are read to their end.
                self._sessions.pop(path).close()

    def _read(self, path: Path, session: Session) -> None:
        session.poll(_SLICE_S)
        self._rows[path] = row_of(path, session.snapshot(), complete=session.caught_up)
        self._send()

    def _send(self, *, now: bool = False) -> None:
        time_s = time.monotonic()
        if now or time_s - self._last_sent >= message_interval_s(len(self._rows)):
            self._last_sent = time_s
            self._on_listing(Listing(dict(self._rows), None))


def message_interval_s(num_rows: int) -> float:
    """Minimum seconds between two messages about `num_rows` runs."""
    return max(MESSAGE_INTERVAL_S, MESSAGE_INTERVAL_S_PER_ROW * num_rows)


def signature_of(run_dir: Path) -> Signature:
    """A value that changes whenever a journal of the run does. Raises `OSError` if the run cannot be read."""
    if reason := rundir.why_shut(run_dir):
        raise PermissionError(errno.EACCES, reason, str(run_dir))
    signature = []
    for name, path in rundir.journal_paths(run_dir):
        status = path.stat()
        signature.append((name, status.st_size, status.st_mtime_ns))
    return tuple(signature)


def _unreadable(path: Path, error: OSError) -> RunRow:
    return RunRow(path, "unreadable", reason=f"cannot be read: {error.strerror or error}")

"""The thread that reads the rows of the run list from the runs of a directory. Does not import Textual."""

from __future__ import annotations

import errno
import math
import operator
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tputui.session.session import Session
from tputui.telemetry import rundir
from tputui.ui.base.reader_thread import PollingThread
from tputui.ui.runs.rows import Listing, ReadLabels, RunRow, labels_of, row_of

REFRESH_S = 1.0
"""Seconds between two polls of the directory and of the active runs."""
CHECK_SHARE = 0.001
"""Maximum share of a processor for checks whether runs that are over have changed: those of many runs are rarer."""
CHECK_MOST_S = 30.0
"""Maximum seconds between two such checks, however many runs there are."""
AGES_S = ((60.0, REFRESH_S), (3_600.0, 10.0), (math.inf, 60.0))
"""Seconds since the newest event of all runs, and seconds between two listings without news up to there: ages of a
minute and more are shown in minutes or longer units."""
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


class RunsReader(PollingThread):
    """Polls every run of a directory.

    An active run keeps an open session; a run that is over is read once, and again only if one of its journals changed.
    Rows are sent as they are read, so that the first ones appear while hundreds are still unread.
    """

    def __init__(self, runs_dir: Path, on_listing: Callable[[Listing], object], clock: Callable[[], float]) -> None:
        """`on_listing` is called in the thread; `clock` returns unix time."""
        super().__init__()
        self._runs_dir = runs_dir
        self._on_listing = on_listing
        self._clock = clock
        self._rows: dict[Path, RunRow] = {}
        self._signatures: dict[Path, Signature] = {}
        """Signatures of the runs without a session, as of when they were read to their end."""
        self._labels: dict[Path, ReadLabels] = {}
        """Only runs with a file of labels."""
        self._sessions: dict[Path, Session] = {}
        self._must_check = threading.Event()
        self._must_reload = threading.Event()
        self._modified_ns: int | None = None
        """Time at which the directory was modified, as of the last check."""
        self._num_skipped = 0
        """Polls that the next check of the directory and of the runs without a session is put off."""
        self._last_sent = -math.inf
        self._sent: list[RunRow] | None = None
        """The rows of the last listing; None if it was an error, or there was none."""

    def close(self) -> None:
        """Closes every session."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def wake(self) -> None:
        """Looks for changes at once; callable from any thread."""
        self._must_check.set()
        super().wake()

    def reload(self) -> None:
        """Reads every run again, also the ones that are over; callable from any thread."""
        self._must_reload.set()
        self.wake()

    def poll(self) -> float:
        """Reads the runs that changed."""
        self._poll_sessions()
        try:
            self._check_if_due()
        except OSError as error:
            self._rows, self._sent = {}, None
            self.close()
            self._on_listing(Listing({}, f"{self._runs_dir}: cannot list runs: {error.strerror or error}"))
        else:
            self._send_if_changed()
        return REFRESH_S

    def _check_if_due(self) -> None:
        """Looks for runs that are new or have changed; the more runs there are, the more rarely."""
        modified_ns = _modified_ns(self._runs_dir)
        is_due = self._num_skipped <= 0 or modified_ns != self._modified_ns or self._must_check.is_set()
        self._num_skipped -= 1
        if is_due:
            self._must_check.clear()
            self._modified_ns, self._num_skipped = modified_ns, 0
            began_s = time.thread_time()
            if not self._check():
                took_s = time.thread_time() - began_s
                self._num_skipped = int(min(took_s / CHECK_SHARE, CHECK_MOST_S) / REFRESH_S)

    def _check(self) -> bool:
        """Reads the runs that are new or have changed; returns whether there were any. Raises `OSError`."""
        if self._must_reload.is_set():
            self._must_reload.clear()
            self._signatures.clear()
        paths = rundir.listing(self._runs_dir)
        has_changed = any(path not in self._rows for path in paths)
        self._rows = {path: self._rows.get(path) or RunRow(path, "reading") for path in paths}
        for gone in self._sessions.keys() - self._rows.keys():
            self._sessions.pop(gone).close()
        has_changed |= self._read_labels(paths)
        if has_changed:
            self._send(now=True)
        for path in paths:
            if self.is_stopped:
                break
            if path not in self._sessions:
                has_changed |= self._read_if_changed(path)
        return has_changed

    def _send_if_changed(self) -> None:
        """Sends the rows if they or their ages have changed."""
        rows, sent = list(self._rows.values()), self._sent
        is_same = sent is not None and len(sent) == len(rows) and all(map(operator.is_, sent, rows))
        if not is_same or self._has_older_ages():
            self._send(now=True)

    def _has_older_ages(self) -> bool:
        """Whether a displayed age may differ from the last listing."""
        newest_s = self._clock() - max((row.newest_event or 0.0 for row in self._rows.values()), default=0.0)
        interval_s = next((interval_s for age_s, interval_s in AGES_S if newest_s <= age_s), REFRESH_S)
        return time.monotonic() - self._last_sent >= interval_s - _SLICE_S

    def _read_labels(self, paths: Sequence[Path]) -> bool:
        """Reads the labels that changed; returns whether any did."""
        read = {path: labels for path in paths if (labels := labels_of(path, self._labels.get(path))) is not None}
        before, self._labels = self._labels, read
        return read != before

    def _read_if_changed(self, path: Path) -> bool:
        """Reads a run without a session unless it is unchanged since the last time; returns whether it read it."""
        try:
            signature = signature_of(path)
        except OSError as error:
            self._signatures.pop(path, None)
            return self._set_row(path, _unreadable(path, error))
        if self._signatures.get(path) == signature:
            return False
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
        return True

    def _poll_sessions(self) -> None:
        """Reads the active runs."""
        for path, session in list(self._sessions.items()):
            self._read(path, session)
            if session.caught_up and self._rows[path].ended:
                # Its processes may be gone before its journals are read to their end.
                self._sessions.pop(path).close()
                self._num_skipped = 0

    def _read(self, path: Path, session: Session) -> None:
        session.poll(_SLICE_S)
        if self._set_row(path, row_of(path, session.snapshot(), complete=session.caught_up)):
            self._send()

    def _set_row(self, path: Path, row: RunRow) -> bool:
        """Replaces the row of a run; returns whether it differs."""
        has_changed = row != self._rows[path]
        if has_changed:
            self._rows[path] = row
        return has_changed

    def _send(self, *, now: bool = False) -> None:
        time_s = time.monotonic()
        if now or time_s - self._last_sent >= message_interval_s(len(self._rows)):
            self._last_sent, self._sent = time_s, list(self._rows.values())
            labels = self._labels
            rows = {path: row.with_labels(labels[path]) if path in labels else row for path, row in self._rows.items()}
            self._on_listing(Listing(rows, None))


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


def _modified_ns(directory: Path) -> int | None:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return None


def _unreadable(path: Path, error: OSError) -> RunRow:
    return RunRow(path, "unreadable", reason=f"cannot be read: {error.strerror or error}")

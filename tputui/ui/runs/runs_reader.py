"""The thread that reads the rows of the run list from the runs of a directory. Does not import Textual.

The rows of logs of other programs in the run list, the thread that finds them, and their union with the runs.

Logs are found by the names of their files, below the directory of the runs and the folders of the user's configuration
file. What was read of a log when it was opened comes from the run directory of its import. Does not import Textual.
"""

from __future__ import annotations

import errno
import math
import operator
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.log_import import place
from tputui.log_import.scan import BOUNDS, Bounds, FoundLog, find_logs
from tputui.session.session import Session
from tputui.telemetry import rundir
from tputui.ui.base.reader_thread import PollingThread
from tputui.ui.runs.rows import Listing, ReadLabels, RunRow, labels_of, row_of
from tputui.user_config import LogSource, read_user_config

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


SCAN_S = 5.0
"""Least seconds between two searches for logs ..."""
SCAN_TIMES = 50.0
"""... and this many times as long as a search takes ..."""
SCAN_SHARE = 0.0005
"""... and so many that searches take at most this share of a processor ..."""
SCAN_MOST_S = 60.0
"""... unless a new log would be listed later than this."""


class LogListing(NamedTuple):
    """The logs below the searched folders."""

    rows: Mapping[Path, RunRow] = {}
    """By path, newest change first."""
    notices: tuple[str, ...] = ()
    """Folders that were not searched in full, and problems of the user's configuration file."""
    is_cut: bool = False
    """Whether there may be more logs."""


class LogsReader(PollingThread):
    """Searches for logs from time to time. Sends a listing only if it differs from the last one."""

    def __init__(
        self,
        runs_dir: Path,
        config_path: Path | None,
        on_listing: Callable[[LogListing], object],
        clock: Callable[[], float] = time.time,
        *,
        bounds: Bounds = BOUNDS,
    ) -> None:
        """`config_path` is the user's configuration file; `on_listing` is called in the thread."""
        super().__init__()
        self._runs_dir = runs_dir
        self._config_path = config_path
        self._on_listing = on_listing
        self._clock = clock
        self._bounds = bounds
        self._read: dict[Path, tuple[Signature, RunRow]] = {}
        """What was read of each imported log, and the signature of its run directory at that time."""
        self._sent: LogListing | None = None

    def close(self) -> None:
        """Nothing to close."""

    def reload(self) -> None:
        """Sends the next listing also if nothing changed; callable from any thread."""
        self._sent = None
        self.wake()

    def poll(self) -> float:
        """Searches once."""
        began, began_cpu = time.monotonic(), time.thread_time()
        config = read_user_config(self._config_path)
        sources = (LogSource(self._runs_dir, ""), *config.sources)
        scan = find_logs(sources, bounds=self._bounds, is_stopped=lambda: self.is_stopped)
        if self.is_stopped:
            return SCAN_S
        rows = {log.path: self._row(log) for log in scan.logs}
        listing = LogListing(rows, (*config.problems, *scan.limits), bool(scan.limits))
        if listing != (self._sent or LogListing()):
            self._sent = listing
            self._on_listing(listing)
        cpu_s = time.thread_time() - began_cpu
        return max(SCAN_S, SCAN_TIMES * (time.monotonic() - began), min(cpu_s / SCAN_SHARE, SCAN_MOST_S))

    def _row(self, log: FoundLog) -> RunRow:
        files = f"{log.form}, {fmt.counted(log.num_files, 'file')}, {fmt.size(log.num_bytes)}"
        imported = place.imported(log.path, os.environ)
        row = self._imported_row(imported.run_dir) if imported is not None else None
        if imported is None or row is None:
            row, reason = RunRow(log.path, "log"), "not read yet, enter reads it"
        else:
            reason = "changed since it was read" if imported.is_behind(log.newest_t) else "read before"
        return row._replace(
            path=log.path,
            name_shown=log.name,
            state="log",
            reason=f"{reason}; {files}",
            form=log.form,
            created=log.newest_t,
            newest_event=log.newest_t,
        )

    def _imported_row(self, run_dir: Path) -> RunRow | None:
        """The values that were read of a log; None if they cannot be read."""
        try:
            signature = signature_of(run_dir)
        except OSError:
            return None
        cached = self._read.get(run_dir)
        if cached is not None and cached[0] == signature:
            return cached[1]
        session = Session.live(run_dir, self._clock)
        try:
            while not session.caught_up and not self.is_stopped:
                session.poll(_SLICE_S)
            row = row_of(run_dir, session.snapshot(), complete=True)
        except OSError:
            return None  # it is being replaced
        finally:
            session.close()
        self._read[run_dir] = signature, row
        return row


class ListReaders:
    """The threads that read the rows of the list: one for the runs, one for logs."""

    def __init__(
        self,
        runs_dir: Path,
        config_path: Path | None,
        on_listing: Callable[[Listing], object],
        clock: Callable[[], float],
    ) -> None:
        """`on_listing` is called in either thread, as soon as the runs were listed."""
        self._on_listing = on_listing
        self._lock = threading.Lock()
        self._runs: Listing | None = None
        self._logs = LogListing()
        self._runs_reader = RunsReader(runs_dir, self._take_runs, clock)
        self._logs_reader = LogsReader(runs_dir, config_path, self._take_logs, clock)
        self.threads: tuple[Callable[[], None], ...] = (self._runs_reader.run, self._logs_reader.run)
        """To be run in a thread each."""

    def wake(self) -> None:
        """Polls at once."""
        self._runs_reader.wake()
        self._logs_reader.wake()

    def reload(self) -> None:
        """Reads every run again, also the ones that are over."""
        self._runs_reader.reload()
        self._logs_reader.reload()

    def stop(self) -> None:
        """Ends the threads."""
        self._runs_reader.stop()
        self._logs_reader.stop()

    def _take_runs(self, listing: Listing) -> None:
        with self._lock:
            self._runs = listing
            self._send()

    def _take_logs(self, listing: LogListing) -> None:
        with self._lock:
            self._logs = listing
            self._send()

    def _send(self) -> None:
        runs, logs = self._runs, self._logs
        if runs is not None:
            rows = {**logs.rows, **runs.rows} if runs.error is None else {}
            self._on_listing(runs._replace(rows=rows, more_logs=logs.is_cut, notices=logs.notices))

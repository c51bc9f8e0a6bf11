"""The rows of logs of other programs in the run list, the thread that finds them, and their union with the runs.

Logs are found by the names of their files, below the directory of the runs and the folders of the user's configuration
file. What was read of a log when it was opened comes from the run directory of its import. Does not import Textual.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.log_import import place
from tputui.log_import.scan import BOUNDS, Bounds, FoundLog, find_logs
from tputui.session.session import Session
from tputui.ui.base.reader_thread import PollingThread
from tputui.ui.runs.rows import Listing, RunRow, row_of
from tputui.ui.runs.runs_reader import RunsReader, Signature, signature_of
from tputui.user_config import LogSource, read_user_config

SCAN_S = 5.0
"""Least seconds between two searches for logs ..."""
SCAN_TIMES = 50.0
"""... and this many times as long as a search takes ..."""
SCAN_SHARE = 0.0005
"""... and so many that searches take at most this share of a processor ..."""
SCAN_MOST_S = 60.0
"""... unless a new log would be listed later than this."""
_SLICE_S = 0.1


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

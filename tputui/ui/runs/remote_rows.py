"""The rows of the runs of another machine, and the thread that asks for them over ssh. Does not import Textual."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tputui.remote.address import Host
from tputui.remote.run_list import CannotList, list_runs
from tputui.remote.ssh_command import InvalidProgram
from tputui.state.listed_run import ListedRun
from tputui.telemetry.run_labels import RunLabels
from tputui.ui.base.reader_thread import PollingThread
from tputui.ui.runs.logs import ListReaders
from tputui.ui.runs.rows import Listing, RunRow, row_of_listed

REFRESH_S = 10.0
"""Seconds between two lists; the host reads its runs for each."""


class RemoteRuns(NamedTuple):
    """The runs of another machine."""

    host: Host
    runs_dir: str | None
    """Their directory there; None for its default."""

    @property
    def shown(self) -> Path:
        """Where they are, in the header."""
        return Path(f"{self.host}:{self.runs_dir or 'runs'}")


class RemoteReader(PollingThread):
    """Lists the runs of another machine from time to time."""

    def __init__(self, remote: RemoteRuns, on_listing: Callable[[Listing], object]) -> None:
        """`on_listing` is called in the thread."""
        super().__init__()
        self._host, self._runs_dir = remote
        self._on_listing = on_listing
        self._sent: Listing | None = None
        self.threads: Sequence[Callable[[], None]] = (self.run,)
        """To be run in a thread each."""

    def poll(self) -> float:
        """Lists the runs once. If that fails, the rows stay and a notice says why."""
        try:
            rows = [row_of_remote(run, self._host) for run in list_runs(self._host, self._runs_dir, os.environ)]
            listing = Listing({row.path: row for row in rows}, None)
        except (CannotList, InvalidProgram) as error:
            before = self._sent.rows if self._sent is not None else {}
            listing = Listing(before, None, notices=(str(error),)) if before else Listing({}, str(error))
        if not self.is_stopped:
            self._sent = listing
            self._on_listing(listing)
        return REFRESH_S

    def reload(self) -> None:
        """Lists the runs now."""
        self.wake()


def readers_of(
    runs_dir: Path,
    remote: RemoteRuns | None,
    user_config: Path | None,
    on_listing: Callable[[Listing], object],
    clock: Callable[[], float],
) -> ListReaders | RemoteReader:
    """The threads that read the rows: of another machine, or of a directory with the logs that `user_config` names."""
    return RemoteReader(remote, on_listing) if remote else ListReaders(runs_dir, user_config, on_listing, clock)


def row_of_remote(run: ListedRun, host: Host) -> RunRow:
    """The row of a run of another machine; its path is that on the host."""
    labels = RunLabels(
        pinned=bool(run.pinned), archived=bool(run.archived), tags=tuple(run.tags or ()), note=run.note or ""
    )
    return row_of_listed(run)._replace(host=str(host), labels=labels)

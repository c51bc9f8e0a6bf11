"""Runs a program until a command has seen enough of it."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tputui.cli import launch
from tputui.session.session import Session
from tputui.state.snapshot import ENDED, Snapshot
from tputui.supervise.command import RunCommand
from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind
from tputui.telemetry.merge import JournalEvent

STOP_GRACE_S = 15.0
"""Seconds from SIGINT to SIGTERM for a command."""
_EXIT_WAIT_S = 60.0
_POLL_S = 0.1


def follow(
    run_dir: Path,
    command: RunCommand | None,
    ask: Callable[[Snapshot, Sequence[JournalEvent]], RequestKind | None],
    by: str,
) -> None:
    """Starts a run and follows it to its end. No process of it is left afterwards, whatever is raised.

    `ask` gets the newest snapshot with the events since the one before, and returns a request to the run, mostly None.
    """
    supervisor = launch.start_supervisor(run_dir, command)
    try:
        with contextlib.closing(Session.live(run_dir)) as source:
            is_done = False
            while not is_done:
                settled = source.settled
                events = source.poll()
                snapshot = source.snapshot()
                is_done = snapshot.condition in ENDED and settled and not events
                kind = ask(snapshot, events)
                if kind is not None and snapshot.condition not in ENDED:
                    requests.submit(run_dir, kind, by=by, now=time.time())
                if not is_done:
                    time.sleep(_POLL_S)
        launch.wait_settled(supervisor)
    finally:
        _end(supervisor)


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Ends a run that was interrupted."""
    if supervisor.poll() is None:
        supervisor.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(_EXIT_WAIT_S)

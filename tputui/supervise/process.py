"""`CommandProcess`: the running command of a supervisor."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from tputui.supervise import spawn
from tputui.supervise.log_tail import Printed
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import requests


class CommandProcess:
    """A process that keeps the promise of `RunCommand.writer`: it reports everything and acts on every request, so
    nothing is done in its place. `Script` is one that promises nothing."""

    subject = "training"
    """What sentences say does not stop."""
    stop_now_by = requests.BY_SIGTERM
    """Who requests a stop at once after a stop that took too long."""
    stop_grace_s = math.inf
    """Seconds from a request to stop until SIGTERM."""
    exit_grace_s = 0.0
    """Seconds in which what the command left may finish."""
    silence: str | None = None
    """For how long the command has been silent, if that is unusual."""
    is_end_noticed = False
    """Whether the supervisor has noticed the end of the command. SIGTERM to all processes of a run may end the
    command before that; it still counts as a stop."""

    def __init__(self, pid: int, state: WorkerState) -> None:
        self.pid = pid
        self._state = state
        self.refused: set[str] = set()
        """Ids of the requests that were refused in its place."""

    @property
    def newest_step(self) -> int:
        """Newest step that the command or its output reported."""
        return self._state.newest_step

    @property
    def takes_stacks(self) -> bool:
        """Whether it answers a request for stacks, or prints them by a signal."""
        return True

    def take_console(self, parts: list[Printed], *, is_cut: bool = False) -> None:
        """Takes parts of the output. `is_cut`: some are left out."""

    def poll(self, now: float, tick: float) -> bool:
        """Reads what the command wrote; returns whether it has become silent. `now` is unix time, `tick` a monotonic
        time."""
        return False

    def on_request(self, request: requests.Request, now: float) -> bool:
        """Acts on a request; returns whether a grace period begins, after which the command must be stopped."""
        return False

    def signal_left(self) -> None:
        """Passes the signal of a stop on to what trains on after the command has ended by it."""

    def kill(self) -> None:
        spawn.kill_group(self.pid)

    def flush(self) -> None:
        """Writes the journal about the command, so that others can read it; waits briefly."""

    def report_failure(self, log: Path, returncode: int) -> list[str] | None:
        """Reports a failure that the command did not report. Returns the last lines that were printed before it; None
        if nothing was reported here."""
        return None

    def finish(self, outcome: ev.Outcome, reason: str, is_stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Reads the rest of what the command wrote, until a stop is requested, and closes its journal."""

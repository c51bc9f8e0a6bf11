"""A running run and the viewer that started it: real processes, which are killed after the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from tests import forked
from tests.cli.helpers import CommandResult
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.telemetry import events as ev


class LiveRun:
    """A running run, and the viewer that started it."""

    def __init__(self, run_dir: Path, viewer: subprocess.Popen[str] | forked.PipedProcess) -> None:
        self.dir = run_dir
        self.viewer = viewer

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor."""
        return events_in(self.dir, "supervisor-0", ev.JournalOpened)[0].pid

    @property
    def worker_pid(self) -> int:
        """Process id of the training process."""
        return events_in(self.dir, "supervisor-0", ev.WorkerStarted)[0].pid

    def step(self) -> int:
        """Newest step whose losses are in the journal."""
        return max(
            (event.first + event.n - 1 for event in events_in(self.dir, "worker-0", ev.StepsRecorded)), default=0
        )

    def trains_on(self) -> None:
        """Waits for another step."""
        before = self.step()
        wait_for(lambda: self.step() > before, "another step")

    def left(self) -> CommandResult:
        """The output of the viewer, after it has ended."""
        out, err = self.viewer.communicate(timeout=DEADLINE_S)
        return CommandResult(self.viewer.wait(), out, err)

    def gone(self) -> None:
        """Waits until no process of the run is alive."""
        wait_for(lambda: not processes_of(self.dir), "the end of every process")

    def clean_up(self) -> None:
        """Kills the processes that are left."""
        viewers = [self.viewer.pid] if self.viewer.poll() is None else []
        for pid in [*viewers, *processes_of(self.dir)]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
        self.viewer.communicate()


def processes_of(run_dir: Path) -> list[int]:
    """Every process with the run's directory on its command line, except viewers."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            argv = (entry / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(run_dir) in argv and b"tputui" not in argv and is_running(int(entry.name)):
                pids.append(int(entry.name))
    return pids

"""A run that goes on, with the viewer that started it: real processes, none of which outlives the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.cli.helpers import Said
from tests.supervise.harness import facts, is_running, wait_for
from tputui.telemetry import events as ev


class LiveRun:
    """A run that goes on, and the viewer that started it. Subclasses say how patient they are."""

    patience_s: ClassVar[float]
    """Longest wait for anything that is to come of it."""

    def __init__(self, run_dir: Path, viewer: subprocess.Popen[str]) -> None:
        self.dir = run_dir
        self.viewer = viewer

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor."""
        return facts(self.dir, "supervisor-0", ev.JournalOpened)[0].pid

    @property
    def worker_pid(self) -> int:
        """Process id of the training process."""
        return facts(self.dir, "supervisor-0", ev.WorkerStarted)[0].pid

    def step(self) -> int:
        """Newest step whose losses are in the journal."""
        return max((fact.first + fact.n - 1 for fact in facts(self.dir, "worker-0", ev.StepsRecorded)), default=0)

    def trains_on(self) -> None:
        """Waits until it has made another step."""
        before = self.step()
        wait_for(lambda: self.step() > before, "another step", self.patience_s)

    def left(self) -> Said:
        """What the viewer said, once it is gone."""
        out, err = self.viewer.communicate(timeout=self.patience_s)
        return Said(self.viewer.returncode, out, err)

    def gone(self) -> None:
        """Waits until no process of the run lives."""
        wait_for(lambda: not processes_of(self.dir), "the end of every process", self.patience_s)

    def clean_up(self) -> None:
        """Ends what is left of it."""
        viewers = [self.viewer.pid] if self.viewer.poll() is None else []
        for pid in [*viewers, *processes_of(self.dir)]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
        self.viewer.communicate()


def processes_of(run_dir: Path) -> list[int]:
    """Every living process that was started with the run's directory on its command line, but viewers."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(run_dir) in words and b"tputui" not in words and is_running(int(entry.name)):
                found.append(int(entry.name))
    return found

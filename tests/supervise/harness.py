"""Real supervisors over small real workers, and helpers that wait for events instead of sleeping."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TypeVar

from tests import recorded
from tests.deadline import DEADLINE_S
from tputui.supervise import spawn
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import Tail

_Value = TypeVar("_Value")
_Event = TypeVar("_Event", bound=ev.Event)

_BOOT = """
import resource, sys
from pathlib import Path
from tputui.supervise.escalation import Timing
from tputui.supervise.spawn import own_command
from tputui.supervise.supervisor import Supervisor

run_dir, program, timing, file_bytes_max = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3]), int(sys.argv[4])
if file_bytes_max:
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
command = own_command([sys.executable, "-P", program, str(run_dir)], 0)
sys.exit(Supervisor(run_dir, command=command, timing=Timing(**timing)).run())
"""

_WORKER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from threading import Event
from tputui.telemetry import requests, events as ev
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

run_dir = Path(sys.argv[1])
reporter = Reporter(run_dir, "worker")
inbox = requests.Inbox(run_dir)

def beat(step):
    reporter.emit(ev.HeartbeatSent(t=time.time(), phase="executing", phase_s=0.0, step=step, epoch=1))

def end(outcome, code, reason="as the test wants it", step=7):
    reporter.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=step, reason=reason))
    reporter.close()
    sys.exit(code)

def next_request():
    while True:
        for request in inbox.poll():
            # The supervisor asks for stacks itself if this process is starved for long.
            if (request.kind, request.by) != ("stacks", "stall"):
                return request
        Event().wait(0.02)

beat(1)
"""


def wait_for(condition: Callable[[], _Value | None], event: str, deadline_s: float = DEADLINE_S) -> _Value:
    """Polls `condition` until it returns a true value, and returns that; fails after the deadline."""
    deadline = time.monotonic() + deadline_s
    pause = Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {event}"
        pause.wait(0.02)


def events_in(run_dir: Path, writer: str, kind: type[_Event]) -> list[_Event]:
    """The events of one type in a journal so far."""
    try:
        tail = Tail(run_dir / f"{writer}.jsonl")
    except FileNotFoundError:
        return []
    events: list[_Event] = []
    while numbered_events := tail.read():
        events += [numbered.event for numbered in numbered_events if isinstance(numbered.event, kind)]
    tail.close()
    return events


def text_of(path: Path) -> str:
    """The text of a file; empty if there is no such file yet."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def is_running(pid: int) -> bool:
    """Whether a process is alive and not a zombie."""
    return rundir.start_ticks(pid) != 0


class Watched:
    """A supervisor over a worker program, in a run directory of its own."""

    def __init__(self, run_dir: Path, process: subprocess.Popen[bytes]) -> None:
        self.run_dir = run_dir
        self.process = process

    def events(self, kind: type[_Event]) -> list[_Event]:
        """The events of one type that the supervisor recorded so far."""
        return events_in(self.run_dir, "supervisor-0", kind)

    def worker_pid(self) -> int:
        """Process id of the worker, once it has opened its journal."""
        wait_for(lambda: events_in(self.run_dir, "worker-0", ev.HeartbeatSent), "the worker's first heartbeat")
        return self.events(ev.WorkerStarted)[0].pid

    def ended(self) -> ev.RunEnded:
        """The end event, once the supervisor is gone."""
        self.process.wait(DEADLINE_S)
        return self.events(ev.RunEnded)[0]

    def log(self) -> str:
        """The output of the supervisor."""
        return (self.run_dir / spawn.SUPERVISOR_LOG).read_text()


class Bench:
    """Starts supervisors for a test and leaves none of them behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watched: list[Watched] = []

    def supervise(
        self,
        program: str,
        *,
        file_bytes_max: int = 0,
        config: dict[str, object] | None = None,
        env: dict[str, str] | None = None,
        fault: str = "",
        **timing: float,
    ) -> Watched:
        """Starts a supervisor over `program`, which continues the start of a worker given in `_WORKER`.

        `fault` is code that breaks a part of the supervisor in its process.
        """
        name = f"run-{len(self._watched)}"
        manifest = recorded.manifest(name)
        run_dir = rundir.create(
            self._folder,
            rundir.Manifest(
                **{**{key: getattr(manifest, key) for key in manifest.__struct_fields__}, **(config or {})}
            ),
        )
        path = self._folder / f"{name}.py"
        path.write_text(_WORKER + textwrap.dedent(program))
        with (run_dir / spawn.SUPERVISOR_LOG).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", fault + _BOOT, str(run_dir), str(path), repr(timing), str(file_bytes_max)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                cwd=self._folder,
                start_new_session=True,
            )
        watched = Watched(run_dir, process)
        self._watched.append(watched)
        wait_for(lambda: watched.events(ev.WorkerStarted) or process.poll() is not None, "the start of the worker")
        return watched

    def clean_up(self) -> None:
        """Kills the processes that a failed test left running."""
        for watched in self._watched:
            if watched.process.poll() is None:
                watched.process.kill()
                watched.process.wait()
            for started in watched.events(ev.WorkerStarted):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)

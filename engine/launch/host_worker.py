"""The training process of this host, whoever starts it: what the launcher does at its start and at its end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from engine.launch import exits
from engine.launch.host_watch import HostWatch
from engine.launch.plan import LaunchPlan
from engine.launch.stop_signal import StoppedEarly
from engine.launch.supervisor_pipe import SupervisorPipe
from tputui.telemetry import events as ev
from tputui.telemetry import run_clock
from tputui.telemetry.launch_messages import LaunchFailed
from tputui.telemetry.process_end import worker_exited


class HostWorker:
    """Reports starts and exits of the training process, and ends it."""

    def __init__(self, plan: LaunchPlan, pipe: SupervisorPipe) -> None:
        self._plan = plan
        self._pipe = pipe
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._began = 0.0
        self._is_killed = False
        """Whether the launcher killed it because of another host."""
        self.returncode: int | None = None
        """How the last one ended: its exit code, or the negative number of a signal; None before the first end."""

    @property
    def is_running(self) -> bool:
        """Whether a training process was started and has not been reaped."""
        return self._pid is not None

    def started(self, pid: int) -> None:
        """A training process was started, as the leader of a process group."""
        with self._lock:
            self._pid, self._began, self._is_killed = pid, run_clock.now(), False
        self._pipe.emit(ev.WorkerStarted(t=self._began, pid=pid, argv=self._plan.worker_argv))

    def exited(self, returncode: int, generation: int, watch: HostWatch, stopped: StoppedEarly | None = None) -> None:
        """The training process was reaped. Finds out and publishes why it failed, if it did.

        `stopped`: the launcher has passed a request to stop on to it.
        """
        with self._lock:
            pid, self._pid = self._pid, None
        if pid is None:
            return
        self.returncode = returncode
        # Processes that it started and left behind.
        _kill_group(pid)
        self._pipe.emit(worker_exited(run_clock.now(), pid, returncode))
        failure = None
        if stopped is not None and returncode in (-signal.SIGTERM, -signal.SIGKILL):
            # It did not train yet, and could not handle the signal.
            returncode = self.returncode = stopped.code
            self._pipe.send(LaunchFailed(code=stopped.code, reason=str(stopped)))
            watch.stop(str(stopped))
        elif returncode != 0 and not self._is_killed:
            plan = self._plan
            failure = exits.failure_of(plan.run_dir, plan.index, generation, returncode, pid, self._began)
        if failure is not None:
            # The supervisor reports it now; the training process may be started again.
            self._pipe.send(failure)
        watch.exited(failure, returncode)

    def kill(self) -> None:
        """Kills the training process and all that it started, because of another host."""
        with self._lock:
            if self._pid is not None:
                self._is_killed = True
                _kill_group(self._pid)

    def forward(self, number: int) -> None:
        """Sends a signal to the training process."""
        pid = self._pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

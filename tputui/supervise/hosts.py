"""`Launch` starts the command of a run; `HostLaunch` starts the launcher of this host in its place.

The launcher joins the other hosts of the run and runs the training process. It is used if the run has several hosts, or
is restarted by torchrun. It reports through a pipe what happens to the training process here and on the other hosts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tputui.config import LaunchConfig
from tputui.exit_codes import ExitCode
from tputui.supervise import spawn
from tputui.supervise.command import RunCommand
from tputui.supervise.outcome import WorkerEnd, end_text, run_ended
from tputui.telemetry import events as ev
from tputui.telemetry import launch_messages as messages
from tputui.telemetry.codec import DamagedLine
from tputui.telemetry.process_end import FOLLOWING
from tputui.telemetry.requests import STOPS

_READ_BYTES = 1 << 16

_CODES = frozenset(int(code) for code in ExitCode)


class Launch:
    """Starts a command as a child of the supervisor."""

    exited: ev.WorkerExited | None = None
    """How the newest training process of this host ended, as its launcher reported it; None while one runs."""

    def __init__(self, command: RunCommand, emit: Callable[[ev.Event], None]) -> None:
        self._command = command
        self._emit = emit

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Starts the command; its output is appended to `log`. Raises `OSError`."""
        return spawn.start_command(self._command, log)

    def record_start(self, pid: int) -> None:
        """Records the start of the process that `start` returned."""
        self._emit(ev.WorkerStarted(t=time.time(), pid=pid, argv=self._command.words))

    def poll(self) -> messages.HostFailed | None:
        """The next failure that a launcher has reported; None if there is none."""
        return None

    def on_request(self, kind: ev.RequestKind) -> None:
        """Ends the start of a run that is stopped before its command could act on it."""

    def returncode(self, process: int) -> int:
        """How the command ended, if the process that `start` returned ended with `process`."""
        return process

    def unreported_pid(self, process: subprocess.Popen[bytes]) -> int | None:
        """The process whose end nobody has recorded, if the one that `start` returned has ended."""
        return process.pid

    def ending(
        self, end: WorkerEnd, training_ended: ev.TrainingEnded | None, failure: ev.FailureRaised | None, process: int
    ) -> ev.RunEnded | None:
        """How the run ended on this host, if the command does not decide that."""
        return None

    def owns(self, journal: str) -> bool:
        """Whether the process that wrote a journal ran on this host; those of commands are numbered over all hosts."""
        return True

    def close(self) -> None:
        """Closes what was opened."""


class HostLaunch(Launch):
    """Starts the launcher of this host, which starts the training process."""

    def __init__(self, run_dir: Path, host_index: int, emit: Callable[[ev.Event], None]) -> None:
        super().__init__(spawn.engine_command(run_dir, host_index), emit)
        self._run_dir = run_dir
        self._host_index = host_index
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._partial = b""
        self._unread: deque[bytes] = deque()
        """Lines of the launcher that are not recorded yet."""
        self._failed: messages.LaunchFailed | None = None
        self.num_started = 0
        """Number of training processes that were started on this host."""
        self._started_pid: int | None = None
        """The newest of them."""
        self.cause: messages.HostFailed | None = None
        """The failure of another host that ended the training processes of this generation."""

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Starts the launcher; its output, and that of the training process, is appended to `log`. Raises `OSError`."""
        self._pipe, write_end = os.pipe()
        os.set_blocking(self._pipe, False)
        argv = [sys.executable, "-P", "-m", "engine.launch", str(self._run_dir), "--host", str(self._host_index)]
        argv += ["--report-fd", str(write_end), "--parent", str(os.getpid())]
        argv += ["--log", str(self._run_dir / spawn.supervisor_log(self._host_index))]
        # A stop that is passed on to it before it catches the signal waits until then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            self._process = spawn.start_command(spawn.own_command(argv, self._host_index), log, pass_fds=(write_end,))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(write_end)
        return self._process

    def record_start(self, pid: int) -> None:
        """Nothing: the launcher reports the start of the training process."""

    def poll(self) -> messages.HostFailed | None:
        """Records what the launcher has reported up to a failure, here or of another host, and returns that; None if
        everything is recorded. What follows a failure waits for the next call, since it may be a restart."""
        self._unread += self._lines()
        while self._unread:
            line = self._unread.popleft()
            try:
                message = messages.decode(line)
                event = messages.event_of(message) if isinstance(message, messages.EventEmitted) else None
            except (msgspec.MsgspecError, DamagedLine):
                # A bug in the launcher, or a version that is being replaced; the run goes on.
                continue
            if event is not None:
                self._take(event)
            elif isinstance(message, messages.HostFailed):
                self.cause = message if message.host_index != self._host_index else self.cause
                return message
            elif isinstance(message, messages.LaunchFailed):
                self._failed = message
        return None

    def on_request(self, kind: ev.RequestKind) -> None:
        """Ends the launcher if the run is stopped before a training process could act on it."""
        if kind in STOPS and not self.num_started and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def returncode(self, process: int) -> int:
        """How the training process ended, or if none was started, how the launcher did: with `process`."""
        if self.exited is None:
            return process
        if self.exited.exit_code is not None:
            return self.exited.exit_code
        name = self.exited.signal or ""
        return -signal.Signals[name].value if name in signal.Signals.__members__ else process

    def unreported_pid(self, process: subprocess.Popen[bytes]) -> int | None:
        """The process whose end the launcher, which has ended, could not report: itself if it started none, or the one
        that the kernel ended with it."""
        if not self.num_started:
            return process.pid
        return self._started_pid if self.exited is None and process.returncode < 0 else None

    def ending(
        self, end: WorkerEnd, training_ended: ev.TrainingEnded | None, failure: ev.FailureRaised | None, process: int
    ) -> ev.RunEnded | None:
        """How the run ended on this host, if the training process of this host does not decide that: by its end or by
        a failure of its own."""
        if training_ended is not None and training_ended.outcome != "failed":
            return None
        if training_ended is not None and failure is not None and failure.error not in FOLLOWING:
            return None
        if self._failed is not None:
            code = self._failed.code if self._failed.code in _CODES else ExitCode.ENVIRONMENT
            outcome: ev.Outcome = "stopped" if code == ExitCode.STOPPED else "failed"
            return run_ended(outcome, ExitCode(code), self._failed.reason)
        if self.cause is not None:
            code = self.cause.code if self.cause.code in _CODES else ExitCode.FAILED
            return run_ended("failed", ExitCode(code), self.cause.sentence)
        if process < 0 and self.exited is None and not end.killed:
            if end.stop_asked:
                return run_ended("stopped", ExitCode.STOPPED, "stopped on request before training began")
            how = end_text(process)
            return run_ended("failed", ExitCode.FAILED, f"the launcher of this host, and training with it, {how}")
        return None

    def owns(self, journal: str) -> bool:
        return journal.startswith(f"worker-{self._host_index}.")

    def close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _take(self, event: ev.Event) -> None:
        if isinstance(event, ev.WorkerStarted):
            self.num_started += 1
            self._started_pid = event.pid
            self.exited = self.cause = None
        elif isinstance(event, ev.WorkerExited):
            self.exited = event
        self._emit(event)

    def _lines(self) -> list[bytes]:
        if self._pipe is None:
            return []
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._pipe, _READ_BYTES):
                self._partial += chunk
        *lines, self._partial = self._partial.split(b"\n")
        return lines


def needs_launcher(config: Mapping[str, Any]) -> bool:
    """Whether the training process of a run with this configuration is started by a launcher."""
    launch = _launch_of(config)
    return launch.used_engine == "torchrun" or (launch.used_engine == "external" and launch.num_hosts > 1)


def name_of(host_index: int, config: Mapping[str, Any]) -> str:
    """`host 1` for sentences about one host of a run with this configuration; empty if the run has one host."""
    return f"host {host_index}" if _launch_of(config).num_hosts > 1 else ""


def _launch_of(config: Mapping[str, Any]) -> LaunchConfig:
    """The table `[launch]` of a recorded configuration; that of one host if it is not valid."""
    try:
        return msgspec.convert(config.get("launch", {}), LaunchConfig)
    except msgspec.ValidationError:
        return LaunchConfig()

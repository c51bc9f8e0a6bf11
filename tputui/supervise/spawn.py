"""Starts the supervisor and its command, the engine or one of the user, as processes that are independent of the
terminal and of each other.

Each gets its own session, no standard input, and a file for its output, because a pipe breaks when its reader is
killed. An `engine.py` in the working directory must not shadow the engine, here or in child processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO

import tputui
from tputui.supervise import torch_traces
from tputui.supervise.command import RunCommand
from tputui.telemetry import run_clock
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

SUPERVISOR_LOG = "supervisor.log"
COMMAND_OPTION = "--command"
"""Argument of a supervisor that reads the command to run from its standard input."""
HOST_OPTION = "--host"
"""Argument of a supervisor, with the index of its host."""


def supervisor_argv(run_dir: Path, host_index: int = 0) -> list[str]:
    return [sys.executable, "-P", "-m", "tputui.supervise", str(run_dir), *_host(host_index)]


def engine_argv(run_dir: Path, host_index: int = 0) -> list[str]:
    return [sys.executable, "-P", "-m", "engine", str(run_dir), *_host(host_index)]


def engine_command(run_dir: Path, host_index: int = 0) -> RunCommand:
    return own_command(engine_argv(run_dir, host_index), host_index)


def own_command(argv: list[str], host_index: int) -> RunCommand:
    """A command of ours, which reports everything in the journal of the training process of a host."""
    return RunCommand(argv, {**environment(os.environ), "PYTHONUNBUFFERED": "1"}, "", f"worker-{host_index}")


def observed(command: RunCommand, run_dir: Path) -> RunCommand:
    """A command of the user whose processes find the directory of the run, and report there if they observe."""
    folder = run_dir.resolve()
    variables = {**torch_traces.variables(command.environ, folder), RUN_DIR_VARIABLE: str(folder)}
    return command._replace(environ={**command.environ, **variables})


def _host(index: int) -> list[str]:
    return [HOST_OPTION, str(index)] if index else []


def supervisor_log(host_index: int) -> str:
    """Name of the file with the output of the supervisor of a host; the hosts may share the directory."""
    return f"supervisor-{host_index}.log" if host_index else SUPERVISOR_LOG


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """A copy of `base` in which our modules come before the folders of the user on the import path."""
    env = {**base, "PYTHONSAFEPATH": "1"}
    if base.get("PYTHONPATH"):
        # PYTHONPATH comes before installed packages, also with PYTHONSAFEPATH.
        ours = str(Path(tputui.__file__).resolve().parent.parent)
        env["PYTHONPATH"] = os.pathsep.join([ours, base["PYTHONPATH"]])
    return env


def start_supervisor(run_dir: Path, command: RunCommand | None = None, host_index: int = 0) -> subprocess.Popen[bytes]:
    """Starts the supervisor of a run on this host, detached; `command` is run instead of training by the engine.

    Raises `OSError`.
    """
    run_dir = run_dir.resolve()
    argv, log = supervisor_argv(run_dir, host_index), run_dir / supervisor_log(host_index)
    env = environment(os.environ)
    # Of a run that this process belongs to: this run has a clock of its own.
    env.pop(run_clock.VARIABLE, None)
    if command is None:
        return _start(argv, log, env)
    with command.as_file() as file:
        return _start([*argv, COMMAND_OPTION], log, env, stdin=file)


def start_command(command: RunCommand, log: Path, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Starts a command, which inherits `pass_fds`; its output is appended to `log`. Only in the main thread.

    Raises `OSError`.
    """
    env = dict(command.environ)
    run_clock.run_clock().pass_on(env)
    # What this process ignores is ignored by what it starts, too: the engine outlives terminals until it handles
    # signals itself. For a command of the user it must not be; one that this process handles is not.
    defaults = () if command.writer else (signal.SIGINT, signal.SIGHUP)
    former = {number: signal.signal(number, _do_nothing) for number in defaults}
    try:
        return _start(command.words, log, env, cwd=command.cwd or None, pass_fds=pass_fds)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def start_beside(argv: list[str], run_dir: Path, stdin: int) -> None:
    """Starts a process of ours beside the supervisor, with the same log file. Raises `OSError`."""
    _start(argv, run_dir / SUPERVISOR_LOG, environment(os.environ), stdin=stdin)


def has_exited(pid: int) -> bool:
    """Whether a child process has ended. Does not reap it; one that was reaped has ended."""
    try:
        return returncode_of(pid) is not None
    except ChildProcessError:
        return True


def returncode_of(pid: int) -> int | None:
    """The exit code of a child process that has ended, or the negative number of its signal; None if it runs. Does not
    reap it. Raises `ChildProcessError` for one that was reaped."""
    if sys.platform != "linux":
        raise NotImplementedError("supervisors run on Linux only")
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def kill_group(pid: int) -> None:
    """Kills a process group; one that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


def _start(
    argv: list[str],
    log: Path,
    env: dict[str, str],
    *,
    stdin: IO[bytes] | int | None = None,
    cwd: str | None = None,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=fd,
            stderr=fd,
            env=env,
            cwd=cwd,
            start_new_session=True,
            close_fds=True,
            pass_fds=pass_fds,
        )
    finally:
        os.close(fd)

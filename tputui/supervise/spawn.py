"""Starts the supervisor and the worker as processes that are independent of the terminal and of each other.

Each gets its own session, no standard input, and a file for its output, because a pipe breaks when its reader is
killed. An `engine.py` in the working directory must not shadow the engine, here or in child processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import tputui

SUPERVISOR_LOG = "supervisor.log"


def supervisor_argv(run_dir: Path) -> list[str]:
    """The command line of the supervisor."""
    return [sys.executable, "-P", "-m", "tputui.supervise", str(run_dir)]


def worker_argv(run_dir: Path) -> list[str]:
    """The command line of the training process."""
    return [sys.executable, "-P", "-m", "engine.worker", str(run_dir)]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """A copy of `base` in which our modules come before the folders of the user on the import path."""
    env = {**base, "PYTHONSAFEPATH": "1"}
    if base.get("PYTHONPATH"):
        # PYTHONPATH comes before installed packages, also with PYTHONSAFEPATH.
        ours = str(Path(tputui.__file__).resolve().parent.parent)
        env["PYTHONPATH"] = os.pathsep.join([ours, base["PYTHONPATH"]])
    return env


def start_supervisor(run_dir: Path) -> subprocess.Popen[bytes]:
    """Starts the supervisor of a run, detached. Raises `OSError`."""
    run_dir = run_dir.resolve()
    return _start(supervisor_argv(run_dir), run_dir / SUPERVISOR_LOG, environment(os.environ))


def start_worker(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts the training process; its output is appended to `log`, unbuffered. Raises `OSError`."""
    return _start(argv, log, {**environment(os.environ), "PYTHONUNBUFFERED": "1"})


def _start(argv: list[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, env=env, start_new_session=True, close_fds=True
        )
    finally:
        os.close(fd)

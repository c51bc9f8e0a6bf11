"""How the two long-lived processes of a run are started: out of reach of the terminal and of each other.

Both get a session of their own, no standard input, and files for output: a pipe would break when its reader is
killed. A user's own `engine.py` in the working directory must not shadow ours, here or in children.
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
    """The environment in which our own modules come before the user's folders."""
    made = {**base, "PYTHONSAFEPATH": "1"}
    if base.get("PYTHONPATH"):
        # Folders of PYTHONPATH stand before installed packages, whatever PYTHONSAFEPATH says.
        ours = str(Path(tputui.__file__).resolve().parent.parent)
        made["PYTHONPATH"] = os.pathsep.join([ours, base["PYTHONPATH"]])
    return made


def start_supervisor(run_dir: Path) -> subprocess.Popen[bytes]:
    """Starts the supervisor of a run, detached. Raises `OSError`."""
    run_dir = run_dir.resolve()
    return _start(supervisor_argv(run_dir), run_dir / SUPERVISOR_LOG, environment(os.environ))


def start_worker(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts the training process; what it prints is appended to `log` as it is printed. Raises `OSError`."""
    return _start(argv, log, {**environment(os.environ), "PYTHONUNBUFFERED": "1"})


def _start(argv: list[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, env=env, start_new_session=True, close_fds=True
        )
    finally:
        os.close(fd)

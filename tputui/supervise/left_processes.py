"""The processes that a command leaves when it ends: those of its process group may finish, then they are ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from tputui import formatting as fmt
from tputui.supervise.outcome import end_text
from tputui.supervise.spawn import kill_group
from tputui.supervise.training_processes import group_members, in_environment, name_of
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

SETTLE_S = 1.0
"""Helpers of a process that has ended may need so long to notice it; they are not named before."""
NAMES_MAX = 8


class LeftProcesses:
    """What a command that has ended left running in its process group. Times are monotonic, in seconds."""

    def __init__(self, leader: int, returncode: int, began: float, grace_s: float, warn: Callable[[str], None]) -> None:
        """`leader` is the command, which is not reaped yet, and ended at the time `began`; `grace_s` is how long the
        others have to finish."""
        self._leader = leader
        self._returncode = returncode
        self._began = began
        self._grace_s = grace_s
        self._warn = warn
        self._is_announced = False

    def may_go_on(self, now: float) -> bool:
        """Whether some run and have time left. A warning names them once it takes long."""
        left = group_members(self._leader)
        if not left or now - self._began >= self._grace_s:
            return False
        if not self._is_announced and now - self._began >= SETTLE_S:
            self._is_announced = True
            what = f"the command {end_text(self._returncode)}; waiting up to {fmt.duration(self._grace_s)} for"
            self._warn(f"{what} {_named((row.pid for row in left), 'that it left running')}")
        return True

    def end(self, now: float) -> None:
        """Kills what is left, with a warning that names it."""
        pids = [row.pid for row in group_members(self._leader)]
        after = f" {fmt.duration(now - self._began)} after its end" if self._is_announced else ""
        names = _named(pids, f"that the command left running{after}")
        kill_group(self._leader)
        if pids:
            self._warn(f"ended {names}; see script.exit_grace_s")


def daemons_text(sampled: Iterable[int], leader: int, run_dir: str) -> str | None:
    """A sentence that names the processes which left the process group of training and still run; None without any.
    `sampled` are some of them; `run_dir` is the directory in the environment of a command, empty for the engine."""
    found = set(sampled)
    if run_dir:
        found |= {row.pid for row in in_environment(RUN_DIR_VARIABLE, run_dir) if row.group != leader}
    pids = sorted(found - {os.getpid()})
    return f"still running: {_named(pids, 'that left the process group of training')}" if pids else None


def _named(pids: Iterable[int], what: str) -> str:
    """`2 processes WHAT: sh (pid 7), sleep (pid 8)`."""
    found = list(pids)
    names = [f"{name_of(pid)} (pid {pid})" for pid in found[:NAMES_MAX]]
    more = [f"{len(found) - NAMES_MAX} more"] if len(found) > NAMES_MAX else []
    return f"{len(found)} {'process' if len(found) == 1 else 'processes'} {what}: {', '.join([*names, *more])}"

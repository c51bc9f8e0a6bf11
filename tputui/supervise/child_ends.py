"""The first process of a command that ended by an error while the command went on, such as one of its ranks.

Only the parent of a process learns how it ended. But until the parent asks, the kernel keeps the exit status in the
process table, and a parent that waits for its processes in their order asks late. Reads `/proc`; sends no signals.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.logs.console import without_rank
from tputui.supervise.log_tail import last_raw_lines
from tputui.supervise.outcome import end_text
from tputui.supervise.spawn import kill_group
from tputui.supervise.training_processes import (
    NewProcesses,
    environment_of,
    group_members,
    in_environment,
    name_of,
    read_proc,
)
from tputui.telemetry.rank_environment import rank_info
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

CHILDREN_MAX = 1_024
HANDLED_S = 60.0
"""A command that goes on so long after it learned of the end of a process does not end because of it. The agent of
torchrun waits 30 seconds for the other ranks."""
_BY_PARENT = (-signal.SIGTERM, -signal.SIGINT)
"""Return codes of processes that their parent may have ended."""


class ChildEnd(NamedTuple):
    t: float
    """Unix time."""
    pid: int
    returncode: int
    """Exit code, or the negative number of the signal that ended it."""
    rank: int | None
    """Its rank, if its environment names it."""
    log_bytes: int
    """Size of the output of the command at that time."""


class _KernelProcess(NamedTuple):
    name: str
    has_ended: bool
    session: int
    status: int
    """Its exit status, once it has ended."""


class ChildEnds:
    """Watches the processes of a command, in its session."""

    def __init__(self, leader: int, log: Path) -> None:
        """`log` is the file with the output of the command."""
        self._leader = leader
        self._log = log
        self._seen: set[int] = set()
        self._ranks: dict[int, int | None] = {}
        """Ranks of the running processes of the command, by pid."""
        self._new = NewProcesses()
        self._known_since: float | None = None
        """When the command was first seen to know of that end, as a monotonic time."""
        self.first: ChildEnd | None = None
        """The first that ended by an error, of those that run the same program as another process of the command."""

    def poll(self, tick: float) -> None:
        """Looks for an end, until there was one by which the command may end. `tick` is a monotonic time."""
        if self.first is not None and not self._is_handled(self.first, tick):
            return
        self.first = self._known_since = None
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        rows = {pid: row for pid in (*self._ranks, *(pids - self._seen)) if (row := _row(pid)) is not None}
        self._seen = pids
        own_rows = {pid: row for pid, row in rows.items() if row.session == self._leader and pid != self._leader}
        running = {pid: row for pid, row in own_rows.items() if not row.has_ended}
        ended = [pid for pid in own_rows if pid not in running]
        for pid in ended:
            if self._is_failure(own_rows[pid], [row.name for row in running.values()]):
                code = os.waitstatus_to_exitcode(own_rows[pid].status)
                self.first = ChildEnd(time.time(), pid, code, self._ranks.get(pid), self._log_bytes())
                return
        new = self._new.to_read(running, self._ranks)
        self._ranks = {
            pid: self._rank_of(pid) if pid in new else self._ranks[pid] for pid in list(running)[:CHILDREN_MAX]
        }

    def _is_handled(self, end: ChildEnd, tick: float) -> bool:
        if self._known_since is None and _row(end.pid) is None:
            self._known_since = tick
        return self._known_since is not None and tick - self._known_since > HANDLED_S

    def _is_failure(self, row: _KernelProcess, running: Sequence[str]) -> bool:
        code = os.waitstatus_to_exitcode(row.status)
        if code in _BY_PARENT:
            return row.name in running
        return code != 0 and row.name in (*running, name_of(self._leader))

    def _rank_of(self, pid: int) -> int | None:
        info = rank_info(environment_of(pid))
        return info.rank if info != rank_info(environment_of(self._leader)) else None

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0


def printed_before(log: Path, end: ChildEnd) -> tuple[int | None, list[str]]:
    """The rank of a process, and what was printed until its end: of its rank, or of all if that is not known.

    If its environment does not name the rank, it is the only one that printed nothing after the end.
    """
    before = last_raw_lines(log, end=end.log_bytes)
    rank = end.rank
    if rank is None:
        ranks = {printed_rank for line in before if (printed_rank := _rank_in(line)) is not None}
        later = {_rank_in(line) for line in last_raw_lines(log, start=end.log_bytes)}
        silent = ranks - later
        rank = silent.pop() if len(ranks) > 1 and len(silent) == 1 else None
    own_lines = [line for line in before if _rank_in(line) == rank] if rank is not None else []
    return rank, own_lines or before


def _rank_in(line: str) -> int | None:
    suffix = without_rank(line)[1]
    number = suffix.rpartition("/rank")[2]
    return int(number) if number.isdecimal() and suffix.count("/") == 1 else None


def _row(pid: int) -> _KernelProcess | None:
    """The row of a process; None if there is none."""
    head, _, rest = read_proc(pid, "stat", 4096).rpartition(b")")
    fields = rest.split()
    if len(fields) < 50:
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return _KernelProcess(name, fields[0] in b"ZX", int(fields[3]), int(fields[49]))


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
            ending = f"the command {end_text(self._returncode)}; waiting up to {fmt.duration(self._grace_s)} for"
            self._warn(f"{ending} {_named((row.pid for row in left), 'that it left running')}")
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
    `sampled` are some of them; `run_dir` is the directory in the environment of those of an observed command."""
    survivors = {*sampled, *(row.pid for row in in_environment(RUN_DIR_VARIABLE, run_dir) if row.group != leader)}
    pids = sorted(survivors - {os.getpid()})
    return f"still running: {_named(pids, 'that left the process group of training')}" if pids else None


def _named(pids: Iterable[int], what: str) -> str:
    """`2 processes WHAT: sh (pid 7), sleep (pid 8)`."""
    listed = list(pids)
    names = [f"{name_of(pid)} (pid {pid})" for pid in listed[:NAMES_MAX]]
    more = [f"{len(listed) - NAMES_MAX} more"] if len(listed) > NAMES_MAX else []
    return f"{len(listed)} {'process' if len(listed) == 1 else 'processes'} {what}: {', '.join([*names, *more])}"

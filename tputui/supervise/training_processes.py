"""The processes of a command, and which of them train: those that a request to stop signals.

A process that trains must be able to save, for which it may need the processes that it started, such as the workers of
its loader. So the first Python process of each branch below shells and launchers trains, and what it started does not,
except for further ranks of a distributed program. Reads `/proc`; sends no signals.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from tputui.config.script import LAUNCHER_PROGRAMS, STARTING_MODULES, script_name
from tputui.telemetry.rank_environment import RankInfo, environ_of, rank_info

ENVIRON_BYTES_MAX = 1 << 20
MAPS_BYTES_MAX = 4 << 20
_WORDS_BYTES_MAX = 64 << 10
_RUNTIMES = re.compile(rb"/(?:libtorch_|libjax_|xla_extension|libtpu|libtensorflow|_pywrap_tensorflow)")
"""Libraries of torch, JAX and TensorFlow."""
_WAITING = re.compile(rb"do_wait|(?:anon_)?pipe_read|poll_schedule|do_(?:sys_)?poll|do_select|ep_poll|do_epoll_wait")
"""Where the kernel has a process that waits for the end or the output of another one."""
_COPYING = re.compile(rb"(?:anon_)?pipe_read")
_WAIT_LOOKS = 20
_WAIT_LOOK_S = 0.01
"""Seconds between two looks at a process that may wait."""
_CAUGHT = re.compile(rb"^SigCgt:\s*([0-9a-f]+)", re.MULTILINE)
_IGNORED = re.compile(rb"^SigIgn:\s*([0-9a-f]+)", re.MULTILINE)
_OF_MULTIPROCESSING = re.compile(rb"\bmultiprocessing\b|\bloky\b")
_LAUNCHER_WORDS = 4
"""A launcher is named by the first words of its command line."""


@dataclass(frozen=True)
class ProcessRow:
    """A process in the table of the kernel. Equal rows are the same process: a pid is used again."""

    pid: int
    started_ticks: int
    """Start time in clock ticks since boot."""
    parent: int = field(compare=False)
    group: int = field(compare=False)


class TrainingProcess(NamedTuple):
    process: ProcessRow
    launcher: ProcessRow | None = None
    """The Python program that started it and may start it again, as torchrun does; None if there is none."""


def is_python(pid: int) -> bool:
    """Whether a process runs Python."""
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    return program.startswith(("python", "pypy")) or b"libpython" in read_proc(pid, "maps", MAPS_BYTES_MAX)


def read_proc(pid: int, name: str, bytes_max: int) -> bytes:
    """The content of `/proc/PID/NAME`; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(bytes_max)
    except OSError:
        return b""


class NewProcesses:
    """Chooses the processes of a command whose environment and words are read: each in its first two looks.

    Both are those of the parent until a process starts its own program.
    """

    def __init__(self) -> None:
        self._first_seen: set[int] = set()
        """Those that the last look found first."""

    def to_read(self, pids: Iterable[int], read_before: Container[int]) -> set[int]:
        """Those to be read in this look at `pids`; `read_before` are those of earlier looks."""
        again, self._first_seen = self._first_seen, {pid for pid in pids if pid not in read_before}
        return again | self._first_seen

    def is_first_look(self, pid: int) -> bool:
        """Whether this look is the first one at a process."""
        return pid in self._first_seen


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started."""
    return environ_of(read_proc(pid, "environ", ENVIRON_BYTES_MAX))


def name_of(pid: int) -> str:
    """The name of the program of a process; `?` if it is not known."""
    return read_proc(pid, "comm", 256).decode("utf-8", "replace").strip() or "?"


def script_of(pid: int) -> str:
    """The name of what a process runs, such as `train` for `python train.py --resume`."""
    return script_name(_decoded(_command_line(pid)))


def handles_sigterm(pid: int) -> bool:
    """Whether a Python process handles SIGTERM itself. With the TPU runtime, whose handler only reports it, that is not
    known, and the answer is no."""
    return _has_in_set(pid, _CAUGHT, signal.SIGTERM) and not has_mapped(pid, b"/libtpu")


def has_mapped(pid: int, path: bytes) -> bool:
    """Whether a process has loaded a file whose path contains `path`."""
    return path in read_proc(pid, "maps", MAPS_BYTES_MAX)


def ignores(pid: int, number: signal.Signals) -> bool:
    """Whether a process ignores a signal, as SIGINT in what a shell script starts with `&`."""
    return _has_in_set(pid, _IGNORED, number)


def _has_in_set(pid: int, signal_set: re.Pattern[bytes], number: signal.Signals) -> bool:
    printed = signal_set.search(read_proc(pid, "status", 16 << 10))
    return printed is not None and is_in_set(printed[1], number)


def is_in_set(digits: str | bytes, number: signal.Signals) -> bool:
    """Whether a signal is in a set of signals, which `/proc/PID/status` prints in hexadecimal digits."""
    return bool(int(digits, 16) >> (number - 1) & 1)


def processes() -> dict[int, ProcessRow]:
    """All processes of this host that run, by id."""
    rows = (_row(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {row.pid: row for row in rows if row is not None}


def members(leader: int) -> dict[int, ProcessRow]:
    """The processes of a command that run: what descends from its `leader`, and its process group."""
    table, children = processes(), dict[int, list[int]]()
    for row in table.values():
        children.setdefault(row.parent, []).append(row.pid)
    rows: dict[int, ProcessRow] = {}
    waiting = [leader, *(row.pid for row in table.values() if row.group == leader)]
    while waiting:
        pid = waiting.pop()
        if pid not in rows:
            waiting += children.get(pid, ())
            if pid in table:
                rows[pid] = table[pid]
    return rows


def group_members(group: int) -> list[ProcessRow]:
    """The processes of a process group that run."""
    return [row for row in processes().values() if row.group == group]


def in_environment(variable: str, value: str) -> list[ProcessRow]:
    """The processes of this user that were started with this environment variable."""
    mark = os.fsencode(f"{variable}={value}")
    rows = processes().values()
    return [row for row in rows if mark in read_proc(row.pid, "environ", ENVIRON_BYTES_MAX).split(b"\0")]


def trainers(leader: int, reporting: Collection[int] = ()) -> list[TrainingProcess]:
    """The processes of a command that train. `reporting` are the ids of those that report steps to the run."""
    tree = _Tree(members(leader), reporting)
    return list(dict.fromkeys(trainer for root in tree.roots() for trainer in tree.trainers(root, None)))


class _Tree:
    def __init__(self, rows: dict[int, ProcessRow], reporting: Collection[int]) -> None:
        self._rows = rows
        self._reporting = reporting
        self._children: dict[int, list[ProcessRow]] = {}
        for row in rows.values():
            self._children.setdefault(row.parent, []).append(row)

    def roots(self) -> list[ProcessRow]:
        """The processes whose parent is not of the command."""
        return [row for row in self._rows.values() if row.parent not in self._rows]

    def trainers(self, row: ProcessRow, launcher: ProcessRow | None) -> Iterator[TrainingProcess]:
        """The processes that train among one and those below it; `launcher` is the nearest one above."""
        children = self._children.get(row.pid, [])
        if not is_python(row.pid):
            for child in children:
                yield from self.trainers(child, launcher)
            return
        programs = [child for child in children if _is_program(child, row)]
        is_launcher = _is_launcher(row.pid)
        if is_launcher or (programs and not _has_runtime(row.pid)):
            below = [trainer for program in programs for trainer in self.trainers(program, row)]
            # Last what may take long.
            if below and (
                is_launcher or any(_has_runtime(trainer.process.pid) for trainer in below) or _waits(row.pid)
            ):
                yield from below
                return
        own_rank = rank_info(environment_of(row.pid))
        numbered = [program for program in programs if _is_other_rank(program.pid, own_rank)]
        linked = self._linked(row, programs)
        ranks = {
            *numbered,
            *linked,
            *(descendant for descendant in self._below(row, ()) if descendant.pid in self._reporting),
        }
        # One whose processes are connected without it only started them.
        if not linked or row in linked or row.pid in self._reporting:
            yield TrainingProcess(row, launcher)
        yield from (TrainingProcess(rank, launcher) for rank in ranks if rank != row)

    def _below(self, row: ProcessRow, excluded: Collection[ProcessRow]) -> list[ProcessRow]:
        children = [child for child in self._children.get(row.pid, []) if child not in excluded]
        return children + [descendant for child in children for descendant in self._below(child, excluded)]

    def _linked(self, row: ProcessRow, programs: Collection[ProcessRow]) -> list[ProcessRow]:
        """Of a process and those it made by multiprocessing, the ones with TCP connections among each other: ranks of a
        distributed program. Workers of a loader have none, except for connections that they inherited."""
        made = self._below(row, programs)
        if len(made) < 2:
            return []
        ends = {peer: _connections(peer.pid) for peer in (row, *made)}
        own_ends = {peer: ends[peer] - ends.get(self._rows[peer.parent], set()) for peer in made} | {row: ends[row]}
        all_ends = set().union(*(own_ends[peer] for peer in made))
        linked = [peer for peer in made if any((remote, local) in all_ends for local, remote in own_ends[peer])]
        is_linked = linked and any((remote, local) in all_ends for local, remote in own_ends[row])
        return [row, *linked] if is_linked else linked


def _row(pid: int) -> ProcessRow | None:
    """The row of a process; None if it has ended."""
    state, *fields = read_proc(pid, "stat", 4096).rpartition(b")")[2].split() or [b"X"]
    return None if state in b"ZX" else ProcessRow(pid, int(fields[18]), int(fields[0]), int(fields[1]))


def _command_line(pid: int) -> list[bytes]:
    return read_proc(pid, "cmdline", _WORDS_BYTES_MAX).split(b"\0")


def _decoded(arguments: Iterable[bytes]) -> list[str]:
    return [argument.decode("utf-8", "replace") for argument in arguments]


def _is_program(child: ProcessRow, parent: ProcessRow) -> bool:
    """Whether a process runs a program of its own, not a function of its parent or a helper of multiprocessing."""
    arguments = _command_line(child.pid)
    if any(_OF_MULTIPROCESSING.search(argument) for argument in arguments[:_LAUNCHER_WORDS]):
        return False
    return arguments != _command_line(parent.pid) or environment_of(child.pid) != environment_of(parent.pid)


def _is_launcher(pid: int) -> bool:
    """Whether a Python process is a known launcher, which starts the processes that train."""
    arguments = _decoded(_command_line(pid)[:_LAUNCHER_WORDS])
    if any(PurePath(argument).name in LAUNCHER_PROGRAMS for argument in arguments[:2]):
        return True
    return any(module in STARTING_MODULES for mark, module in pairwise(arguments) if mark == "-m")


def _waits(pid: int) -> bool:
    """Whether the main thread of a process waits for the end or the output of another process, or another thread
    copies that output."""
    for look in range(_WAIT_LOOKS):
        # Between two reads it prints what it has read.
        time.sleep(_WAIT_LOOK_S if look else 0.0)
        if _WAITING.match(read_proc(pid, "wchan", 64)) is not None:
            return True
        with contextlib.suppress(OSError):
            threads = os.listdir(f"/proc/{pid}/task")
            if any(_COPYING.match(read_proc(pid, f"task/{thread}/wchan", 64)) for thread in threads):
                return True
    return False


def _has_runtime(pid: int) -> bool:
    """Whether a process has loaded a library by which it can train on a device."""
    return _RUNTIMES.search(read_proc(pid, "maps", MAPS_BYTES_MAX)) is not None


def _is_other_rank(pid: int, own_rank: RankInfo) -> bool:
    info = rank_info(environment_of(pid))
    return info.rank is not None and info != own_rank


def _connections(pid: int) -> set[tuple[object, object]]:
    """Both ends of each TCP connection of a process."""
    import psutil

    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except (psutil.Error, OSError):
        return set()
    return {(tuple(connection.laddr), tuple(connection.raddr)) for connection in connections if connection.raddr}

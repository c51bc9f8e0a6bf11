"""CPU and memory of the host and of the processes of the run, and out-of-memory kills by the kernel.

CPU use is the difference of two readings, so a process appears only from its second reading on. Sends no signals.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tputui.supervise.training_processes import NewProcesses, environment_of
from tputui.telemetry.events import HostSampled, ProcessSample
from tputui.telemetry.files import read_small
from tputui.telemetry.rank_environment import RankInfo, rank_info

CHILDREN_INTERVAL_S = 5.0
"""Seconds between searches for children of the worker; each search reads the whole process table."""
PROCESSES_MAX = 64
OOM_SAMPLES_KEPT = 5
"""The newest count is compared with the one this many readings before: it rises before the end of the process is
seen."""
_COUNTER_BYTES_MAX = 64 << 10


class HostSampler:
    """Samples the host, the supervisor itself, the worker and the worker's children."""

    def __init__(self, worker_pid: int, clock: Callable[[], float] = time.time, *, names_ranks: bool = False) -> None:
        """`names_ranks`: processes are named by the ranks in their environment."""
        import psutil

        self._names_ranks = names_ranks
        self._ranks: dict[int, RankInfo] = {}
        self._new = NewProcesses()

        self._psutil = psutil
        self._clock = clock
        self._worker_pid = worker_pid
        self._processes: dict[int, psutil.Process] = {}
        self._roles: dict[int, str] = {}
        self._children_due = 0.0
        psutil.cpu_percent(None)
        self._watch(os.getpid(), "supervisor")
        self._watch(worker_pid, "worker")

    def sample(self) -> HostSampled:
        """A sample of the host now."""
        now = self._clock()
        processes = [sample for pid in list(self._processes) if (sample := self._sample_process(pid))]
        memory = self._psutil.virtual_memory()
        if now >= self._children_due:
            self._children_due = now + CHILDREN_INTERVAL_S
            self._find_children()
            self._name_ranks()
        return HostSampled(
            t=now,
            cpu_percent=self._psutil.cpu_percent(None),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            processes=processes,
        )

    def survivors(self) -> list[int]:
        """Ids of the sampled processes that the worker started in their own sessions and that still run."""
        pids: list[int] = []
        for pid, process in self._processes.items():
            with contextlib.suppress(self._psutil.Error, OSError):
                detached = self._roles[pid] != "supervisor" and os.getsid(pid) != self._worker_pid
                if detached and process.is_running() and process.status() != self._psutil.STATUS_ZOMBIE:
                    pids.append(pid)
        return pids

    def _watch(self, pid: int, role: str) -> None:
        try:
            process = self._psutil.Process(pid)
            process.cpu_percent(None)
        except self._psutil.Error:
            return
        self._processes[pid] = process
        self._roles[pid] = role

    def _find_children(self) -> None:
        worker = self._processes.get(self._worker_pid)
        try:
            children = worker.children(recursive=True) if worker is not None else []
        except self._psutil.Error:
            return
        for child in children:
            if child.pid not in self._processes and len(self._processes) < PROCESSES_MAX:
                self._watch(child.pid, "worker")

    def _name_ranks(self) -> None:
        """Names the processes of a command by the ranks in their environment.

        Variables that the command itself was started with number the whole command, unless it numbers its processes.
        """
        if not self._names_ranks:
            return
        pids = [pid for pid, role in self._roles.items() if role != "supervisor" and pid in self._processes]
        new = self._new.to_read(pids, self._ranks)
        for pid in pids:
            if pid in new:
                self._ranks[pid] = rank_info(environment_of(pid))
        whole = self._ranks.get(self._worker_pid, RankInfo())
        numbered = {pid for pid in pids if self._ranks[pid].rank is not None and self._ranks[pid] != whole}
        for pid in pids:
            rank = self._ranks[pid].rank
            if rank is None or (numbered and pid not in numbered):
                self._roles[pid] = "worker"
                continue
            parent = self._parent_of(pid)
            started_by_same = parent in self._ranks and self._ranks[parent] == self._ranks[pid]
            self._roles[pid] = f"of rank {rank}" if started_by_same and pid != self._worker_pid else f"rank {rank}"

    def _parent_of(self, pid: int) -> int:
        try:
            return int(self._processes[pid].ppid())
        except self._psutil.Error:
            return 0

    def _sample_process(self, pid: int) -> ProcessSample | None:
        process = self._processes[pid]
        try:
            with process.oneshot():
                rss_bytes, cpu_percent = process.memory_info().rss, process.cpu_percent(None)
                gone = process.status() == self._psutil.STATUS_ZOMBIE
        except self._psutil.Error:
            gone, rss_bytes, cpu_percent = True, 0, 0.0
        if gone:
            del self._processes[pid]
        # An exiting process has already released its memory, so its reading of 0 bytes is not a sample.
        if gone or rss_bytes == 0:
            return None
        return ProcessSample(pid=pid, role=self._roles[pid], rss_bytes=rss_bytes, cpu_percent=cpu_percent)


class OomCounter(NamedTuple):
    """A file with the kernel's count of out-of-memory kills, and the scope of the count."""

    path: Path
    about: str


class OutOfMemoryWatch:
    """Detects whether the kernel killed a process for lack of memory, by its count of such kills.

    Such a process ends by SIGKILL, like one that a user killed; only the count tells the two apart.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is the directory of `proc` and `sys`."""
        self._counter = _find_oom_counter(root)
        self._before: deque[int] = deque(maxlen=OOM_SAMPLES_KEPT)
        self.sample()

    def sample(self) -> None:
        """Reads the count while the processes live."""
        count = _oom_kills(self._counter.path) if self._counter else None
        if count is not None:
            self._before.append(count)

    def rose(self) -> bool | None:
        """Whether the count rose lately; None if it cannot be read."""
        now = _oom_kills(self._counter.path) if self._counter else None
        return now > self._before[0] if now is not None and self._before else None

    def verdict(self) -> str:
        """`rose` as a sentence."""
        rose = self.rose()
        if rose is None or self._counter is None:
            return "unknown whether memory ran out: the kernel's counters cannot be read here"
        if rose:
            return f"out of memory: the kernel killed a process at that time ({self._counter.about})"
        return f"memory did not run out: the kernel counted no out-of-memory kill ({self._counter.about})"


def _find_oom_counter(root: Path) -> OomCounter | None:
    """The counter with the narrowest scope around the calling process."""
    for counter in (*_cgroup_counters(root), OomCounter(root / "proc/vmstat", "count of the whole host")):
        if _oom_kills(counter.path) is not None:
            return counter
    return None


def _cgroup_counters(root: Path) -> list[OomCounter]:
    """The counters of the control group, for cgroup v1 and v2, with the paths inside and outside of a container."""
    about = "count of its control group"
    counters: list[OomCounter] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, *rest = [*line.split(":", 2), "", ""][:3]
        group = rest[0].lstrip("/") if rest else ""
        if number == "0" and not controllers:
            base = root / "sys/fs/cgroup"
            counters += [OomCounter(path / "memory.events", about) for path in (base / group, base)]
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            counters += [OomCounter(path / "memory.oom_control", about) for path in (base / group, base)]
    return counters


def _oom_kills(path: Path) -> int | None:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return read_small(path, _COUNTER_BYTES_MAX).decode("ascii", "replace")
    except OSError:
        return ""

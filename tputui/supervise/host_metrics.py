"""CPU, memory, disks and network of the host, and CPU and memory of the processes of the run.

CPU use and rates are the difference of two readings, so a process appears only from its second reading on. Sends no
signals.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from tputui.supervise.training_processes import NewProcesses, environment_of
from tputui.telemetry.events import HostSampled, ProcessSample
from tputui.telemetry.rank_environment import RankInfo, rank_info

CHILDREN_INTERVAL_S = 5.0
"""Seconds between searches for children of the worker; each search reads the whole process table."""
PROCESSES_MAX = 64


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
        self._traffic = self._read_traffic()
        self._watch(os.getpid(), "supervisor")
        self._watch(worker_pid, "worker")

    def sample(self) -> HostSampled:
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
            **self._traffic_rates(),
        )

    def _traffic_rates(self) -> dict[str, int]:
        """The disk and network fields of a sample: bytes per second since the reading before, if both have the counter
        and it was not reset."""
        (before_s, before), (now_s, now) = self._traffic, self._read_traffic()
        self._traffic = (now_s, now)
        if now_s <= before_s:
            return {}
        changes = {name: total - before[name] for name, total in now.items() if name in before}
        return {name: round(change / (now_s - before_s)) for name, change in changes.items() if change >= 0}

    def _read_traffic(self) -> tuple[float, dict[str, int]]:
        """Unix time in seconds, and the bytes counted since boot by the field of the event that has their rate."""
        counters: dict[str, int] = {}
        # A container may hide the files of the kernel that these are read from.
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            if (disks := self._psutil.disk_io_counters()) is not None:
                counters |= {"disk_read_bytes_per_s": disks.read_bytes, "disk_written_bytes_per_s": disks.write_bytes}
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            interfaces = self._psutil.net_io_counters(pernic=True)
            if others := [counted for name, counted in interfaces.items() if name not in ("lo", "lo0")]:
                counters["network_received_bytes_per_s"] = sum(counted.bytes_recv for counted in others)
                counters["network_sent_bytes_per_s"] = sum(counted.bytes_sent for counted in others)
        return self._clock(), counters

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

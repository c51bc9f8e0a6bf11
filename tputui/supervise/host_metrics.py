"""What the operating system says of the host and of the run's processes there, by psutil.

A CPU figure is a difference of two readings, so a process appears from its second reading on: no first zero is
invented. Must not signal or change a process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from tputui.telemetry.events import HostSampled, ProcessSample

CHILDREN_INTERVAL_S = 5.0
"""Between searches for children of the worker: each reads the whole process table."""
PROCESSES_MAX = 64


class HostSampler:
    """Samples the host, the supervisor itself, the worker and the worker's children."""

    def __init__(self, worker_pid: int, clock: Callable[[], float] = time.time) -> None:
        import psutil

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
        """The state of the host at this moment."""
        now = self._clock()
        processes = [sample for pid in list(self._processes) if (sample := self._sample_process(pid))]
        memory = self._psutil.virtual_memory()
        if now >= self._children_due:
            self._children_due = now + CHILDREN_INTERVAL_S
            self._find_children()
        return HostSampled(
            t=now,
            cpu_percent=self._psutil.cpu_percent(None),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            processes=processes,
        )

    def survivors(self) -> list[str]:
        """The processes that the worker started in sessions of their own and that still run, as far as a sample saw
        them: `tensorboard (pid 7)`."""
        found: list[str] = []
        for pid, process in self._processes.items():
            with contextlib.suppress(self._psutil.Error, OSError):
                detached = self._roles[pid] == "worker" and os.getsid(pid) != self._worker_pid
                if detached and process.is_running() and process.status() != self._psutil.STATUS_ZOMBIE:
                    found.append(f"{process.name()} (pid {pid})")
        return found

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
        # A process on its way out has given its memory back before it is gone; that is no reading of the run.
        if gone or rss_bytes == 0:
            return None
        return ProcessSample(pid=pid, role=self._roles[pid], rss_bytes=rss_bytes, cpu_percent=cpu_percent)

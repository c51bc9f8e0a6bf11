"""`MachineWatch`: the host of a run while it lasts: its processes and memory, its disk and clock, and its TPU.

CPU, memory, disks and network of the host, and CPU and memory of the processes of the run.

CPU use and rates are the difference of two readings, so a process appears only from its second reading on. Sends no
signals.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from tputui import formatting as fmt
from tputui.device.sampler import DeviceSampler, start_sampler
from tputui.supervise.child_ends import daemons_text
from tputui.supervise.command import RunCommand
from tputui.supervise.record import RunRecord
from tputui.supervise.training_processes import NewProcesses, environment_of
from tputui.telemetry import run_clock
from tputui.telemetry.events import HostSampled, ProcessSample
from tputui.telemetry.files import ReservedSpace, free_bytes, free_inodes
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


OUTPUT_RESERVE_BYTES = 1 << 20
"""Disk space for the output of training, which would end by an error of `print` as soon as the disk is full."""


class MachineWatch:
    def __init__(self, run_dir: Path, record: RunRecord, sample_s: float, *, host: str = "") -> None:
        """`sample_s`: seconds between two samples of processes; `host` names this host if the run has several."""
        self._record = record
        self._sample_s = sample_s
        self._sample_due = 0.0
        self._disk = DiskWatch(run_dir, record.warn, host=host)
        self._clock = ClockWatch(run_clock.run_clock(), record.warn)
        self._processes: HostSampler | None = None
        self._devices: DeviceSampler | None = None
        self._output_space: ReservedSpace | None = None

    def start(self, command: RunCommand, pid: int, log: Path, began: float) -> None:
        """Watches the processes of a command, which was started at `began` as `pid`, and whose output is `log`."""
        with contextlib.suppress(OSError):
            self._output_space = ReservedSpace(log, OUTPUT_RESERVE_BYTES)
        self._devices = start_sampler(command.environ, began)
        self._processes = HostSampler(pid, names_ranks=command.writer is None)
        self._sample_due = time.monotonic() + self._sample_s

    def poll(self) -> None:
        """Warns of problems, and records what the TPU runtime has answered."""
        self._record_devices()
        self._disk.check(self._record.reporter.failure, time.monotonic())
        self._clock.check()
        if self._output_space is not None:
            self._output_space.renew()

    def sample(self, besides: Callable[[], None]) -> None:
        """Records a sample of the processes if it is due, and then calls `besides`."""
        if self._processes is None or time.monotonic() < self._sample_due:
            return
        self._sample_due = max(self._sample_due + self._sample_s, time.monotonic())
        self._record.emit(self._processes.sample())
        besides()

    def request_core_states(self, request: str) -> None:
        """Asks the TPU runtime what its cores execute, for a request with this id."""
        if self._devices is not None:
            self._devices.request_core_states(request)

    def close(self, pid: int, folder: str) -> None:
        """Ends, after the command `pid` has; warns of processes that left its group. `folder`: the run directory in
        their environment."""
        if self._output_space is not None:
            self._output_space.close()
        if self._processes is not None and (daemons := daemons_text(self._processes.survivors(), pid, folder)):
            self._record.warn(daemons)
        if self._devices is not None:
            self._devices.close()
            self._record_devices()

    def _record_devices(self) -> None:
        for event in self._devices.poll() if self._devices is not None else ():
            self._record.emit(event)


CLOCK_WARNED_S = 5.0
"""A clock that is set by less is not reported."""


class ClockWatch:
    def __init__(self, clock: run_clock.RunClock, warn: Callable[[str], None]) -> None:
        self._clock = clock
        self._warn = warn
        self._set_s = 0.0

    def check(self) -> None:
        """Compares the clock of the system with that of the run. Two readings."""
        set_s = self._clock.set_s
        by_s = set_s - self._set_s
        if abs(by_s) < CLOCK_WARNED_S:
            return
        self._set_s = set_s
        where = "forward" if by_s > 0 else "back"
        differs = "" if not set_s else f", which now differ from the clock by {fmt.duration(abs(set_s))}"
        self._warn(
            f"the clock of this host was set {where} by {fmt.duration(abs(by_s))}; the times of this run go on without "
            f"a jump{differs}"
        )


LOW_BYTES = 256 << 20
LOW_INODES = 100
DISK_CHECK_S = 1.0
"""Seconds between two looks at the disk."""


class DiskWatch:
    """Warns if the disk of a run is nearly full, and reports when nothing could be recorded.

    The journal cannot take an event while the disk is full, so the first warning comes before, and the other one after.
    """

    def __init__(self, run_dir: Path, warn: Callable[[str], None], *, host: str = "") -> None:
        """`host` names this host if the run has several."""
        self._run_dir = run_dir
        self._on_host = f" on {host}" if host else ""
        self._warn = warn
        self._due = 0.0
        self._low: set[str] = set()
        """What there is too little of."""
        self._failed: tuple[float, str] | None = None
        """Since when nothing can be written, as a monotonic time, and why."""

    def check(self, failure: str | None, tick: float) -> None:
        """Looks at the disk. `failure`: why the journal cannot be written, `tick`: a monotonic time."""
        if failure is not None:
            self._failed = self._failed or (tick, failure)
        elif self._failed is not None:
            since, why = self._failed
            self._failed = None
            self._warn(
                f"nothing of this run could be written for {fmt.duration(tick - since)} ({why}); "
                f"{self._disk()} has {fmt.size(free_bytes(self._run_dir))} free now"
            )
        if tick >= self._due:
            self._due = tick + DISK_CHECK_S
            self._check_room()

    def _check_room(self) -> None:
        directory = "start runs with --runs-dir on another disk"
        free = free_bytes(self._run_dir)
        if free is not None and self._becomes_low("space", free, LOW_BYTES):
            self._warn(
                f"{self._disk()} has only {fmt.size(free)} free; once it is full, the run goes on, "
                f"but is not recorded: delete files there, or {directory}"
            )
        free = free_inodes(self._run_dir)
        if free is not None and self._becomes_low("inodes", free, LOW_INODES):
            self._warn(
                f"{self._disk()} has only {fmt.counted(free, 'free inode')}; once there is none, no checkpoint or "
                f"other file can be created: delete files there, or {directory}"
            )

    def _becomes_low(self, what: str, free: int, low: int) -> bool:
        """Whether there is too little of it now, for the first time since there was twice as much."""
        was_low = what in self._low
        if free < low:
            self._low.add(what)
        elif free > 2 * low:
            self._low.discard(what)
        return free < low and not was_low

    def _disk(self) -> str:
        # The directory may have been renamed.
        return f"the disk of {self._run_dir.resolve()}{self._on_host}"

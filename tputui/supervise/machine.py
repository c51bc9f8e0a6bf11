"""`MachineWatch`: the host of a run while it lasts: its processes and memory, its disk and clock, and its TPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from tputui.device.sampler import DeviceSampler, start_sampler
from tputui.supervise.child_ends import daemons_text
from tputui.supervise.clock_watch import ClockWatch
from tputui.supervise.command import RunCommand
from tputui.supervise.disk_watch import DiskWatch
from tputui.supervise.host_metrics import HostSampler
from tputui.supervise.record import RunRecord
from tputui.telemetry import run_clock
from tputui.telemetry.files import ReservedSpace

OUTPUT_RESERVE_BYTES = 1 << 20
"""Disk space for the output of training, which would end by an error of `print` as soon as the disk is full."""


class MachineWatch:
    """Watches this host for one run."""

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

"""Step times, throughput, memory, XLA counters and duty cycle of one process over time, bounded in memory."""

from __future__ import annotations

import functools
import math
from operator import add
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tputui.state.chart_data import DevicePoint, MemoryPoint, ThroughputPoint, XlaPoint
from tputui.state.state_struct import (
    AtLeastOne,
    Count,
    Downsampled,
    Record,
    StateStruct,
)
from tputui.telemetry.events import (
    CoreStatesRead,
    DeviceSampled,
    HostSampled,
    MemorySampled,
    ProcessSample,
    ProgressReported,
    XlaMetricsRead,
)

_LOG_WIDTH = math.log(1.002)
"""Step times are counted in bins 0.2 % wide."""
_LASTING_REPORTS = 32
"""Reports that the expected step time is based on, if there are as many."""
_TRIMMED = 0.1
"""Share of the slowest steps, and of the fastest, that is left out of it."""
_NOW_S = 10.0
"""The speed now is that of the reports of this many seconds."""
_NOW_REPORTS_MAX = 64
_LEAST_S, _MOST_S = 1e-9, 1e9
"""Step times outside this range are ignored."""


class ReportPace(Record, frozen=True):
    """Neighbouring reports, joined."""

    t: float
    step: int
    num_steps: int
    total_s: float
    num_examples: float
    lr: float = math.nan
    """Learning rate of the last of them."""

    def join(self, later: ReportPace) -> ReportPace:
        return ReportPace(
            later.t,
            later.step,
            self.num_steps + later.num_steps,
            self.total_s + later.total_s,
            self.num_examples + later.num_examples,
            later.lr,
        )

    def to_point(self) -> ThroughputPoint:
        return ThroughputPoint(
            t=self.t,
            step=self.step,
            step_s=self.total_s / self.num_steps,
            examples_per_s=self.num_examples / self.total_s,
            lr=self.lr,
        )


class PaceHistory(StateStruct):
    """Step times and throughput of one process, as it reported them."""

    num_reports: Count = 0
    steps: dict[int, AtLeastOne] = msgspec.field(default_factory=dict)
    """Steps reported, by the bin of their step time."""
    seconds: dict[int, float] = msgspec.field(default_factory=dict)
    """Seconds that the steps in a bin took."""
    history: Downsampled[ReportPace] = msgspec.field(default_factory=Downsampled)
    newest_step: Count = 0
    recent: Annotated[list[ReportPace], msgspec.Meta(max_length=_NOW_REPORTS_MAX)] = msgspec.field(default_factory=list)
    """The reports of the last seconds, one by one."""

    def add(self, event: ProgressReported) -> None:
        """Adds a report; one with an implausible step time is ignored."""
        step, step_s = event.step, event.step_s
        num_steps = step - self.newest_step if self.newest_step else min(step, event.report_steps)
        if num_steps <= 0 or not (_LEAST_S <= step_s <= _MOST_S) or math.isinf(event.examples_per_s):
            return
        self.newest_step = step
        self.num_reports += 1
        bin_index = round(math.log(step_s) / _LOG_WIDTH)
        self.steps[bin_index] = self.steps.get(bin_index, 0) + num_steps
        total_s = num_steps * step_s
        self.seconds[bin_index] = self.seconds.get(bin_index, 0.0) + total_s
        report = ReportPace(event.t, step, num_steps, total_s, event.examples_per_s * total_s, event.lr)
        self.history.add(report, ReportPace.join)
        recent = self.recent
        # The first report contains one-time work, which is not the speed now as soon as there is another one.
        if recent and (self.num_reports == 2 or len(recent) == _NOW_REPORTS_MAX):
            del recent[0]
        while recent and recent[0].t <= event.t - _NOW_S:
            del recent[0]
        recent.append(report)

    def cut(self, first_step: int) -> None:
        """Removes the reports of `first_step` and later ones; the step times stay in the statistics."""
        history = self.history
        history.keep(lambda reports: reports.step < first_step)
        # Later reports are not joined with the last one of before.
        history.in_last = history.stride if history.items else 0
        self.recent.clear()
        self.newest_step = max(first_step - 1, 0)

    def now(self) -> ReportPace | None:
        """The reports of the last 10 s together; None before the first one."""
        if not self.recent:
            return None
        newest, num_steps = self.recent[-1], sum([report.num_steps for report in self.recent])
        # Added in order, as `join` does.
        total_s = functools.reduce(add, [report.total_s for report in self.recent])
        num_examples = functools.reduce(add, [report.num_examples for report in self.recent])
        return ReportPace(newest.t, newest.step, num_steps, total_s, num_examples, newest.lr)

    def quantile(self, share: float) -> float:
        """Quantile of the step times in seconds, exact to 0.1 %. Needs a report."""
        left = share * sum(self.steps.values())
        bin_index = 0
        for bin_index in sorted(self.steps):
            left -= self.steps[bin_index]
            if left <= 0:
                break
        return self.seconds[bin_index] / self.steps[bin_index]

    def lasting_s(self) -> float:
        """Expected step time in seconds: trimmed mean over the newer half of the steps. Needs two reports.

        The slowest and the fastest tenth are left out, so that a hiccup does not change it, and so is the first report,
        which contains one-time work.
        """
        reports = self.history.items[1:] if self.history.stride == 1 else self.history.items
        newer: list[ReportPace] = []
        left = sum([report.num_steps for report in reports]) / 2
        for report in reversed(reports):
            if left <= 0 and len(newer) >= _LASTING_REPORTS:
                break
            newer.append(report)
            left -= report.num_steps
        # After a restart none may be left.
        return _trimmed_step_s(newer) if newer else self.quantile(0.5)


def _trimmed_step_s(reports: list[ReportPace]) -> float:
    """Mean step time over reports, without the slowest and the fastest steps of them."""
    num_steps = sum([report.num_steps for report in reports])
    low, high = _TRIMMED * num_steps, (1 - _TRIMMED) * num_steps
    total_s, done = 0.0, 0
    for step_s, steps in sorted([(report.total_s / report.num_steps, report.num_steps) for report in reports]):
        counted = max(0.0, min(done + steps, high) - max(done, low))
        total_s += counted * step_s
        done += steps
    return total_s / (high - low)


def xla_point(event: XlaMetricsRead, step: int) -> XlaPoint | None:
    """The counters of a report; None if its times are not finite. `step` is the newest step done."""
    if not math.isfinite(event.t + event.compile_s + event.execute_s):
        return None
    return XlaPoint(
        t=event.t,
        step=step,
        compiles=event.compiles,
        compile_s=event.compile_s,
        executes=event.executes,
        execute_s=event.execute_s,
    )


def device_memory(event: MemorySampled) -> MemoryPoint | None:
    """The memory of the fullest device; None if no device reported any."""
    if not event.hbm or not math.isfinite(event.t):
        return None
    return MemoryPoint(t=event.t, hbm_used_bytes=max(reading.used_bytes for reading in event.hbm))


def host_memory(event: HostSampled) -> MemoryPoint | None:
    """Memory, CPU and traffic of the host, and memory of the processes on it; None if the sample has no time."""
    if not math.isfinite(event.t):
        return None
    return MemoryPoint(
        t=event.t,
        host_used_bytes=event.memory_used_bytes,
        rss_bytes=sum(process.rss_bytes for process in event.processes),
        cpu_percent=event.cpu_percent if math.isfinite(event.cpu_percent) else None,
        disk_read_bytes_per_s=event.disk_read_bytes_per_s,
        disk_written_bytes_per_s=event.disk_written_bytes_per_s,
        network_received_bytes_per_s=event.network_received_bytes_per_s,
        network_sent_bytes_per_s=event.network_sent_bytes_per_s,
    )


def has_worker(processes: list[ProcessSample]) -> bool:
    """Whether one of the processes is a training process that still has memory."""
    return any(process.role != "supervisor" and process.rss_bytes > 0 for process in processes)


CORES_MAX = 4_096
"""Cores of one host of which samples and states are stored; no host has as many."""


class DeviceHistory(StateStruct):
    newest: DeviceSampled | None = None
    points: Downsampled[DevicePoint] = msgspec.field(default_factory=Downsampled)
    core_states: CoreStatesRead | None = None
    """The newest states of the cores."""

    def add(self, event: DeviceSampled) -> None:
        self.newest = replace(event, cores=event.cores[:CORES_MAX]) if event.cores else event
        cores = self.newest.cores or []
        duty = [core.duty_cycle_percent for core in cores if core.duty_cycle_percent is not None]
        if duty and math.isfinite(event.t) and all(map(math.isfinite, duty)):
            mean = math.fsum(duty) / len(duty)
            self.points.add(DevicePoint(t=event.t, duty_cycle_percent=mean, lowest_percent=min(duty)), _joined)

    def add_core_states(self, event: CoreStatesRead) -> None:
        self.core_states = replace(event, cores=event.cores[:CORES_MAX]) if event.cores else event


def _joined(left: DevicePoint, right: DevicePoint) -> DevicePoint:
    """Two neighbours as one. All but the newest represent the same number of samples."""
    return DevicePoint(
        t=right.t,
        duty_cycle_percent=(left.duty_cycle_percent + right.duty_cycle_percent) / 2,
        lowest_percent=min(left.lowest_percent, right.lowest_percent),
    )

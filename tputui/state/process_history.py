"""Step times, throughput, memory, XLA counters and duty cycle of one process over time, bounded in memory."""

from __future__ import annotations

import functools
import math
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import replace

from tputui.state.chart_data import DevicePoint, ThroughputPoint
from tputui.state.state_struct import (
    POINTS_MAX,
    AtLeastOne,
    Count,
    Downsampled,
    Record,
    StateStruct,
    join_pairs,
    last_of,
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


class ReportPace(NamedTuple):
    """Neighbouring reports, joined."""

    t: float
    step: int
    num_steps: int
    total_s: float
    num_examples: float
    lr: float = math.nan
    """Learning rate of the last of them."""

    def join(self, later: ReportPace) -> ReportPace:
        """Both together."""
        return ReportPace(
            later.t,
            later.step,
            self.num_steps + later.num_steps,
            self.total_s + later.total_s,
            self.num_examples + later.num_examples,
            later.lr,
        )

    def to_point(self) -> ThroughputPoint:
        """The reports as part of a snapshot."""
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
    history: Annotated[list[ReportPace], msgspec.Meta(max_length=POINTS_MAX - 1)] = msgspec.field(default_factory=list)
    """Each item is `stride` reports together."""
    stride: AtLeastOne = 1
    newest_step: Count = 0
    num_cuts: Count = 0
    """How often reports were removed."""
    # Reports since the newest item of the history, summed: reading a long run adds ten thousand of them.
    in_open: Count = 0
    open_t: float = 0.0
    open_steps: Count = 0
    open_s: float = 0.0
    open_examples: float = 0.0
    open_lr: float = math.nan
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
        self.in_open += 1
        self.open_t = event.t
        self.open_steps += num_steps
        self.open_s += total_s
        self.open_examples += event.examples_per_s * total_s
        self.open_lr = event.lr
        self._add_recent(ReportPace(event.t, step, num_steps, total_s, event.examples_per_s * total_s, event.lr))
        if self.in_open == self.stride:
            self._close()

    def cut(self, first_step: int) -> None:
        """Removes the reports of `first_step` and later ones; the step times stay in the statistics."""
        if self.in_open:
            self._close()
        self.history = [reports for reports in self.history if reports.step < first_step]
        self.recent.clear()
        self.newest_step = max(first_step - 1, 0)
        self.num_cuts += 1

    def now(self) -> ReportPace | None:
        """The reports of the last 10 s together; None before the first one."""
        return functools.reduce(ReportPace.join, self.recent) if self.recent else None

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
        reports = [*self.history, self._open()] if self.in_open else self.history
        if self.stride == 1:
            reports = reports[1:]
        newer: list[ReportPace] = []
        left = sum(report.num_steps for report in reports) / 2
        for report in reversed(reports):
            if left <= 0 and len(newer) >= _LASTING_REPORTS:
                break
            newer.append(report)
            left -= report.num_steps
        # After a restart none may be left.
        return _trimmed_step_s(newer) if newer else self.quantile(0.5)

    def closed_points(self, first: int) -> list[ThroughputPoint]:
        """The reports in order from number `first` on, bounded in number, without those of `newest_points`."""
        return [reports.to_point() for reports in self.history[first:]]

    def newest_points(self) -> list[ThroughputPoint]:
        """A point of the reports to which others may be added; empty if there are none."""
        return [self._open().to_point()] if self.in_open else []

    def _open(self) -> ReportPace:
        return ReportPace(self.open_t, self.newest_step, self.open_steps, self.open_s, self.open_examples, self.open_lr)

    def _add_recent(self, report: ReportPace) -> None:
        # The first report contains one-time work, which is not the speed now as soon as there is another one.
        past = [] if self.num_reports == 2 else self.recent[1 - _NOW_REPORTS_MAX :]
        self.recent = [*(one for one in past if one.t > report.t - _NOW_S), report]

    def _close(self) -> None:
        self.history.append(self._open())
        self.in_open = self.open_steps = 0
        self.open_s = self.open_examples = 0.0
        if len(self.history) == POINTS_MAX:
            self.history = join_pairs(self.history, ReportPace.join)
            self.stride *= 2


def _trimmed_step_s(reports: list[ReportPace]) -> float:
    """Mean step time over reports, without the slowest and the fastest steps of them."""
    num_steps = sum(report.num_steps for report in reports)
    low, high = _TRIMMED * num_steps, (1 - _TRIMMED) * num_steps
    total_s, done = 0.0, 0
    for step_s, steps in sorted([(report.total_s / report.num_steps, report.num_steps) for report in reports]):
        counted = max(0.0, min(done + steps, high) - max(done, low))
        total_s += counted * step_s
        done += steps
    return total_s / (high - low)


class XlaCounters(Record, frozen=True):
    """Counters of the XLA runtime of one process at one time: totals, so that leaving some out loses no amount."""

    t: float
    step: int
    compiles: int
    compile_s: float
    executes: int
    execute_s: float


class XlaHistory(StateStruct):
    """The counters that one process reported."""

    count: Count = 0
    """Reports added."""
    readings: Downsampled[XlaCounters] = msgspec.field(default_factory=Downsampled)

    def add(self, event: XlaMetricsRead, step: int) -> None:
        """Adds a report, unless its times are not finite. `step` is the newest step done."""
        if math.isfinite(event.t + event.compile_s + event.execute_s):
            self.count += 1
            self.readings.add(
                XlaCounters(event.t, step, event.compiles, event.compile_s, event.executes, event.execute_s), last_of
            )


class MemorySample(Record, frozen=True):
    """Memory that one process sampled, or the maximum over neighbouring samples."""

    t: float
    hbm_bytes: int | None
    host_bytes: int | None
    rss_bytes: int | None

    def join(self, later: MemorySample) -> MemorySample:
        return MemorySample(
            later.t,
            _most(self.hbm_bytes, later.hbm_bytes),
            _most(self.host_bytes, later.host_bytes),
            _most(self.rss_bytes, later.rss_bytes),
        )


class MemoryHistory(StateStruct):
    """The memory that one process sampled: a worker that of its devices, a supervisor that of its host."""

    count: Count = 0
    """Samples added."""
    samples: Downsampled[MemorySample] = msgspec.field(default_factory=Downsampled)

    def add_device(self, event: MemorySampled) -> None:
        """Adds device memory; ignored if no device reported any."""
        if event.hbm and math.isfinite(event.t):
            self.count += 1
            self.samples.add(
                MemorySample(event.t, max(reading.used_bytes for reading in event.hbm), None, None), MemorySample.join
            )

    def add_host(self, event: HostSampled) -> None:
        """Adds host memory."""
        if math.isfinite(event.t):
            self.count += 1
            rss_bytes = sum(process.rss_bytes for process in event.processes)
            self.samples.add(MemorySample(event.t, None, event.memory_used_bytes, rss_bytes), MemorySample.join)


def has_worker(processes: list[ProcessSample]) -> bool:
    """Whether one of the processes is a training process that still has memory."""
    return any(process.role != "supervisor" and process.rss_bytes > 0 for process in processes)


def _most(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)


CORES_MAX = 4_096
"""Cores of one host of which samples and states are stored; no host has as many."""


class DeviceHistory(StateStruct):
    """The devices of one host."""

    count: Count = 0
    """Samples added."""
    newest: DeviceSampled | None = None
    points: Downsampled[DevicePoint] = msgspec.field(default_factory=Downsampled)
    core_states: CoreStatesRead | None = None
    """The newest states of the cores."""

    def add(self, event: DeviceSampled) -> None:
        """Adds a sample."""
        self.newest = replace(event, cores=event.cores[:CORES_MAX]) if event.cores else event
        self.count += 1
        cores = self.newest.cores or []
        duty = [core.duty_cycle_percent for core in cores if core.duty_cycle_percent is not None]
        if duty and math.isfinite(event.t) and all(map(math.isfinite, duty)):
            mean = math.fsum(duty) / len(duty)
            self.points.add(DevicePoint(t=event.t, duty_cycle_percent=mean, lowest_percent=min(duty)), _joined)

    def add_core_states(self, event: CoreStatesRead) -> None:
        """Keeps the newest states of the cores."""
        self.core_states = replace(event, cores=event.cores[:CORES_MAX]) if event.cores else event


def _joined(left: DevicePoint, right: DevicePoint) -> DevicePoint:
    """Two neighbours as one. All but the newest represent the same number of samples."""
    return DevicePoint(
        t=right.t,
        duty_cycle_percent=(left.duty_cycle_percent + right.duty_cycle_percent) / 2,
        lowest_percent=min(left.lowest_percent, right.lowest_percent),
    )

"""Throughput, time remaining, meters, memory and XLA counters over time, combined from the states of all processes.

Memory and XLA counters of all processes over time: each reading is combined with the newest ones of the others.

A snapshot is built ten times a second, and of hundreds of hosts some have sampled their memory since the one before. So
readings and points that have not changed are kept.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import compress, count
from operator import is_not, itemgetter
from typing import Any, Generic, Self, TypeVar

from tputui.logs.tags import is_of_xla
from tputui.state.chart_data import TRAFFIC_RATES, LoggedView, MemoryPoint, ThroughputView, XlaPoint
from tputui.state.logged_series import LoggedSeries, combined_view
from tputui.state.process_history import PaceHistory, ReportPace
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import PlanView
from tputui.state.state_struct import POINTS_MAX, Converted, Downsampled, last_of
from tputui.state.steady_pace import steady_pace
from tputui.state.xla_view import is_used
from tputui.telemetry.events import EpochEnded, ProgressReported, Split
from tputui.telemetry.logged_values import LOSS

PointT = TypeVar("PointT", MemoryPoint, XlaPoint)

_READINGS_MAX = 4_096
"""Readings of all processes together when they are combined ..."""
_READINGS_OF_EACH = 8
"""... and at least this many of each."""

Entry = tuple[float, int, PointT]
"""Unix time of a reading, the index of its process, and the reading."""
_BY_TIME = itemgetter(0, 1)


class _Totals(Generic[PointT]):
    """The newest readings of all processes, combined: a total for each field of a point."""

    def __init__(self, point: type[PointT], totals: Mapping[str, _Total], owners: Sequence[int] | None = None) -> None:
        """`owners` has the process of each series, if a process may have several."""
        self._point: type[PointT] = point
        self._totals = totals
        self._owners = owners

    def replace(self, process: int, reading: PointT) -> None:
        """Takes a reading in place of the one before of that process."""
        owner = process if self._owners is None else self._owners[process]
        for name, total in self._totals.items():
            if (value := getattr(reading, name)) is not None:
                total.replace(owner, value)

    def take_point(self, t: float) -> PointT:
        """The point at the unix time `t`, for the readings since the last one."""
        fields: dict[str, Any] = {name: total.take() for name, total in self._totals.items()}
        return self._point(t=t, **fields)

    def copy(self) -> Self:
        return type(self)(self._point, {name: total.copy() for name, total in self._totals.items()}, self._owners)


class Combined(Generic[PointT]):
    """The points of all processes over time, at most `POINTS_MAX`."""

    def __init__(self, join: Callable[[PointT, PointT], PointT], totals: _Totals[PointT]) -> None:
        """`join` makes one reading of two neighbours of a process; `totals` are those of no reading."""
        self._in_order: _InOrder[PointT] = _InOrder(join)
        self._none: _Totals[PointT] = totals
        self._entries: list[Entry[PointT]] = []
        self._each = 1
        """Readings per point."""
        self._points: list[PointT] = []
        self._num_settled = 0
        """Number of readings, up to the start of a point, after which combining continues: none of them has changed."""
        self._settled: _Totals[PointT] = totals
        """Their totals."""

    def of(self, series: Sequence[Downsampled[PointT]]) -> list[PointT]:
        """The points of the series, which are those of the last call, with more readings."""
        entries, stride = self._in_order.of(series), 1
        while -(-len(entries) // stride) > POINTS_MAX:
            stride *= 2
        same = _num_same(self._entries, entries) if stride == self._each else 0
        if self._num_settled > same:
            self._num_settled, self._settled = 0, self._none
        begin, totals = self._num_settled, self._settled.copy()
        points, settled = self._points[: begin // stride], same // stride * stride
        for index in range(begin, len(entries)):
            if index == settled:
                self._num_settled, self._settled = index, totals.copy()
            t, process, reading = entries[index]
            totals.replace(process, reading)
            if (index + 1) % stride == 0 or index + 1 == len(entries):
                points.append(totals.take_point(t))
        self._entries, self._each, self._points = entries, stride, points
        return points


def combined_memory() -> Combined[MemoryPoint]:
    """Memory over time: device memory of the fullest core; host memory, processes and traffic summed over the hosts,
    and the mean of their CPU use."""
    rates = {name: _Rate() for name in TRAFFIC_RATES}
    totals = {"hbm_used_bytes": _Greatest(), "host_used_bytes": _Total(), "rss_bytes": _Total()}
    return Combined(MemoryPoint.join, _Totals(MemoryPoint, {**totals, "cpu_percent": _HostMean(), **rates}))


def combined_xla(owners: Sequence[int]) -> Combined[XlaPoint]:
    """The counters over time, summed over the processes; `owners` has the process of each series."""
    counters = {name: _Counter() for name in ("compiles", "compile_s", "executes", "execute_s")}
    return Combined(last_of, _Totals(XlaPoint, {"step": _Step(), **counters}, owners))


class _Total:
    """The sum of the newest values of all processes. A new value takes the same time however many there are."""

    def __init__(self) -> None:
        self.value: float = 0
        self.peak = -math.inf
        """Greatest sum since it was taken."""
        self.newest: dict[int, float] = {}

    def copy(self) -> Self:
        copied = copy(self)
        copied.newest = self.newest.copy()
        return copied

    def replace(self, process: int, value: float) -> None:
        """Sets the newest value of a process."""
        self.value += value - self.newest.get(process, 0)
        self.newest[process] = value
        if self.value > self.peak:
            self.peak = self.value

    def take(self) -> float | None:
        """The greatest value after the replacements since the last call; None if there is no value."""
        peak, self.peak = self.value if self.peak == -math.inf else self.peak, -math.inf
        return int(peak) if self.newest else None


class _Counter(_Total):
    """The sum of the newest values of all processes, of which the newest one is taken."""

    def take(self) -> float | None:
        return self.value


class _Rate(_Total):
    """The sum of the newest values of all processes, of which the mean over time is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._sum, self._num_values = 0.0, 0

    def replace(self, process: int, value: float) -> None:
        super().replace(process, value)
        self._sum, self._num_values = self._sum + self.value, self._num_values + 1

    def take(self) -> float | None:
        """The mean over the replacements since the last call; None if there is no value."""
        mean = self._sum / self._num_values if self._num_values else self.value
        self._sum, self._num_values = 0.0, 0
        return mean if self.newest else None


class _HostMean(_Rate):
    """The mean over the hosts in place of their sum."""

    def take(self) -> float | None:
        total = super().take()
        return total / len(self.newest) if total is not None else None


class _Greatest(_Total):
    """The greatest of the newest values of all processes."""

    def __init__(self) -> None:
        super().__init__()
        self.value = -math.inf

    def replace(self, process: int, value: float) -> None:
        before = self.newest.get(process)
        self.newest[process] = value
        if value >= self.value:
            self.value = value
        elif before == self.value:
            self.value = max(self.newest.values())
        if self.value > self.peak:
            self.peak = self.value


class _Step(_Greatest):
    """The newest step of all processes; the journal of the observers of a process knows no steps."""

    def replace(self, process: int, value: float) -> None:
        """Sets the newest value of a process, unless it is less than before."""
        super().replace(process, max(value, self.newest.get(process, 0)))


class _InOrder(Generic[PointT]):
    """The readings of all processes in order of time; fewer of each if there are many processes."""

    def __init__(self, join: Callable[[PointT, PointT], PointT]) -> None:
        self._join: Callable[[PointT, PointT], PointT] = join
        self._thinned: list[_Thinned[PointT]] = []
        self._closed: list[Entry[PointT]] = []
        """Those that no longer change, in order."""

    def of(self, series: Sequence[Downsampled[PointT]]) -> list[Entry[PointT]]:
        """The readings. An unchanged one is the same object as before."""
        most = max(_READINGS_OF_EACH, _READINGS_MAX // max(1, len(series)))
        is_other = len(series) != len(self._thinned)
        if is_other:
            self._thinned = [_Thinned(process, self._join) for process in range(len(series))]
        fresh: list[Entry[PointT]] = []
        for thinned, readings in zip(self._thinned, series, strict=True):
            num_closed = len(thinned.closed)
            if not thinned.update(readings, most):
                is_other = True
            elif num_closed < len(thinned.closed):
                fresh += thinned.closed[num_closed:]
        if is_other:
            self._closed, fresh = [], [entry for thinned in self._thinned for entry in thinned.closed]
        if fresh:
            fresh.sort(key=_BY_TIME)
            start = bisect_left(self._closed, fresh[0][:2], key=_BY_TIME)
            self._closed[start:] = sorted(self._closed[start:] + fresh, key=_BY_TIME)
        newest = sorted((thinned.newest for thinned in self._thinned if thinned.newest is not None), key=_BY_TIME)
        # Most often the newest readings of all are later than all others.
        start = bisect_left(self._closed, newest[0][:2], key=_BY_TIME) if newest else len(self._closed)
        return self._closed[:start] + sorted(self._closed[start:] + newest, key=_BY_TIME)


class _Thinned(Generic[PointT]):
    """The readings of one process, neighbours joined. Only the last one changes as others are added."""

    def __init__(self, process: int, join: Callable[[PointT, PointT], PointT]) -> None:
        self.closed: list[Entry[PointT]] = []
        self.newest: Entry[PointT] | None = None
        """The last one, which may still change."""
        self._process = process
        self._join: Callable[[PointT, PointT], PointT] = join
        self._first: PointT | None = None
        """First of the readings that `closed` is made of; identifies them together with `_strides`."""
        self._last: PointT | None = None
        self._strides = (0, 0)

    def update(self, readings: Downsampled[PointT], most: int) -> bool:
        """Takes at most `most` readings; False if they are not those of before with more at the end."""
        items, stride = readings.items, 1
        if items and items[-1] is self._last:
            return True
        while -(-len(items) // stride) > most:
            stride *= 2
        strides, first = (readings.stride, stride), items[0] if items else None
        is_longer = self._first is first and self._strides == strides and len(self.closed) * stride < len(items)
        if not is_longer:
            self._first, self._strides, self.closed = first, strides, []
        for start in range(len(self.closed) * stride, len(items) - stride, stride):
            self.closed.append(self._entry(items[start : start + stride]))
        self._last = items[-1] if items else None
        self.newest = self._entry(items[len(self.closed) * stride :]) if items else None
        return is_longer

    def _entry(self, items: list[PointT]) -> Entry[PointT]:
        reading = functools.reduce(self._join, items)
        newest = self.newest
        # The same object, so that it counts as unchanged when another reading follows it.
        return newest if newest is not None and newest[2] is reading else (reading.t, self._process, reading)


def _num_same(before: Sequence[object], now: Sequence[object]) -> int:
    """Number of objects at the start that are the same."""
    return next(compress(count(), map(is_not, before, now)), min(len(before), len(now)))


def throughput(
    state: RunState, plan: PlanView | None, epochs: list[EpochEnded], now: float, *, going_on: bool
) -> ThroughputView | None:
    """Throughput, by the first host with reports; None before its first report."""
    first = next((process for process in state.workers if process.pace.num_reports), None)
    if first is None or first.progress is None:
        return None
    pace = first.pace
    key = first.name, pace.history.version
    p50, p95 = state.memoized("pace", key, lambda: (pace.quantile(0.5), pace.quantile(0.95)))
    history = state.memoized("throughput points", first.name, lambda: Converted(ReportPace.to_point)).of(
        pace.history.items
    )
    steady = state.memoized(
        "steady pace", key, lambda: steady_pace([(point.step_s, point.examples_per_s) for point in history])
    )
    return ThroughputView(
        examples_per_s=_speed_now(pace, first.progress)[1],
        steady_step_s=steady.step_s if steady is not None else p50,
        steady_examples_per_s=steady.examples_per_s if steady is not None else math.nan,
        step_p50_s=p50,
        step_p95_s=p95,
        num_reports=pace.num_reports,
        history=history,
        eta_epoch_s=eta_epoch_s(state, plan, epochs, now) if going_on else None,
    )


def speed_now(state: RunState) -> tuple[float, float] | None:
    """Seconds per step and examples per second by the reports of the last 10 s of the first host with reports; None
    before its first report."""
    first = next((process for process in state.workers if process.progress), None)
    return _speed_now(first.pace, first.progress) if first is not None and first.progress is not None else None


def _speed_now(pace: PaceHistory, newest: ProgressReported) -> tuple[float, float]:
    reports = pace.now()
    # Without one the only report has a time that makes no sense.
    point = reports.to_point() if reports is not None else newest
    return point.step_s, point.examples_per_s


def eta_s(state: RunState, plan: PlanView | None, epochs: list[EpochEnded], now: float) -> float | None:
    """Seconds from `now` to the end of training, by the expected step time and the mean time of an epoch's end."""
    anchored = _anchored(state, plan, epochs)
    if plan is None or not plan.total_steps or anchored is None:
        return None
    pace, anchor = anchored
    done = state.steps_done
    ends_left = plan.num_epochs - max((view.epoch for view in epochs), default=0)
    left = max(0, plan.total_steps - done) * pace + max(0, ends_left) * _end_s(epochs)
    return max(0.0, left - _worked_off_s(state, epochs, pace, now - anchor))


def eta_epoch_s(state: RunState, plan: PlanView | None, epochs: list[EpochEnded], now: float) -> float | None:
    """Seconds from `now` to the end of the running epoch, estimated in the same way; None between two epochs."""
    anchored = _anchored(state, plan, epochs)
    if plan is None or anchored is None:
        return None
    pace, anchor = anchored
    done = state.steps_done
    epoch = max((w.epoch_started.epoch for w in state.workers if w.epoch_started), default=0)
    if any(view.epoch == epoch for view in epochs) or not epoch:
        return None
    if not (plan.num_epochs and plan.steps_per_epoch):
        return None
    left = max(0, epoch * plan.steps_per_epoch - done) * pace + _end_s(epochs)
    return max(0.0, left - _worked_off_s(state, epochs, pace, now - anchor))


def newest_progress(state: RunState) -> ProgressReported | None:
    """Newest report of the first host with reports."""
    return next((w.progress for w in state.workers if w.progress), None)


def memory(state: RunState) -> list[MemoryPoint]:
    processes = [process for process in state.in_order if process.usage.items]
    key = tuple((process.name, process.usage.version) for process in processes)
    combined = state.memoized("combined memory", [process.name for process in processes], combined_memory)
    return state.memoized("memory", key, lambda: combined.of([process.usage for process in processes]))


def xla(state: RunState) -> list[XlaPoint]:
    """Counters of the XLA runtime of all processes over time."""
    journals = [(owner, journal) for owner, of_owner in enumerate(xla_journals(state)) for journal in of_owner]
    key = tuple((owner, journal.name, journal.xla_history.version) for owner, journal in journals)
    owners = [owner for owner, _ in journals]
    names = [(owner, journal.name) for owner, journal in journals]
    combined = state.memoized("combined xla", names, lambda: combined_xla(owners))
    return state.memoized("xla", key, lambda: combined.of([journal.xla_history for _, journal in journals]))


def xla_journals(state: RunState) -> list[list[ProcessState]]:
    """The journals with counters of the XLA runtime, by process: those of processes that lead their host and have used
    the runtime. Counters are totals of a process, so of its journals the newest reading counts."""
    began_t = state.generation_t
    used: list[list[ProcessState]] = []
    for journals in state.trainers:
        counting = [journal for journal in journals if journal.xla is not None and is_used(journal.xla)]
        if not counting or journals[0].role == "rank":
            continue
        # Of a process before the newest restart only the journal of its observers is left.
        if journals[0].role != "observer" or max(journal.newest_t or 0.0 for journal in journals) >= began_t:
            used.append(counting)
    return used


def _anchored(state: RunState, plan: PlanView | None, epochs: list[EpochEnded]) -> tuple[float, float] | None:
    """Expected seconds per step, and the unix time up to which the finished steps are known."""
    progress = newest_progress(state)
    # The first report contains one-time work, such as the first execution of each program.
    first = next((w for w in state.workers if w.pace.num_reports > 1), None)
    if plan is None or progress is None or first is None:
        return None
    pace = state.memoized("lasting pace", (first.name, first.pace.history.version), first.pace.lasting_s)
    ends = [w.epochs[view.epoch].t for view in epochs[-1:] for w in state.workers if view.epoch in w.epochs]
    return pace, max([progress.t, *ends])


def _worked_off_s(state: RunState, epochs: list[EpochEnded], pace: float, silent_s: float) -> float:
    """Seconds of work assumed to be finished since the newest report.

    At most two reports and the end of an epoch: a run that compiles or hangs comes no nearer to its end.
    """
    progress = newest_progress(state)
    report_s = progress.report_steps * pace if progress is not None else 0.0
    return min(max(0.0, silent_s), 2 * max(0.0, report_s) + _end_s(epochs))


def _end_s(epochs: list[EpochEnded]) -> float:
    """Mean seconds at the end of an epoch: evaluation without its compilations, and the save."""
    ends = [view.sections_s.get("evaluate", view.valid_s) + view.sections_s.get("save", 0.0) for view in epochs]
    known = [end for end in ends if not math.isnan(end)]
    return sum(known) / len(known) if known else 0.0


def logged(state: RunState) -> list[LoggedView]:
    """The metrics that the script logged itself, those of XLA last; of one that several processes log, the mean.

    What was read from the output of a script whose steps are known otherwise has its source in the names that are
    taken: two sources never share a series.
    """
    key = tuple((process.name, process.logged.version) for process in (*state.workers, *state.read_logs))
    return state.memoized("logged", key, lambda: _logged(state))


def _logged(state: RunState) -> list[LoggedView]:
    by_name: dict[tuple[str, Split], list[LoggedSeries]] = {}
    for worker in state.workers:
        for name, split, series in worker.logged.items():
            by_name.setdefault((name, split), []).append(series)
    taken = {*by_name, (LOSS, "train")}
    for process in state.read_logs:
        for name, split, series in process.logged.items():
            shown = f"{name} ({series.source})" if (name, split) in taken else name
            by_name.setdefault((shown, split), []).append(series)
    views = [combined_view(name, split, parts) for (name, split), parts in by_name.items()]
    return sorted(views, key=lambda view: is_of_xla(view.name))

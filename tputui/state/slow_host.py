"""The host that is persistently slower than the others, so that they wait for it in every step.

The criterion is the one of `tputui.state.slow_core`. A row is the time that every host itself took per step, so
computing and waiting for batches but not waiting for others, in the same few steps: hosts report at different steps,
so each row is a mean over the reports that overlap it. Single times scatter, so a row is judged by the median of its
times and of the `SMOOTHED` - 1 rows before. A host is off if that exceeds the median host by more than `SLOWER` of a
step and by more than three median absolute deviations. It is named after 20 steps in which it was off, at least ten of
them apart, or correspondingly more with steps in between in which it was not, and for as long as the median of its
newest rows exceeds that limit.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from statistics import median
from typing import Literal, NamedTuple

from tputui.state.aligned import split_work
from tputui.state.outlier import (
    LEAD,
    LEAST_CORES,
    NAMED,
    OFF,
    SMOOTHED,
    OutlierRow,
    OutlierSearch,
    median_of_sorted,
    slow_members,
)
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import SlowHostView
from tputui.telemetry.events import HostPaceMeasured

SLOWER = 0.05
"""Share of a step by which a host must exceed the median host."""
_STEPS_MOST = 2
"""Steps that a row counts for, however many it covers."""
_ROWS_MAX = 48
"""Newest rows that are examined."""
_TOLERANCE = 0.1
"""Octaves by which a mean report may exceed a row."""
_CHANGED_MAX = 2_048
"""Hosts of which rows are made again for one frame, counted once per row: 8 rows of 256 hosts."""
_FIRST = attrgetter("first")
_KNOWN = 0.75
"""Share of the hosts that must have reported the steps of a row."""


_Paces = Mapping[int, Sequence[HostPaceMeasured]]
"""By host: its newest reports, in order of steps."""


class _Times(NamedTuple):
    """Seconds per step of the hosts, as far as they are known."""

    of_host: Mapping[int, float]
    in_order: Sequence[float]
    """The same, ascending."""

    @classmethod
    def of(cls, of_host: Mapping[int, float]) -> _Times:
        return cls(of_host, sorted(of_host.values()))

    def above_others(self, host: int) -> float | None:
        """Seconds by which a host exceeds the median of the others; None if it or they are not known."""
        own_s = self.of_host.get(host)
        if own_s is None or len(self.in_order) < 2:
            return None
        place = bisect_left(self.in_order, own_s)
        return own_s - median_of_sorted([*self.in_order[:place], *self.in_order[place + 1 :]])


class _Row(NamedTuple):
    """The hosts in the same few steps."""

    first: int
    last: int
    whole_s: Mapping[int, float]
    """Seconds of a step by host."""
    own: _Times
    """What every host takes itself: computing, and waiting for batches."""
    data: _Times
    compute: _Times
    basis_s: float
    """Seconds of a step of the median host, which excesses are shares of."""


_Behind = Sequence[tuple[int, int]]
"""The hosts whose reports do not reach the end of a row: their newest step, and index."""


class SlowHosts:
    """Finds the slow host. Rows are kept between snapshots until a host that has not reported all of their steps
    reports more: the newest ones, and no others while a host is silent."""

    def __init__(self) -> None:
        self._newest: dict[int, HostPaceMeasured] = {}
        """The newest report of each host."""
        self._rows: dict[tuple[int, int], tuple[_Behind, _Row]] = {}
        self._judged: dict[tuple[int, int], tuple[Sequence[_Row], OutlierRow]] = {}
        self.is_behind = False
        """Whether some rows are without the newest reports of some hosts."""

    def find(self, paces: _Paces, names: Mapping[int, str], changed_max: int = sys.maxsize) -> SlowHostView | None:
        """The host that is slower now; `paces` are the newest reports by host, in order of steps.

        If hosts have reported more of more than `changed_max` rows, some of these are as they were until later calls.
        """
        self.is_behind = False
        reported = {host: reports for host, reports in paces.items() if reports}
        if len(reported) < 2:
            return None
        self._forget_cut(reported)
        size = _row_size(list(reported.values()))
        rows = self._newest_rows(reported, size, changed_max)
        if len(rows) < SMOOTHED:
            return None
        search = OutlierSearch(lead=LEAD)
        before, self._judged = self._judged, {}
        for index in range(SMOOTHED - 1, len(rows)):
            smoothed, key = rows[index - SMOOTHED + 1 : index + 1], (rows[index].first, rows[index].last)
            judged = before.get(key)
            if judged is None or judged[0] != smoothed:
                judged = (smoothed, _judged(smoothed))
            self._judged[key] = judged
            search.add(judged[1])
        # A host at the limit is off in some rows only, so a host that was named is as long as it is slow in the mean.
        outlier = search.outlier(now=True) or search.outlier()
        if outlier is None or outlier.by <= 0:
            return None
        return _view(outlier.core, outlier.first_step, rows[-NAMED:], reported, names)

    def _forget_cut(self, paces: _Paces) -> None:
        """Forgets all rows if there are other hosts, or if steps were trained again."""
        before, self._newest = self._newest, {host: reports[-1] for host, reports in paces.items()}
        if before.keys() != paces.keys() or any(_is_cut(paces[host], report) for host, report in before.items()):
            self._rows, self._judged = {}, {}

    def _newest_rows(self, paces: _Paces, size: int, changed_max: int) -> list[_Row]:
        """The newest rows that most hosts have reported, in order."""
        newest = sorted((reports[-1].step, host) for host, reports in paces.items())
        reached = newest[int((1.0 - _KNOWN) * len(newest))][0]
        last_index = reached // size
        first_index = max(min(reports[0].first for reports in paces.values()) // size, last_index - _ROWS_MAX)
        before, self._rows = self._rows, {}
        behind_of = {
            (key := (index * size + 1, (index + 1) * size)): newest[: bisect_left(newest, (key[1], 0))]
            for index in range(first_index, last_index)
        }
        changed_rows = [key for key, behind in behind_of.items() if key in before and before[key][0] != behind]
        late = set(split_work(changed_rows, changed_max)[1])
        self.is_behind = bool(late)
        for key, behind in behind_of.items():
            cached = before.get(key)
            if cached is None:
                cached = (behind, _row(key, paces, None))
            elif cached[0] != behind and key not in late:
                changed = {host: paces[host] for _, host in (*cached[0], *behind)}
                cached = (behind, _row(key, changed, cached[1]))
            self._rows[key] = cached
        return [row for _, row in self._rows.values() if len(row.own.of_host) >= max(2, _KNOWN * len(paces))]


def slow_host(state: RunState) -> SlowHostView | None:
    """The host that is slower than the others now; None if there is none, or if the run has one host."""
    leaders: dict[int, ProcessState] = {}
    for host, own in state.by_host.items():
        for process in own:
            if process.reports.paces:
                leaders[host] = process
                break
    paces = {host: leader.reports.paces for host, leader in leaders.items()}
    names = {host: leader.opened.host if leader.opened is not None else "" for host, leader in leaders.items()}
    key = tuple((host, leader.name, leader.reports.num_paces) for host, leader in leaders.items())
    slow_hosts = state.memoized("slow hosts", None, SlowHosts)
    return state.memoized_in_parts(
        "slow host",
        key,
        lambda: (slow_hosts.find(paces, names, state.at_most(_CHANGED_MAX, len(paces))), slow_hosts.is_behind),
    )


def _own_s(pace: HostPaceMeasured) -> float:
    """Seconds of a step before the host waits for others, as far as they are measured on it; else of the whole step."""
    if pace.compute_s is None:
        return pace.step_s if pace.data_s is None else pace.data_s
    return pace.compute_s + (pace.data_s or 0.0)


def _row_size(paces: Sequence[Sequence[HostPaceMeasured]]) -> int:
    """Steps of a row, about those of a report: a power of two, so that the rows stay the same while reports change a
    little in length."""
    steps = sorted((reports[-1].step - reports[0].first + 1) / len(reports) for reports in paces)
    return 1 << max(0, math.ceil(math.log2(steps[len(steps) // 2]) - _TOLERANCE))


def _is_cut(reports: Sequence[HostPaceMeasured], newest: HostPaceMeasured) -> bool:
    """Whether reports have lost what was their newest one, other than to make room for newer ones."""
    index = bisect_right(reports, newest.first, key=_FIRST) - 1
    return reports[0].first <= newest.step if index < 0 else reports[index] is not newest


def _row(steps: tuple[int, int], paces: Mapping[int, Sequence[HostPaceMeasured]], before: _Row | None) -> _Row:
    """The row of the first to the last of `steps`: of some hosts by their reports, of others as it was `before`."""
    times_s = (before.whole_s, before.own.of_host, before.data.of_host, before.compute.of_host) if before else ({},) * 4
    whole, own, data, compute = ({host: s for host, s in times.items() if host not in paces} for times in times_s)
    for host, reports in paces.items():
        means = _means(reports, *steps)
        if means is not None:
            whole[host], own[host], data_s, compute_s = means
            if data_s is not None:
                data[host] = data_s
            if compute_s is not None:
                compute[host] = compute_s
    in_order = _Times.of(own)
    basis_s = 0.0
    if own:
        basis_s = median_of_sorted(sorted(whole.values()) if len(compute) < len(own) else in_order.in_order)
    return _Row(*steps, whole, in_order, _Times.of(data), _Times.of(compute), basis_s)


def _means(
    reports: Sequence[HostPaceMeasured], first: int, last: int
) -> tuple[float, float, float | None, float | None] | None:
    """Means over the steps from `first` to `last` of a host: of whole steps, of what it takes itself, and, if they are
    known, of waiting for batches and of computing. None if it has reported none of the steps."""
    own_s = step_s = data_s = compute_s = 0.0
    steps = data_steps = compute_steps = 0
    for index in range(bisect_right(reports, last, key=_FIRST) - 1, -1, -1):
        pace = reports[index]
        begin, end, data_each, compute_each = pace.first, pace.step, pace.data_s, pace.compute_s
        if end < first:
            break
        shared = (end if end < last else last) - (begin if begin > first else first) + 1
        steps += shared
        own_s += shared * _own_s(pace)
        step_s += shared * pace.step_s
        if data_each is not None:
            data_s, data_steps = data_s + shared * data_each, data_steps + shared
        if compute_each is not None:
            compute_s, compute_steps = compute_s + shared * compute_each, compute_steps + shared
    if not steps:
        return None
    return (
        step_s / steps,
        own_s / steps,
        data_s / data_steps if data_steps else None,
        compute_s / steps if compute_steps == steps else None,
    )


def _judged(rows: Sequence[_Row]) -> OutlierRow:
    """The hosts that are slow in the newest of the rows."""
    newest, before = rows[-1], [row.own.of_host for row in rows[:-1]]
    own: dict[int, float] = {}
    for host, seconds in newest.own.of_host.items():
        times = [of_host[host] for of_host in before if host in of_host]
        times.append(seconds)
        times.sort()
        own[host] = times[SMOOTHED // 2] if len(times) == SMOOTHED else median_of_sorted(times)
    steps = min(newest.last - newest.first + 1, _STEPS_MOST)
    least = SLOWER / OFF * newest.basis_s
    if len(own) >= LEAST_CORES:
        return slow_members(newest.first, newest.last, steps, own, max(least, 1e-12))
    # Of two or three hosts, one is compared with the slower one of the others.
    off: dict[int, float] = {}
    for host, value in own.items():
        others = max(seconds for other, seconds in own.items() if other != host)
        if value - others > OFF * least > 0:
            off[host] = (value - others) / least
    return OutlierRow(newest.first, newest.last, steps, off, least, newest.basis_s)


def _view(
    host: int, first_step: int, rows: Sequence[_Row], paces: _Paces, names: Mapping[int, str]
) -> SlowHostView | None:
    """The view of the slow host by the newest rows; None if it is no longer slow over all of them."""
    seconds: list[float] = []
    shares: list[float] = []
    for row in rows:
        above_s = row.own.above_others(host)
        if above_s is not None and row.basis_s > 0:
            seconds.append(above_s)
            shares.append(above_s / row.basis_s)
    if not shares or median(shares) < SLOWER:
        return None
    data_s = _mean_above_others(host, [row.data for row in rows])
    compute_s = _mean_above_others(host, [row.compute for row in rows])
    part: Literal["compute", "data", "step"] = "step" if data_s is None else "data"
    if compute_s is not None and (data_s is None or compute_s >= data_s):
        part = "compute"
    return SlowHostView(
        index=host,
        name=names.get(host, ""),
        part=part,
        share=median(shares),
        seconds=median(seconds),
        first_step=first_step,
        waiting=len(paces) - 1,
    )


def _mean_above_others(host: int, times: Iterable[_Times]) -> float | None:
    """Mean seconds per step by which a host exceeds the median of the others; None if not known."""
    above_s = [above_s for times_of_step in times if (above_s := times_of_step.above_others(host)) is not None]
    return math.fsum(above_s) / len(above_s) if above_s else None

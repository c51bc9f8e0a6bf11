"""Memory and XLA counters of all processes over time: each reading is combined with the newest ones of the others.

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

from tputui.state.chart_data import TRAFFIC_RATES, MemoryPoint, XlaPoint
from tputui.state.state_struct import POINTS_MAX, Downsampled, last_of

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

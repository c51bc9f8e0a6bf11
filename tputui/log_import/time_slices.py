"""Orders values of a log by time, and cuts them into slices that become events at the times of the log. Pure.

The runs of a log directory are read in chunks, each of which may reach further than the others: values wait until all
runs were read up to their time. The order of the values of one tag never changes.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence

from tputui.logs.values import LoggedValue

SLICE_S = 1.0
"""Least seconds of log time in one slice ..."""
SLICE_SHARE = 1e-3
"""... and this share of the time since the beginning of the log."""
WAITING_MAX = 1_000_000
"""Values that wait, at most; with more, they are returned at a later time than their own."""


class TimeSlices:
    """Values in, slices with one time each out."""

    def __init__(self, latest_t: float) -> None:
        """Times after `latest_t`, in unix seconds, are damage and are replaced by that of the value before."""
        self._latest_t = latest_t
        self._keys: list[float] = []
        """Times of the waiting values, ascending."""
        self._values: list[LoggedValue] = []
        self._start: float | None = None
        self.now = 0.0
        """Time of the last slice, in unix seconds."""

    @property
    def first_t(self) -> float | None:
        """Time of the first waiting value, in unix seconds; None if none waits."""
        return self._keys[0] if self._keys else None

    def waiting_tags(self) -> Iterator[str]:
        """The tags of the values that wait."""
        return (value.tag for value in self._values)

    def add(self, values: Sequence[LoggedValue], default_t: float) -> None:
        """Adds values in the order of their log; `default_t` is the unix time of values without one."""
        if not values:
            return
        times = [value.t for value in values]
        keys = list(itertools.accumulate(self._known(times, default_t), max))
        if not self._keys or keys[0] >= self._keys[-1]:
            self._keys += keys
            self._values += values
            return
        # Stable, so that equal times keep the order in which they were read.
        pairs = sorted(zip([*self._keys, *keys], [*self._values, *values], strict=True), key=lambda pair: pair[0])
        self._keys, self._values = [key for key, _ in pairs], [value for _, value in pairs]

    def take(self, until: float = math.inf) -> Iterator[tuple[float, list[LoggedValue]]]:
        """Time and values of the slices up to the unix time `until`; times never go back."""
        keys, values = self._keys, self._values
        end = len(keys) if until == math.inf else bisect.bisect_right(keys, until)
        end = max(end, len(keys) - WAITING_MAX)
        self._keys, self._values = keys[end:], values[end:]
        place = 0
        while place < end:
            first = max(keys[place], self.now)
            self._start = first if self._start is None else self._start
            length_s = max(SLICE_S, (first - self._start) * SLICE_SHARE)
            following = bisect.bisect_right(keys, first + length_s, place, end)
            self.now = max(self.now, keys[following - 1])
            yield self.now, values[place:following]
            place = following

    def _known(self, times: Sequence[float | None], default_t: float) -> Sequence[float]:
        """The times, with those that are missing or impossible replaced."""
        if all(t is None for t in times):
            return [max(self.now, default_t)] * len(times)
        found, before = [], self.now or default_t
        for t in times:
            if t is not None and 0.0 < t <= self._latest_t:
                before = t
            found.append(before)
        return found

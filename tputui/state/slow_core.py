"""The core that computes persistently slower than the others, found as the rows of its run arrive.

The criterion is the one of `tputui.state.outlier`: a core is named after 20 consecutive steps in which it was off, or
correspondingly more with steps in between in which it was not. Single times scatter, the more so if cores share a
processor, so a step is judged by the median of its time and the `SMOOTHED` - 1 before it. A core is off if that is
more than `_STEP_SHARE` and more than three median absolute deviations above the median core. It is named if the median
over 20 steps is also at least `SLOWER` above the other cores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from tputui.state.chart_data import Core, SlowCoreView
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
from tputui.state.state_struct import FloatArray, StateStruct
from tputui.telemetry.events import Int

SLOWER = 0.10
"""Share of the compute time of the other cores by which a core must exceed it to be named."""
_STEP_SHARE = 0.05
"""The same for a single step, whose time scatters around that of the core."""
CORES_TIMED_MAX = 1024
"""More than one host has; the compute times of more cores are not examined."""
ROWS_MAX = 64
"""Newest steps that are stored."""


class CoreRow(NamedTuple):
    """The loss or the compute time of every core in one step; values: [cores], by column of the event."""

    step: Int
    values: FloatArray


class SlowCores(StateStruct):
    """The compute times of the newest steps of one process, and the core that is slower than the others, by column."""

    rows: Annotated[list[CoreRow], msgspec.Meta(max_length=ROWS_MAX)] = msgspec.field(default_factory=list)
    search: OutlierSearch = msgspec.field(default_factory=lambda: OutlierSearch(lead=LEAD))
    named: Core | None = None
    """Column of the core."""

    def add(self, step: int, seconds: FloatArray) -> SlowCoreView | None:
        """Adds the next step, [cores]. Returns the core if this step is the first in which it is named."""
        if self.rows and (step <= self.rows[-1].step or len(seconds) != len(self.rows[-1].values)):
            self.rows, self.search, self.named = [], OutlierSearch(lead=LEAD), None
        if not seconds or not all(0.0 < duration < math.inf for duration in seconds):
            return None
        self.rows = [*self.rows[-ROWS_MAX + 1 :], CoreRow(step, seconds)]
        if len(self.rows) < SMOOTHED:
            return None
        first_step = self.rows[-LEAD - 1].step
        self.search.add(slow_cores(first_step, step, _medians(self.rows[-SMOOTHED:])))
        slow_core = self._found()
        is_new = slow_core is not None and slow_core.core != self.named
        self.named = slow_core.core if slow_core is not None else None
        return slow_core if is_new else None

    @property
    def slow_core(self) -> SlowCoreView | None:
        """The core that is slower now."""
        return self._found() if self.named is not None else None

    def medians(self) -> list[float]:
        """Median compute time of each core over the newest steps, in seconds; empty if none is known."""
        return _medians(self.rows)

    def _found(self) -> SlowCoreView | None:
        outlier = self.search.outlier(now=True)
        if outlier is None:
            return None
        share = self._share(outlier.core)
        if outlier.core != self.named and share < SLOWER:
            return None
        num_steps = self.search.above[outlier.core].total
        return SlowCoreView(core=outlier.core, share=share, first_step=outlier.first_step, num_steps=num_steps)

    def _share(self, column: int) -> float:
        """Median over the newest steps of how much longer a core took than the median of the others."""
        shares: list[float] = []
        for row in self.rows[-NAMED:]:
            others = sorted([*row.values[:column], *row.values[column + 1 :]])
            shares.append(row.values[column] / median_of_sorted(others) - 1.0)
        return median_of_sorted(sorted(shares))


def _medians(rows: Sequence[CoreRow]) -> list[float]:
    """Median of each core over steps, [cores]."""
    return [median_of_sorted(sorted(column)) for column in zip(*(row.values for row in rows), strict=True)]


def slow_cores(first_step: int, last_step: int, seconds: Sequence[float]) -> OutlierRow:
    """Finds the cores that are slow by their times, [cores], which are positive; none if there are too few cores."""
    least = _STEP_SHARE / OFF * median_of_sorted(sorted(seconds))
    row = slow_members(first_step, last_step, 1, dict(enumerate(seconds)), least)
    return row if len(seconds) >= LEAST_CORES else row._replace(off={})

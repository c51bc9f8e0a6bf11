"""How fast one writer's steps went: the figures of its reports, bounded in memory however many there are. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from tputui.model.snapshot import ThroughputPoint
from tputui.model.thinned import Thinned
from tputui.telemetry.events import ProgressReported

_LOG_WIDTH = math.log(1.01)
"""Step times are counted in bins 1 % wide."""
_LEAST_S, _MOST_S = 1e-9, 1e9
"""A report that says less or more was not measured."""


class _Report(NamedTuple):
    """One report, or neighbouring ones together."""

    t: float
    step: int
    num_steps: int
    step_s: float
    examples_per_s: float

    def join(self, later: _Report) -> _Report:
        num_steps = self.num_steps + later.num_steps
        self_s, later_s = self.num_steps * self.step_s, later.num_steps * later.step_s
        total_s = self_s + later_s
        examples_per_s = (self.examples_per_s * self_s + later.examples_per_s * later_s) / total_s
        return _Report(later.t, later.step, num_steps, total_s / num_steps, examples_per_s)


class Pace:
    """Step times and throughput, as reported."""

    def __init__(self) -> None:
        self.num_reports = 0
        self._steps: Counter[int] = Counter()
        """By the bin of its step time: how many steps were reported."""
        self._history: Thinned[_Report] = Thinned(_Report.join)
        self._newest_step = 0

    def add(self, event: ProgressReported) -> None:
        """Takes a report in; one without a step time that can be is passed over."""
        num_steps = event.step - self._newest_step if self._newest_step else min(event.step, event.report_steps)
        self._newest_step = max(self._newest_step, event.step)
        if not (_LEAST_S <= event.step_s <= _MOST_S and math.isfinite(event.examples_per_s) and num_steps > 0):
            return
        self.num_reports += 1
        self._steps[round(math.log(event.step_s) / _LOG_WIDTH)] += num_steps
        self._history.add(_Report(event.t, event.step, num_steps, event.step_s, event.examples_per_s))

    def quantile(self, share: float) -> float:
        """The step time in seconds that `share` of the steps keep, exact to 1 %. Needs a report."""
        left = share * self._steps.total()
        place = 0
        for place in sorted(self._steps):
            left -= self._steps[place]
            if left <= 0:
                break
        return math.exp(place * _LOG_WIDTH)

    def points(self) -> list[ThroughputPoint]:
        """The reports in order, bounded in number."""
        return [
            ThroughputPoint(t=one.t, step=one.step, step_s=one.step_s, examples_per_s=one.examples_per_s)
            for one in self._history.items
        ]

    def fork(self) -> Pace:
        """Another one that holds the same and goes on by itself."""
        copy = Pace()
        copy.num_reports, copy._newest_step = self.num_reports, self._newest_step
        copy._steps, copy._history = self._steps.copy(), self._history.fork()
        return copy

"""How fast one writer's steps went: the figures of its reports, bounded in memory however many there are. Pure."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

from tputui.state.chart_data import ThroughputPoint
from tputui.state.downsampled import POINTS_MAX, join_pairs
from tputui.telemetry.events import ProgressReported

_LOG_WIDTH = math.log(1.002)
"""Step times are counted in bins 0.2 % wide."""
_LASTING_REPORTS = 32
"""So many reports make a step time to expect, where there are as many."""
_TRIMMED = 0.1
"""Share of the steps left out of it on either side."""
_LEAST_S, _MOST_S = 1e-9, 1e9
"""A report that says less or more was not measured."""


class ReportPace(NamedTuple):
    """Neighbouring reports together."""

    t: float
    step: int
    num_steps: int
    total_s: float
    num_examples: float

    def join(self, later: ReportPace) -> ReportPace:
        """Both together."""
        return ReportPace(
            later.t,
            later.step,
            self.num_steps + later.num_steps,
            self.total_s + later.total_s,
            self.num_examples + later.num_examples,
        )

    def to_point(self) -> ThroughputPoint:
        """As it stands in a snapshot."""
        return ThroughputPoint(
            t=self.t,
            step=self.step,
            step_s=self.total_s / self.num_steps,
            examples_per_s=self.num_examples / self.total_s,
        )


class Pace:
    """Step times and throughput, as reported."""

    def __init__(self) -> None:
        self.num_reports = 0
        self._steps: dict[int, int] = {}
        """By the bin of its step time: how many steps were reported ..."""
        self._seconds: dict[int, float] = {}
        """... and how long they took."""
        self._history: list[ReportPace] = []
        """Each of `_stride` reports together."""
        self._stride = 1
        self._newest_step = 0
        # The reports since, added up; a long run is opened by ten thousand of them.
        self._in_open = 0
        self._open_t = 0.0
        self._open_steps = 0
        self._open_s = 0.0
        self._open_examples = 0.0

    def add(self, event: ProgressReported) -> None:
        """Takes a report in; one without a step time that can be is passed over."""
        step, step_s = event.step, event.step_s
        num_steps = step - self._newest_step if self._newest_step else min(step, event.report_steps)
        if num_steps <= 0 or not (_LEAST_S <= step_s <= _MOST_S and math.isfinite(event.examples_per_s)):
            return
        self._newest_step = step
        self.num_reports += 1
        place = round(math.log(step_s) / _LOG_WIDTH)
        self._steps[place] = self._steps.get(place, 0) + num_steps
        total_s = num_steps * step_s
        self._seconds[place] = self._seconds.get(place, 0.0) + total_s
        self._in_open += 1
        self._open_t = event.t
        self._open_steps += num_steps
        self._open_s += total_s
        self._open_examples += event.examples_per_s * total_s
        if self._in_open == self._stride:
            self._close()

    def quantile(self, share: float) -> float:
        """The step time in seconds that `share` of the steps keep, exact to 0.1 %. Needs a report."""
        left = share * sum(self._steps.values())
        place = 0
        for place in sorted(self._steps):
            left -= self._steps[place]
            if left <= 0:
                break
        return self._seconds[place] / self._steps[place]

    def lasting_s(self) -> float:
        """The step time in seconds to expect for long: a mean over the newer half of the steps. Needs two reports.

        The slowest and the fastest tenth of those steps are left out, so that a hiccup does not move it, and the first
        report, which has in it what is done once.
        """
        reports = [*self._history, self._open()] if self._in_open else self._history
        if self._stride == 1:
            reports = reports[1:]
        newer: list[ReportPace] = []
        left = sum(report.num_steps for report in reports) / 2
        for report in reversed(reports):
            if left <= 0 and len(newer) >= _LASTING_REPORTS:
                break
            newer.append(report)
            left -= report.num_steps
        return _trimmed_step_s(newer)

    def points(self) -> list[ThroughputPoint]:
        """The reports in order, bounded in number."""
        newest = [self._open()] if self._in_open else []
        return [reports.to_point() for reports in [*self._history, *newest]]

    def fork(self) -> Pace:
        """Another one that holds the same and goes on by itself."""
        other = copy.copy(self)
        other._steps, other._seconds, other._history = self._steps.copy(), self._seconds.copy(), self._history.copy()
        return other

    def _open(self) -> ReportPace:
        return ReportPace(self._open_t, self._newest_step, self._open_steps, self._open_s, self._open_examples)

    def _close(self) -> None:
        self._history.append(self._open())
        self._in_open = self._open_steps = 0
        self._open_s = self._open_examples = 0.0
        if len(self._history) == POINTS_MAX:
            self._history = join_pairs(self._history, ReportPace.join)
            self._stride *= 2


def _trimmed_step_s(reports: list[ReportPace]) -> float:
    """Mean step time over reports, without the slowest and the fastest steps of them."""
    num_steps = sum(report.num_steps for report in reports)
    low, high = _TRIMMED * num_steps, (1 - _TRIMMED) * num_steps
    total_s, done = 0.0, 0
    for report in sorted(reports, key=lambda each: each.total_s / each.num_steps):
        counted = max(0.0, min(done + report.num_steps, high) - max(done, low))
        total_s += counted * report.total_s / report.num_steps
        done += report.num_steps
    return total_s / (high - low)

"""Step times and throughput of one process from its reports, bounded in memory however many there are."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec

from tputui.state.chart_data import ThroughputPoint
from tputui.state.downsampled import POINTS_MAX, join_pairs
from tputui.state.state_struct import AtLeastOne, Count, StateStruct
from tputui.telemetry.events import ProgressReported

_LOG_WIDTH = math.log(1.002)
"""Step times are counted in bins 0.2 % wide."""
_LASTING_REPORTS = 32
"""Reports that the expected step time is based on, if there are as many."""
_TRIMMED = 0.1
"""Share of the slowest steps, and of the fastest, that is left out of it."""
_LEAST_S, _MOST_S = 1e-9, 1e9
"""Step times outside this range are ignored."""


class ReportPace(NamedTuple):
    """Neighbouring reports, joined."""

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
        """The reports as part of a snapshot."""
        return ThroughputPoint(
            t=self.t,
            step=self.step,
            step_s=self.total_s / self.num_steps,
            examples_per_s=self.num_examples / self.total_s,
        )


class Pace(StateStruct):
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
    # Reports since the newest item of the history, summed: reading a long run adds ten thousand of them.
    in_open: Count = 0
    open_t: float = 0.0
    open_steps: Count = 0
    open_s: float = 0.0
    open_examples: float = 0.0

    def add(self, event: ProgressReported) -> None:
        """Adds a report; one with an implausible step time is ignored."""
        step, step_s = event.step, event.step_s
        num_steps = step - self.newest_step if self.newest_step else min(step, event.report_steps)
        if num_steps <= 0 or not (_LEAST_S <= step_s <= _MOST_S and math.isfinite(event.examples_per_s)):
            return
        self.newest_step = step
        self.num_reports += 1
        place = round(math.log(step_s) / _LOG_WIDTH)
        self.steps[place] = self.steps.get(place, 0) + num_steps
        total_s = num_steps * step_s
        self.seconds[place] = self.seconds.get(place, 0.0) + total_s
        self.in_open += 1
        self.open_t = event.t
        self.open_steps += num_steps
        self.open_s += total_s
        self.open_examples += event.examples_per_s * total_s
        if self.in_open == self.stride:
            self._close()

    def quantile(self, share: float) -> float:
        """Quantile of the step times in seconds, exact to 0.1 %. Needs a report."""
        left = share * sum(self.steps.values())
        place = 0
        for place in sorted(self.steps):
            left -= self.steps[place]
            if left <= 0:
                break
        return self.seconds[place] / self.steps[place]

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
        return _trimmed_step_s(newer)

    def points(self) -> list[ThroughputPoint]:
        """The reports in order, bounded in number."""
        newest = [self._open()] if self.in_open else []
        return [reports.to_point() for reports in [*self.history, *newest]]

    def _open(self) -> ReportPace:
        return ReportPace(self.open_t, self.newest_step, self.open_steps, self.open_s, self.open_examples)

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
    for report in sorted(reports, key=lambda each: each.total_s / each.num_steps):
        counted = max(0.0, min(done + report.num_steps, high) - max(done, low))
        total_s += counted * report.total_s / report.num_steps
        done += report.num_steps
    return total_s / (high - low)

"""What a process reported of its host, and the restarts of the process."""

from __future__ import annotations

import math
from typing import Annotated, get_args

import msgspec
from msgspec.structs import replace

from tputui.state.state_struct import Count, Record, StateStruct
from tputui.telemetry import events as ev
from tputui.telemetry.events import Int

PACES_MAX = 64
"""Newest reports of the pace of a host that are stored."""
RESTARTS_MAX = 256
"""Restarts of a process that are stored, the newest ones."""
REASON_CHARS_MAX = 500
HostReport = ev.HostsAwaited | ev.HostJoined | ev.ClockMeasured | ev.HostPaceMeasured
HOST_REPORTS: tuple[type[HostReport], ...] = get_args(HostReport)


class Restart(Record, frozen=True):
    """A process took the place of one that had ended."""

    number: Count
    """The generation that began, as torchrun counts restarts."""
    t: float
    """Unix time at which it opened the journal."""
    last_step: Int
    """Newest step of the process before."""
    reason: str = ""
    """Why that one ended; empty if it did not report it."""
    failed_t: float | None = None
    """Unix time of the failure that ended it, if that was reported."""
    other_host: str | None = None
    """Place of a process on another host whose failure ended it."""
    first_step: Int | None = None
    """First step of the new process; None before its plan is known."""
    kept_t: float | None = None
    """Unix time at which the step before `first_step` was reported; None if there was none."""
    resumed_t: float | None = None
    """Unix time at which the new process reported its first steps."""


class ReportedFailure(Record, frozen=True):
    """A first failure that a supervisor reported."""

    t: float
    """Unix time of the report."""
    reason: str


class HostReports(StateStruct):
    """The newest reports of a process about its host, and its restarts."""

    awaited: ev.HostsAwaited | None = None
    joined: ev.HostJoined | None = None
    clock: ev.ClockMeasured | None = None
    paces: Annotated[list[ev.HostPaceMeasured], msgspec.Meta(max_length=PACES_MAX)] = msgspec.field(
        default_factory=list
    )
    """In order of steps, which do not overlap."""
    num_paces: Count = 0
    """Paces added."""
    restarts: Annotated[list[Restart], msgspec.Meta(max_length=RESTARTS_MAX)] = msgspec.field(default_factory=list)
    failures: Annotated[list[ReportedFailure], msgspec.Meta(max_length=RESTARTS_MAX)] = msgspec.field(
        default_factory=list
    )
    """What a supervisor reported, the newest failures."""
    began_step: Int | None = None
    """First step of the process before all restarts; None before its plan is known."""
    unread_steps: Count = 0
    """Steps whose values the newest process had not read from its device when it ended."""

    def take(self, event: HostReport) -> None:
        """Takes a report; one that contradicts itself is ignored."""
        if isinstance(event, ev.HostsAwaited):
            self.awaited = event
        elif isinstance(event, ev.HostJoined):
            self.joined, self.awaited = event, None
        elif isinstance(event, ev.ClockMeasured):
            if math.isfinite(event.offset_s + event.error_s) and event.error_s >= 0:
                self.clock = event
        else:
            self._add_pace(event)

    def _add_pace(self, pace: ev.HostPaceMeasured) -> None:
        """Adds the pace of the newest steps; ignored if it is not positive or of steps before."""
        times = [s for s in (pace.step_s, pace.data_s, pace.compute_s, pace.wait_s) if s is not None]
        is_first = not self.paces or pace.first > self.paces[-1].step
        if is_first and 1 <= pace.first <= pace.step and pace.step_s > 0 and all(0 <= s < math.inf for s in times):
            self.num_paces += 1
            self.paces.append(pace)
            del self.paces[:-PACES_MAX]

    def restarted(self, restart: Restart) -> None:
        self.restarts = [*self.restarts[1 - RESTARTS_MAX :], restart]

    def failed(self, failure: ReportedFailure) -> None:
        self.failures = [*self.failures[1 - RESTARTS_MAX :], failure]

    @property
    def awaits_plan(self) -> bool:
        """Whether the process was restarted, and its first step is not known yet."""
        return bool(self.restarts) and self.restarts[-1].first_step is None

    @property
    def is_resuming(self) -> bool:
        """Whether the process was restarted, and has not reported a step yet."""
        return bool(self.restarts) and self.restarts[-1].resumed_t is None

    def begun_at(self, first_step: int) -> None:
        """A process begins at `first_step`, perhaps the first one."""
        if self.began_step is None and not self.restarts:
            self.began_step = first_step

    def planned(self, first_step: int, kept_t: float | None) -> None:
        """The new process begins at `first_step`."""
        self.restarts[-1] = replace(self.restarts[-1], first_step=first_step, kept_t=kept_t)
        self.paces = [pace for pace in self.paces if pace.step < first_step]

    def stepped(self, t: float) -> None:
        if not self.restarts:
            return
        newest = self.restarts[-1]
        if newest.resumed_t is None and newest.first_step is not None and math.isfinite(t):
            self.restarts[-1] = replace(newest, resumed_t=t)

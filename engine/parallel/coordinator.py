"""Keeps the processes of a run in step: when requests are served, when a report is due, and the mean of the gradients.

Several processes have several clocks, so the first one decides for all when a report is due. Requests may arrive at any
host, and all serve them at the same boundary. Both travel with the gradients where possible: an exchange of its own
costs as much as a short step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
import torch

from engine.parallel.base import Strategy
from engine.section_timer import SectionTimer
from tputui.telemetry.requests import STRENGTH, Request

_REQUESTED, _REPORT_DUE = 1, 2
"""Bits of the exchanged byte."""
_MIN_S = 1e-6
"""Compiler and loop have different clocks; no step takes less than this."""


class ReportSchedule(Protocol):
    """Steps that wait for the next report."""

    @property
    def pending(self) -> int:
        """Number of steps since the last report."""
        ...

    def is_due_after(self, steps: int) -> bool:
        """Whether a report of that many steps is due, by the clock of this process."""
        ...


class Coordinator:
    """Decides at each boundary between steps, the same in every process."""

    def __init__(self, strategy: Strategy, sections: SectionTimer, run: Callable[[str], None]) -> None:
        """`run` runs the traced program of that name; its time is charged to `sections`."""
        self._strategy = strategy
        self._sections = sections
        self._run = run
        self._byte: int | None = None
        """Decision that came with the newest gradients."""
        self._report_due = False
        self._began_s = 0.0
        self._compiled_s = 0.0
        """Seconds spent compiling before the running step."""
        self._compute_s = math.nan
        self.host_compute_s = 0.0
        """Seconds from `begin_step` until this host was ready to exchange with the others, summed over all steps;
        compiling not counted."""

    def begin_step(self) -> None:
        """The batch of the next step is here: its compute time begins."""
        self._compiled_s = self._sections.compiled_s()
        self._began_s = time.perf_counter()
        self._compute_s = math.nan

    @property
    def compute_s(self) -> float:
        """Seconds from `begin_step` until the gradients of this process were on the host, before it waited for the
        others; compiling not counted. NaN if the exchange is part of the program, or if there is none."""
        return self._compute_s

    def should_serve(self, schedule: ReportSchedule, *, requested: bool) -> bool:
        """Whether requests are to be served at this boundary: `requested` of any host. Also decides whether the next
        step ends a report. Collective."""
        if self._strategy.is_only:
            return requested
        byte, self._byte = self._byte, None
        if byte is None:
            byte = self._strategy.combine(self._encode(requested, schedule, schedule.pending + 1))
        self._report_due = bool(byte & _REPORT_DUE)
        return bool(byte & _REQUESTED)

    def is_report_due(self, schedule: ReportSchedule) -> bool:
        """Whether the step that has just run ends a report."""
        return schedule.is_due_after(schedule.pending) if self._strategy.is_only else self._report_due

    def reduce_gradients(
        self, schedule: ReportSchedule, parameters: Sequence[torch.nn.Parameter], *, requested: bool
    ) -> None:
        """Replaces each gradient by its mean over all processes. The decision for the next boundary travels along, with
        `requested` as in `should_serve`. Collective."""
        if self._strategy.is_only:
            return
        # The running step is not pending yet, and never will be if it ends a report.
        steps = 1 if self._report_due else schedule.pending + 2
        byte = self._encode(requested, schedule, steps)
        with self._sections.section("execute"):
            run = partial(self._run, "gradients")
            self._byte = self._strategy.reduce_gradients(parameters, run, self._end_compute, byte)
        hosts = self._strategy.hosts
        if hosts is not None and hosts.ready_s > self._began_s:
            compiling_s = self._sections.compiled_s() - self._compiled_s
            self.host_compute_s += max(hosts.ready_s - self._began_s - compiling_s, 0.0)

    def share_requests(self, requests: list[Request]) -> list[Request]:
        """Returns the requests that any host has received, each once, the strongest last. Collective."""
        if self._strategy.is_only:
            return requests
        found: dict[str, Request] = {}
        for received in self._strategy.collect(msgspec.json.encode(requests)):
            for request in msgspec.json.decode(received, type=list[Request]):
                found.setdefault(request.id, request)
        return sorted(found.values(), key=lambda request: (STRENGTH[request.kind], request.id))

    def _end_compute(self) -> None:
        compiling_s = self._sections.compiled_s() - self._compiled_s
        self._compute_s = max(time.perf_counter() - self._began_s - compiling_s, _MIN_S)

    def _encode(self, requested: bool, schedule: ReportSchedule, steps: int) -> int:
        """The byte of this process; a report is due if the first process says so."""
        report_due = self._strategy.is_first and schedule.is_due_after(steps)
        return _REQUESTED * requested + _REPORT_DUE * report_due

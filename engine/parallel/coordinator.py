"""Keeps the processes of a run in step: when requests are served, when a report is due, and the mean of the gradients.

Several processes have several clocks, so the first one decides for all when a report is due. Requests may arrive at any
host, and all serve them at the same boundary. Both travel with the gradients where possible: an exchange of its own
costs as much as a short step, so that there is none at every boundary.
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
from tputui.reporting import STRENGTH, Request, SectionTimer

_REQUESTED, _REPORT_DUE = 1, 2
"""Bits of the exchanged byte. The others are the number of boundaries without an exchange that follow."""
_QUIET_SHIFT = 2
_QUIET_MAX = 63
_EXCHANGE_S = 0.2
"""Seconds between two exchanges that do not travel with gradients: each waits for the slowest host."""
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
        self._quiet = 0
        """Boundaries ahead without an exchange."""
        self._report_after_quiet = False
        self._exchanged_s = math.nan
        self._steps_since = 0
        """Steps since the last exchange of its own."""
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
        self._steps_since += 1
        if byte is None and self._quiet:
            self._quiet -= 1
            self._report_due = self._report_after_quiet and not self._quiet
            return False
        if byte is None:
            quiet = self._quiet_boundaries(schedule)
            byte = self._strategy.combine(self._encode(requested, schedule, schedule.pending + 1 + quiet, quiet))
        self._quiet = byte >> _QUIET_SHIFT
        self._report_after_quiet = bool(byte & _REPORT_DUE)
        self._report_due = self._report_after_quiet and not self._quiet
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

    def _quiet_boundaries(self, schedule: ReportSchedule) -> int:
        """How many boundaries without an exchange may follow: until the next report, for `_EXCHANGE_S` at most."""
        now = time.perf_counter()
        step_s = (now - self._exchanged_s) / self._steps_since
        self._exchanged_s, self._steps_since = now, 0
        # NaN before the first exchange.
        most = min(_QUIET_MAX, int(_EXCHANGE_S / step_s) - 1) if step_s > 0 else 0
        quiet = 0
        while quiet < most and not schedule.is_due_after(schedule.pending + 1 + quiet):
            quiet += 1
        return quiet

    def _encode(self, requested: bool, schedule: ReportSchedule, steps: int, quiet: int = 0) -> int:
        """The byte of this process; the first process decides on reports and on the next exchange."""
        byte = _REQUESTED * requested
        if self._strategy.is_first:
            byte += _REPORT_DUE * schedule.is_due_after(steps) + (quiet << _QUIET_SHIFT)
        return byte

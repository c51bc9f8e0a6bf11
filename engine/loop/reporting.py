"""`StepReporter`: reports the training steps of a loop, ours or Lightning's, about once a second.

A report does not make the device idle. Its steps are detached when it is due, read after the next step was traced and
before that step is dispatched, when the loop has to wait for the device anyway, and emitted after the dispatch. Before
the loop waits for anything else, `flush` completes the report.

Must not decide anything about training.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from msgspec.structs import replace

from engine.checkpoint.resume import Position
from engine.data.feed import Batch
from engine.loop.events import EventEmitter
from engine.loop.step_buffer import Detached, FetchedSteps, ReportInterval, StepBuffer
from engine.non_finite import NonFiniteDetector
from engine.parallel.base import Strategy
from engine.parallel.coordinator import Coordinator
from engine.task import Plan
from engine.xla import backend
from tputui.reporting import events as ev


class StepReporter:
    """Takes training steps from their trace to the journal."""

    def __init__(
        self,
        plan: Plan,
        strategy: Strategy,
        events: EventEmitter,
        coordinator: Coordinator,
        lr: Callable[[Position], float],
        *,
        meters: tuple[str, ...],
        with_norm: bool = False,
    ) -> None:
        """`lr` gives the learning rate of the step that ended at a position. `meters` are the names of the outcomes of
        a step, the loss first. With `with_norm` each step also has the norm of its gradient."""
        self.buffer = make_buffer(plan, strategy, meters, with_norm=with_norm)
        self.per_core = True
        """Whether the loss of a step is known by core; otherwise there is one value for all."""
        self._strategy = strategy
        self._events = events
        self._coordinator = coordinator
        self._lr = lr
        self._detector = NonFiniteDetector("train", strategy.core_ids, plan.config.non_finite.policy, events.emit)
        self._detached: tuple[Position, float, Detached] | None = None
        """Steps of a report that are still on the device, with the position and learning rate of the last one."""
        self._write: Callable[[], None] | None = None
        """Writes a report that was read."""
        self._times_compute = plan.config.optim.accumulate == 1
        """Otherwise the device still computes earlier batches of the update when a step begins."""
        self._is_traced = False
        """Whether a step was traced and has not run."""
        self._host_totals_s = (0.0, 0.0, 0.0)
        """What the host waited for batches, computed, and waited for other hosts, when it was measured last."""

    @property
    def not_finite(self) -> str | None:
        """Sentence about a loss or gradient that is NaN or infinite; None if all that were read are finite. The same
        in every process."""
        return self._detector.found

    @property
    def mean_loss(self) -> float:
        """Mean training loss of the running epoch up to the newest report; NaN if none was reported."""
        readings = self.buffer.meters.readings()
        return readings["loss"].avg if "loss" in readings else math.nan

    def begin_epoch(self, meters: dict[str, list[float]]) -> None:
        """Restarts the meters, from a saved state if another run began the epoch."""
        self.buffer.restart()
        self.buffer.meters.restore(meters)

    def append(self, outcomes: dict[str, torch.Tensor] | None, batch: Batch, norm: torch.Tensor | None = None) -> None:
        """Traces what keeps a step's outcomes, [rows of the batch] each, on the device; None if it has none."""
        self._is_traced = True
        if self._events.telemetry and outcomes is not None:
            compute_s = self._coordinator.compute_s if self._times_compute else math.nan
            self.buffer.append(outcomes, batch, norm, compute_s)

    def run(self, program: str, at: Position) -> None:
        """Runs the traced step, which ends at `at`, as `program`, and begins a report if one is due."""
        compiled_s = self._events.programs.compile_s
        self._fetch()
        with self._events.sections.section("execute"):
            self._events.programs.run(program)
        if self._events.programs.compile_s > compiled_s:
            self._events.times.skip()
        self._events.times.ended(time.perf_counter())
        self._is_traced = False
        self._events.progress.step = at.step
        self._emit()
        if self._events.telemetry and self._coordinator.is_report_due(self.buffer):
            self._detached = at, self._lr(at), self.buffer.detach()
            # The next step may be compiled as well, which can take minutes; and several processes read together.
            if self._events.programs.compile_s > compiled_s or not self._strategy.is_only:
                self.flush()

    def flush(self) -> None:
        self._fetch()
        self._emit()

    def report_pending(self, at: Position) -> None:
        self.flush()
        if self.buffer.pending:
            self._detached = at, self._lr(at), self.buffer.detach()
            self.flush()

    def report_before_failure(self, at: Position) -> None:
        """Reports the steps up to `at`, where training failed, if they can be read. They cannot if a step was traced
        that did not run, since a read would run it, or if it takes the other processes."""
        if self._is_traced or not self._strategy.is_only:
            return
        with contextlib.suppress(Exception):
            self.report_pending(at)

    def _fetch(self) -> None:
        """Waits for the detached steps and reads them; one transfer."""
        if self._detached is None:
            return
        (at, lr, detached), self._detached = self._detached, None
        with self._events.sections.section("wait"):
            backend.wait()
        with self._events.sections.section("report"):
            values = self.buffer.fetch(detached)
            step_s = self._events.step_s(len(values.means))
            self.buffer.interval.retune(step_s)
            host_pace = self._host_pace(at, len(values.means), step_s)
            self._write = partial(self._write_steps, at, lr, values, step_s, host_pace)
            if len(values.means) > 1:
                # The next step waited for the device in place of those before.
                self._events.times.skip()
        self._events.restart_pace()

    def _emit(self) -> None:
        write, self._write = self._write, None
        if write is not None:
            with self._events.sections.section("report"):
                write()

    def _write_steps(
        self, at: Position, lr: float, values: FetchedSteps, step_s: float, host_pace: ev.HostPaceMeasured | None
    ) -> None:
        """Writes the values and the pace of the steps up to `at`, and what else is reported with them."""
        events, meters = self._events, self.buffer.meters
        losses = values.means if self.per_core else np.ascontiguousarray(values.means[:, :1])
        events.report_steps(at, losses, step_s, lr=lr, report_steps=self.buffer.interval.steps)
        if host_pace is not None:
            events.emit(replace(host_pace, t=time.time()))
        first_step = at.step - len(values.means) + 1
        if values.compute_s is not None:
            events.record_compute(first_step, values.compute_s)
        self._detector.look(first_step, values.means, values.norms, per_core=self.per_core)
        events.report_meters(at, "train", meters.readings(), meters.reduced)
        events.report_runtime()

    def _host_pace(self, at: Position, steps: int, step_s: float) -> ev.HostPaceMeasured | None:
        """The pace of this host since the last report; None if there is one host."""
        hosts = self._strategy.hosts
        if hosts is None:
            return None
        times = self._events.stage_times
        before_s = self._host_totals_s
        now_s = (times.waited_s if times else 0.0, self._coordinator.host_compute_s, hosts.waited_s)
        self._host_totals_s = now_s
        data_s, compute_s, wait_s = ((new - old) / steps for new, old in zip(now_s, before_s, strict=True))
        # Without an exchange on the host there is none that could be measured.
        is_measured = wait_s > 0 and self._times_compute
        return ev.HostPaceMeasured(
            t=time.time(),
            step=at.step,
            steps=steps,
            step_s=step_s,
            data_s=data_s if times is not None else None,
            compute_s=compute_s if is_measured else None,
            wait_s=wait_s if is_measured else None,
        )


def make_buffer(plan: Plan, strategy: Strategy, meters: tuple[str, ...], *, with_norm: bool = False) -> StepBuffer:
    """A buffer that is due as the configuration says."""
    report = plan.config.report
    interval = ReportInterval(report.interval_s, report.every_batches)
    return StepBuffer(meters, strategy, interval, with_norm=with_norm)

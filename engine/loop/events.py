"""`EventEmitter`: writes the journal events of a training loop, ours or Lightning's, and measures the pace of steps.

Must not decide anything about training or read a tensor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from engine.checkpoint.checkpoint_store import SavedCheckpoint
from engine.checkpoint.resume import Position
from engine.data.batch_reader import StageTimes
from engine.errors import BadExample
from engine.loop import step_blocks
from engine.loop.step_buffer import Float32s
from engine.parallel.base import Strategy
from engine.task import Plan
from engine.xla import backend
from engine.xla.runtime_counters import DeviceMemory, ProgramCounters
from tputui.reporting import (
    Collections,
    Progress,
    Reporter,
    Request,
    RequestServer,
    SectionTimer,
    StepTimes,
    StepTracer,
)
from tputui.reporting import events as ev

_MIN_S = 1e-6
"""Compiler and loop have different clocks; no step takes less than this."""


class EventEmitter:
    """Emits the events of one run, in the thread of its loop."""

    def __init__(
        self,
        plan: Plan,
        strategy: Strategy,
        reporter: Reporter,
        progress: Progress,
        warm_up_runs: Mapping[str, int] = {},
        *,
        telemetry: bool = True,
        server: RequestServer | None = None,
    ) -> None:
        """`warm_up_runs` are the runs in which a program may be compiled, by program, if they are not `WARM_UP_RUNS`.
        Without `telemetry` no step is recorded, to measure what telemetry costs. `server` receives the requests."""
        self.sections = SectionTimer(self._enter_section)
        self.programs = ProgramCounters(
            self.sections, self.warn, warm_up_runs, leads=strategy.is_first, sink=self if telemetry else None
        )
        self.progress = progress
        self.telemetry = telemetry
        self.stage_times: StageTimes | None = None
        """Times of the loader, if it is ours."""
        self.loader_threads = 0
        progress.compiling_since = self.programs.compiling_since
        self.server = server or RequestServer(reporter, progress)
        self.tracer = StepTracer(reporter.run_dir, self.server, host_index=strategy.host.number)
        """Writes profiles of steps on request; only in the process that leads its host."""
        self._blocks = (
            step_blocks.from_environment(plan.config.global_batch, backend.wait, self.programs.seconds)
            if strategy.is_first
            else None
        )
        self._plan = plan
        self._strategy = strategy
        self._reporter = reporter
        self._memory = DeviceMemory(strategy.core_ids, strategy.device)
        self._newest_memory: ev.MemorySampled | None = None
        self.times = StepTimes()
        """Wall times of the steps since the last report."""
        self._collections = Collections()
        self._timed = (0, "")
        self._waited_s = 0.0
        """Wait for batches up to the last report of the epoch."""
        self._pace_since = 0.0
        self._pace_compile_s = 0.0
        self._reported_compile_s = 0.0

    def emit(self, event: ev.Event) -> None:
        self._reporter.emit(event)

    @property
    def step(self) -> int:
        return self.progress.step

    def warn(self, text: str) -> None:
        self.emit(ev.WarningRaised(t=time.time(), text=text))

    def take_traces(self, requests: list[Request]) -> list[Request]:
        """Takes the requests for a profile, which the leading process of each host writes and answers; returns the
        others."""
        leads = self._strategy.is_first or self._strategy.hosts is not None
        for request in requests:
            if request.kind != "trace":
                continue
            if leads and request.id not in self.server.answered:
                self.tracer.submit(request)
            else:
                self.server.close(request)
        return [request for request in requests if request.kind != "trace"]

    def between_steps(self, at: Position) -> None:
        """Between two steps: starts or ends a profile, if one was requested, and a block of steps of `tputui try`.

        Raises `Stopped` if `tputui try` has ended.
        """
        if self._blocks is not None:
            self._blocks.at_boundary()
        if self.tracer.is_busy:
            with self.sections.section("report"):
                self.tracer.at_boundary(at.step)

    def begin_training(self, at: Position, planned: ev.TrainingPlanned) -> None:
        """Training begins at the position: emits topology, plan and device memory."""
        self.progress.reported_step = at.step if self.telemetry else None
        if self.telemetry:
            self._collections.start()
        self._declare_topology()
        self.emit(replace(planned, t=time.time(), first_step=at.step + 1))
        self._report_memory()

    def end_training(self, at: Position) -> None:
        """No step follows: ends a profile, and counts no garbage collections any more."""
        self._collections.stop()
        self.tracer.close(at.step)

    def begin_epoch(self, at: Position) -> None:
        """Restarts the section timer and the pace."""
        self.sections.restart()
        self._waited_s = 0.0
        started = time.time()
        if self._blocks is not None:
            self._blocks.begin_epoch()
        self.progress.epoch = at.epoch
        self.restart_pace()
        self.times.skip()
        self.emit(ev.EpochStarted(t=started, epoch=at.epoch, first_step=at.step + 1))

    def end_epoch(
        self,
        at: Position,
        train: dict[str, ev.MeterReading],
        valid: dict[str, ev.MeterReading],
        *,
        train_s: float,
        valid_s: float,
        lr: float,
        best: bool,
        scores: Mapping[str, float] | None = None,
        trace_s: Mapping[str, float] | None = None,
    ) -> None:
        """The epoch ended at its last position; `trace_s` are the parts of the section `trace`."""
        self.emit(
            ev.EpochEnded(
                t=time.time(),
                epoch=at.epoch,
                step=at.step,
                train=train,
                valid=valid,
                train_s=train_s,
                valid_s=valid_s,
                sections_s=self.sections.totals(),
                lr=lr,
                best=best,
                scores=dict(scores or {}),
                trace_s=dict(trace_s or {}),
            )
        )

    def restart_pace(self) -> None:
        """Measures `step_s` from now on."""
        self._pace_since = time.perf_counter()
        self._pace_compile_s = self.programs.compile_s

    def step_s(self, steps: int) -> float:
        """Mean wall time of the steps since `restart_pace`, without the time of compiling."""
        wall_s = time.perf_counter() - self._pace_since
        compile_s = self.programs.compile_s - self._pace_compile_s
        self._timed = self.times.take(steps)
        return max(wall_s - compile_s, _MIN_S) / steps

    def report_steps(self, at: Position, losses: Float32s, step_s: float, *, lr: float, report_steps: int) -> None:
        """Records the losses, [steps, cores or 1], of the steps up to `at`, and emits their pace. Each host records
        those of its own cores."""
        losses = self._of_host(losses)
        self._reporter.record_steps(at.step - len(losses) + 1, losses, losses.shape[1])
        self.progress.reported_step = at.step
        sections_s = self.sections.totals()
        waited_s = sections_s.get("data", 0.0)
        before, self._waited_s = self._waited_s, waited_s
        collections, collections_s = self._collections.take()
        self.emit(
            ev.ProgressReported(
                t=time.time(),
                epoch=at.epoch,
                epoch_step=at.batch,
                step=at.step,
                step_s=step_s,
                examples_per_s=self._plan.config.global_batch / step_s,
                lr=lr,
                report_steps=report_steps,
                sections_s=sections_s,
                timed_steps=self._timed[0],
                steps_s=self._timed[1],
                waited_s=max(0.0, waited_s - before),
                collections=collections,
                collections_s=collections_s,
            )
        )

    def record_compute(self, first_step: int, compute_s: Float32s) -> None:
        """Records the compute time of each core, [steps, cores]; each host that of its own cores."""
        compute_s = self._of_host(compute_s)
        self._reporter.record_steps(first_step, compute_s, compute_s.shape[1], ev.COMPUTE_METRIC)

    def report_meters(self, at: Position, split: ev.Split, meters: dict[str, ev.MeterReading], reduced: str) -> None:
        """Emits meters of a split; `reduced` says how they were computed."""
        self.emit(
            ev.MetersReported(t=time.time(), epoch=at.epoch, step=at.step, split=split, meters=meters, reduced=reduced)
        )

    def report_runtime(self) -> None:
        """Emits the counters of the runtime, and the device memory if it has changed."""
        self.programs.warn_of_steps()
        self._report_programs()
        self._report_memory()
        if self.stage_times is not None and (stages_s := self.stage_times.totals()):
            self.emit(
                ev.InputStagesMeasured(
                    t=time.time(),
                    stages_s=stages_s,
                    batches=self.stage_times.batches,
                    threads=self.loader_threads,
                    waited_s=self.stage_times.waited_s,
                )
            )

    def pictures_written(self, at: Position, pictures: list[ev.PictureKept]) -> None:
        """Pictures of the epoch are on disk."""
        if pictures:
            legend = self._plan.task.pictures_legend
            self.emit(ev.PicturesKept(t=time.time(), epoch=at.epoch, step=at.step, pictures=pictures, legend=legend))

    def example_skipped(self, split: ev.Split, bad: BadExample, skipped: int, limit: int) -> None:
        """An example is left out, the `skipped`-th of at most `limit`. Thread-safe."""
        self.emit(
            ev.ExampleSkipped(t=time.time(), split=split, where=bad.where, why=bad.why, skipped=skipped, limit=limit)
        )

    def checkpoint_saved(self, saved: SavedCheckpoint, at: Position, *, epoch: int, reason: str, best: bool) -> None:
        """A checkpoint is on disk, and the older ones that it replaces are removed."""
        self.times.skip()
        self.emit(
            ev.CheckpointSaved(
                t=time.time(),
                path=saved.path,
                step=at.step,
                epoch=epoch,
                bytes=saved.bytes,
                seconds=saved.seconds,
                reason=reason,
                best=best,
                sections_s=self.sections.totals(),
                sha256=saved.sha256,
            )
        )
        for path in saved.dropped:
            self.emit(ev.CheckpointDropped(t=time.time(), path=path))
        # A save may compile a program, and may be the last event of the run.
        if self.programs.compile_s > self._reported_compile_s:
            self._report_programs()

    def _enter_section(self, name: str) -> None:
        self.progress.enter_section(name)
        self.programs.entered(name)
        if self._blocks is not None:
            self._blocks.entered(name)

    def _of_host(self, values: Float32s) -> Float32s:
        """The columns of the cores of this host, of [steps, cores]."""
        host = self._strategy.host
        return values if host.num_hosts == 1 else np.ascontiguousarray(values[:, host.cores.start : host.cores.stop])

    def _declare_topology(self) -> None:
        host = self._strategy.host
        self.emit(
            ev.TopologyDeclared(
                t=time.time(),
                strategy=self._strategy.name,
                device=backend.kind(),
                device_reason=self._plan.machine.reason,
                device_warning=self._plan.machine.warning,
                chip=self._plan.machine.chip,
                num_cores=self._plan.config.num_cores,
                num_hosts=host.num_hosts,
                host_index=host.number,
                cores=[self._strategy.core_ids[core] for core in host.cores],
            )
        )
        if self._plan.machine.warning is not None:
            self.warn(self._plan.machine.warning)

    def _report_programs(self) -> None:
        self._reported_compile_s = self.programs.compile_s
        self.emit(self.programs.totals())

    def _report_memory(self) -> None:
        sampled, newest = self._memory.sample(), self._newest_memory
        if newest is None or (sampled.hbm, sampled.hbm_reason) != (newest.hbm, newest.hbm_reason):
            self._newest_memory = sampled
            self.emit(sampled)

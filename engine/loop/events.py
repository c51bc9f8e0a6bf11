"""What every loop tells in the same words, ours and Lightning's: facts of saves, requests, pace, meters and runtime.

Must not decide anything about training, nor read what a step left on the device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine.checkpoint.checkpoint_files import Saved
from engine.checkpoint.position import Position
from engine.errors import BadExample
from engine.loop.meters import Float32s
from engine.parallel.base import Strategy
from engine.process.requests import Progress
from engine.section_timer import SectionTimer
from engine.task import Plan
from engine.xla import backend
from engine.xla.memory import DeviceMemory
from engine.xla.metrics import WARM_UP_RUNS, ProgramCounters
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.requests import Request

_LEAST_S = 1e-6
"""Clocks of compiler and loop differ; time does not run backwards for it."""


class EventEmitter:
    """Puts facts in the journal, and keeps the clock between two reports."""

    def __init__(
        self,
        plan: Plan,
        cores: Strategy,
        reporter: Reporter,
        progress: Progress,
        warm_up_runs: Mapping[str, int] = WARM_UP_RUNS,
    ) -> None:
        self.sections = SectionTimer(self._enter_section)
        self.programs = ProgramCounters(self.sections, self.warn, warm_up_runs, leads=cores.own.start == 0)
        self.progress = progress
        self.served: set[str] = set()
        """Ids of the requests that were answered."""
        self._plan = plan
        self._cores = cores
        self._reporter = reporter
        self._memory = DeviceMemory(cores.core_ids, cores.device)
        self._hbm: ev.MemorySampled | None = None
        self._since = 0.0
        self._compiled_s = 0.0
        self._reported_compile_s = 0.0

    def kept(self, at: Position, pictures: list[ev.PictureKept]) -> None:
        """Pictures of the evaluation are on disk."""
        if pictures:
            legend = self._plan.task.pictures_legend
            event = ev.PicturesKept(t=time.time(), epoch=at.epoch, step=at.step, pictures=pictures, legend=legend)
            self._reporter.emit(event)

    def skipped(self, split: ev.Split, bad: BadExample, skipped: int, limit: int) -> None:
        """An example is left out. May be called from any thread."""
        self._reporter.emit(
            ev.ExampleSkipped(t=time.time(), split=split, where=bad.where, why=bad.why, skipped=skipped, limit=limit)
        )

    def saved(self, saved: Saved, at: Position, *, epoch: int, reason: str, best: bool) -> None:
        """A checkpoint is on disk, and those are gone that it takes the place of."""
        self._reporter.emit(
            ev.CheckpointSaved(
                t=time.time(),
                path=saved.path,
                step=at.step,
                epoch=epoch,
                bytes=saved.bytes,
                seconds=saved.seconds,
                reason=reason,
                best=best,
                sha256=saved.sha256,
            )
        )
        for path in saved.dropped:
            self._reporter.emit(ev.CheckpointDropped(t=time.time(), path=path))
        # A save that compiled something may be the last that is heard of the run.
        if self.programs.compile_s > self._reported_compile_s:
            self._report_programs()

    def applied(self, request: Request, at: Position, saved: Saved) -> None:
        """A request was served."""
        self.served.add(request.id)
        self._reporter.emit(
            ev.RequestApplied(
                t=time.time(),
                request=request.id,
                kind=request.kind,
                step=at.step,
                path=saved.path,
                bytes=saved.bytes,
                seconds=saved.seconds,
            )
        )

    def refused(self, request: Request, why: str) -> None:
        """A request cannot be served."""
        self.served.add(request.id)
        self._reporter.emit(ev.RequestRefused(t=time.time(), request=request.id, kind=request.kind, why=why))

    def warn(self, text: str) -> None:
        """Something the user should know."""
        self._reporter.emit(ev.WarningRaised(t=time.time(), text=text))

    def _enter_section(self, name: str) -> None:
        self.progress.enter_section(name)
        self.programs.entered(name)

    def _declare_topology(self) -> None:
        self._reporter.emit(
            ev.TopologyDeclared(
                t=time.time(),
                strategy=self._cores.name,
                device=backend.kind(),
                device_reason=self._plan.machine.reason,
                device_warning=self._plan.machine.warning,
                num_cores=self._plan.config.num_cores,
                num_hosts=1,
                host_index=0,
                cores=self._cores.core_ids,
            )
        )
        if self._plan.machine.warning is not None:
            self.warn(self._plan.machine.warning)

    def _restart_pace(self) -> None:
        self._since = time.perf_counter()
        self._compiled_s = self.programs.compile_s

    def _step_s(self, steps: int) -> float:
        """Mean wall time of a step since the last report. A compile is left out: it says nothing of the next step."""
        wall_s = time.perf_counter() - self._since
        compiled_s = self.programs.compile_s - self._compiled_s
        return max(wall_s - compiled_s, _LEAST_S) / steps

    def _report_steps(self, at: Position, losses: Float32s, step_s: float, *, lr: float, report_steps: int) -> None:
        """Tells of the steps up to `at`: their losses, [steps, cores], and their pace."""
        self._reporter.record_steps(at.step - len(losses) + 1, losses, losses.shape[1])
        self.progress.reported_step = at.step
        self._reporter.emit(
            ev.ProgressReported(
                t=time.time(),
                epoch=at.epoch,
                epoch_step=at.batch,
                step=at.step,
                step_s=step_s,
                examples_per_s=self._plan.config.global_batch / step_s,
                lr=lr,
                report_steps=report_steps,
            )
        )

    def _report_meters(self, at: Position, split: ev.Split, meters: dict[str, ev.MeterReading], reduced: str) -> None:
        event = ev.MetersReported(
            t=time.time(), epoch=at.epoch, step=at.step, split=split, meters=meters, reduced=reduced
        )
        self._reporter.emit(event)

    def _report_runtime(self) -> None:
        self.programs.warn_of_steps()
        self._report_programs()
        self._report_memory()

    def _report_programs(self) -> None:
        self._reported_compile_s = self.programs.compile_s
        self._reporter.emit(self.programs.totals())

    def _report_memory(self) -> None:
        """Tells the device's memory where it has changed."""
        sampled, known = self._memory.sample(), self._hbm
        if known is None or (sampled.hbm, sampled.hbm_reason) != (known.hbm, known.hbm_reason):
            self._hbm = sampled
            self._reporter.emit(sampled)

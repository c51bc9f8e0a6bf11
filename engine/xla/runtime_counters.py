"""Runs the traced programs, and records what the runtime compiled, executed and read around them; reads device memory.

The counters are those of the whole process, so work outside a sync is included. They are read at every change of
section; a counter costs 0.3 us, and the metrics behind them are read only when a counter has changed. Must not read a
tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from engine.xla import backend
from engine.xla.compile_ledger import (
    AT_SYNC,
    ENGINE_SECTIONS,
    NOT_STEPS,
    STEPS,
    CompileLedger,
    TraceActivity,
)
from tputui.observers.sinks import ResettableTotal, Sink, is_disabled
from tputui.observers.xla_observer import XlaObserver, follow_optimizers
from tputui.reporting.section_timer import SectionTimer
from tputui.telemetry.events import HbmReading, MemorySampled, StepPrograms, XlaMetricsRead

WARM_UP_RUNS = {"gradients": 2, "step": 2, "accumulate": 2, "evaluate": 2}
"""Runs in which a program may compile: the first step creates the optimizer's state, the second uses it."""

PARTS_OF_STEPS = frozenset({"gradients", "reset", "logged"})
"""Programs with which no step ends."""

CPU_REASON = "not available on CPU devices; see worker RSS"
SEVERAL_REASON = "not available to a process that drives several cores; the supervisor reads it from the TPU runtime"


class ProgramCounters:
    """Runs traced programs and counts compilations. Used by the loop's thread."""

    def __init__(
        self,
        sections: SectionTimer,
        warn: Callable[[str], None],
        warm_up: Mapping[str, int] = WARM_UP_RUNS,
        *,
        leads: bool = True,
        sink: Sink | None = None,
    ) -> None:
        """`warn` is called with sentences about recompiles and about steps that read the device; `warm_up` maps program
        names to their number of warm-up runs. If several processes run the same program, the one that `leads` warns for
        all. Events of diagnosis go to `sink`."""
        self._sections = sections
        self._warn = warn
        self._leads = leads
        self._ledger = CompileLedger(warm_up)
        self._compiles, self._compile_s = ResettableTotal(), ResettableTotal()
        self._cached, self._compiled, self._scalar_reads = ResettableTotal(), ResettableTotal(), ResettableTotal()
        self._others: dict[str, ResettableTotal] = {}
        """Values that are only reported, by name."""
        self._newest_compiled = 0
        self._ticks = backend.Ticks(0, 0, 0, 0)
        self._looked = time.monotonic()
        self._section = sections.current
        self._syncing = False
        self._runs_in_step = self._executes_in_step = self._reads_in_step = 0
        self._task_reads = self._reads_since_run = 0
        self._fallbacks: dict[str, int] = {}
        self._observer = _observer(sink) if sink is not None and not is_disabled() else None
        sections.compiled_s = self.seconds

    @property
    def compile_s(self) -> float:
        """Seconds inside the compiler so far."""
        return self._compile_s.value

    def seconds(self) -> float:
        """As `compile_s`, after reading the counter of compiled programs."""
        compiled = backend.compiled()
        if compiled != self._newest_compiled:
            self._newest_compiled = compiled
            self._take_compiles()
        self._looked = time.monotonic()
        return self._compile_s.value

    def entered(self, section: str) -> None:
        """Called when the loop enters a section."""
        if section in NOT_STEPS or self._section in NOT_STEPS:
            self._tick()
        self._section = section

    def run(self, name: str) -> None:
        """Runs the traced program `name`."""
        self.seconds()
        observer = self._observer
        place = None
        if observer is not None:
            warm_up = self._ledger.is_warming_up(name)
            place = observer.begin_program(name, warm_up=warm_up, ends_step=name not in PARTS_OF_STEPS)
        self._syncing = True
        try:
            backend.sync()
            self.seconds()
        finally:
            self._syncing = False
        if observer is not None:
            observer.end(place)
        self._tick()
        for text in self._ledger.ran(name, self._meanwhile()):
            self._warn(text)
        self._runs_in_step += self._section not in NOT_STEPS
        if name in STEPS:
            self._ledger.stepped(name, self._executes_in_step, self._runs_in_step, self._reads_in_step)
            self._runs_in_step = self._executes_in_step = self._reads_in_step = 0

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Includes the weights of an optimizer in the graphs that are compared after a recompile."""
        if self._observer is not None:
            self._observer.follow(optimizer)

    def close(self) -> None:
        """Emits the events of diagnosis that wait. Called by the loop's thread when training ends."""
        if self._observer is not None:
            self._observer.flush()

    def compiling_since(self) -> float | None:
        """Since when (monotonic) the loop has been inside the compiler; None if it is not. For any thread."""
        before, now = self._ticks, backend.ticks()
        return self._looked if now.missed - before.missed > max(0, now.compiled - before.compiled) else None

    def warn_of_steps(self) -> None:
        """Warns, once, if the steps execute too many programs or read single values."""
        observer = self._observer
        if observer is not None and observer.is_looking:
            # The warning has the lines once they are known.
            return
        counters, own = backend.counters(), backend.reads()
        waited_s = max(0.0, self._total("read_s", counters.read_s) - own.seconds)
        if (text := self._ledger.excess(counters.fallbacks, waited_s)) is not None and self._leads:
            found = observer.lines_found if observer is not None else ""
            self._warn(f"{text}; {found}" if found else text)

    def totals(self) -> XlaMetricsRead:
        """The event with the counters: totals since the start of the process, even if the runtime's own are reset."""
        self.seconds()
        counters = backend.counters()
        return XlaMetricsRead(
            t=time.time(),
            compiles=int(self._compiles.value),
            compile_s=self._compile_s.value,
            recompiles=self._ledger.recompiles,
            executes=int(self._total("executes", counters.executes)),
            execute_s=self._total("execute_s", counters.execute_s),
            transfers_to_device=int(self._total("to", counters.transfers_to_device)),
            transfers_from_device=int(self._total("from", counters.transfers_from_device)),
            bytes_to_device=int(self._total("bytes to", counters.bytes_to_device)),
            bytes_from_device=int(self._total("bytes from", counters.bytes_from_device)),
            fallbacks={name: int(self._total(f"aten::{name}", times)) for name, times in counters.fallbacks.items()},
            engine_reads=backend.reads().transfers,
            scalar_reads=self._task_reads,
            steps=StepPrograms(**self._ledger.steps._asdict()),
        )

    def _total(self, name: str, now: float) -> float:
        total = self._others.setdefault(name, ResettableTotal())
        total.read(now)
        return total.value

    def _take_compiles(self) -> None:
        """Records compilations since the last call, for the section in which they happened."""
        now = backend.compiles()
        programs, seconds = int(self._compiles.read(now.done)), self._compile_s.read(now.seconds)
        if not programs:
            return
        place = AT_SYNC if self._syncing else self._sections.current
        if place in ENGINE_SECTIONS and self._observer is not None:
            self._observer.discard_compiles()
        if (text := self._ledger.compiled(place, programs, seconds)) is not None:
            self._warn(text)

    def _tick(self) -> None:
        """Records executions and reads since the last call, for the section that ended."""
        self._ticks = now = backend.ticks()
        executes = int(self._cached.read(now.cached) + self._compiled.read(now.compiled))
        reads = int(self._scalar_reads.read(now.scalar_reads))
        if self._section not in NOT_STEPS:
            self._executes_in_step += executes
            self._reads_in_step += reads
        if self._section not in ENGINE_SECTIONS:
            self._task_reads += reads
            self._reads_since_run += reads

    def _meanwhile(self) -> TraceActivity:
        """Reads, and operations on the host CPU, since the last run."""
        reads, self._reads_since_run = self._reads_since_run, 0
        before, self._fallbacks = self._fallbacks, backend.fallbacks()
        return TraceActivity(reads, [name for name, times in self._fallbacks.items() if times > before.get(name, 0)])


def _observer(sink: Sink) -> XlaObserver:
    observer = XlaObserver(
        sink, reports_totals=False, own_reads=lambda: backend.reads().transfers, late_read_compiles=0
    )
    follow_optimizers(observer)
    return observer


class DeviceMemory:
    """Samples the memory of cores that share one device."""

    def __init__(self, core_ids: list[int], device: torch.device) -> None:
        self._core_ids = core_ids
        self._device = device

    def sample(self) -> MemorySampled:
        """The newest reading; returns at once."""
        if backend.kind() == "CPU":
            return _unavailable(CPU_REASON)
        if len(self._core_ids) > 1:
            return _unavailable(SEVERAL_REASON)
        try:
            info = backend.memory(self._device)
        except RuntimeError as error:
            return _unavailable(f"not available from the runtime: {error}")
        (core,) = self._core_ids
        reading = HbmReading(
            core=core,
            used_bytes=info["bytes_used"],
            limit_bytes=info["bytes_limit"],
            peak_bytes=info.get("peak_bytes_used", 0),
        )
        return MemorySampled(t=time.time(), hbm=[reading])


def _unavailable(reason: str) -> MemorySampled:
    return MemorySampled(t=time.time(), hbm=None, hbm_reason=reason)

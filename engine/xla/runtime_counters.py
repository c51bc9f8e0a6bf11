"""Runs the traced programs, and records what the runtime compiled, executed and read around them; reads device memory.

The counters are those of the whole process, so work outside a sync is included. They are read at every change of
section; a counter costs 0.3 us, and the metrics behind them are read only when a counter has changed. Must not read a
tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from msgspec.structs import replace

from engine.xla import backend
from engine.xla.compile_ledger import (
    AT_SYNC,
    ENGINE_SECTIONS,
    NOT_STEPS,
    STEPS,
    CompileLedger,
    TraceActivity,
)
from tputui.engine_api import (
    BEGUN,
    SCALAR_READS,
    MetricTotals,
    ResettableTotal,
    Sink,
    XlaObserver,
    XlaRuntime,
    follow_optimizers,
    is_observing_disabled,
)
from tputui.reporting import SectionTimer
from tputui.reporting import events as ev

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
        warm_up: Mapping[str, int] = {},
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
        self._runtime = runtime = XlaRuntime()
        self._metrics = MetricTotals(runtime)
        self._recorded_compiles, self._recorded_s = 0, 0.0
        """Compilations, and their seconds, that the ledger has."""
        self._cached, self._compiled, self._scalar_reads = ResettableTotal(), ResettableTotal(), ResettableTotal()
        self._newest_compiled = 0
        self._begun = self._done = 0
        """Graphs that were not in the compiler's cache, and compilations, when a section was entered last."""
        self._looked = time.monotonic()
        self._section = sections.current
        self._syncing = False
        self._runs_in_step = self._executes_in_step = self._reads_in_step = 0
        self._task_reads = self._reads_since_run = 0
        self._fallbacks: dict[str, int] = {}
        self._observer = _observer(sink) if sink is not None and not is_observing_disabled() else None
        sections.compiled_s = self.seconds

    @property
    def compile_s(self) -> float:
        """Seconds inside the compiler so far."""
        return self._metrics.compile_s

    def seconds(self) -> float:
        """As `compile_s`, after reading the counter of compiled programs."""
        compiled = self._runtime.compiled()
        if compiled != self._newest_compiled:
            self._newest_compiled = compiled
            self._take_compiles()
        self._looked = time.monotonic()
        return self._metrics.compile_s

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
        begun, done = self._runtime.count(BEGUN) - self._begun, self._runtime.compiled() - self._done
        return self._looked if begun > max(0, done) else None

    def warn_of_steps(self) -> None:
        """Warns, once, if the steps execute too many programs or read single values."""
        observer = self._observer
        if observer is not None and observer.is_looking:
            # The warning has the lines once they are known.
            return
        waited_s = max(0.0, self._metrics.total("read_s", self._runtime.read_s()) - backend.reads().seconds)
        fallbacks = [name.removeprefix("aten::") for name in self._runtime.fallbacks()]
        if (text := self._ledger.excess(fallbacks, waited_s)) is not None and self._leads:
            found = observer.lines_found if observer is not None else ""
            self._warn(f"{text}; {found}" if found else text)

    def totals(self) -> ev.XlaMetricsRead:
        """The event with the counters: totals since the start of the process, even if the runtime's own are reset."""
        self.seconds()
        read = self._metrics.read(self._ledger.recompiles, self._ledger.steps)
        return replace(read, engine_reads=backend.reads().transfers, scalar_reads=self._task_reads)

    def _take_compiles(self) -> None:
        """Records compilations since the last call, for the section in which they happened."""
        metrics = self._metrics
        metrics.read_compiles()
        programs, seconds = metrics.compiles - self._recorded_compiles, metrics.compile_s - self._recorded_s
        if not programs:
            return
        self._recorded_compiles, self._recorded_s = metrics.compiles, metrics.compile_s
        place = AT_SYNC if self._syncing else self._sections.current
        if place in ENGINE_SECTIONS and self._observer is not None:
            self._observer.discard_compiles()
        if (text := self._ledger.compiled(place, programs, seconds)) is not None:
            self._warn(text)

    def _tick(self) -> None:
        """Records executions and reads since the last call, for the section that ended."""
        runtime = self._runtime
        self._begun, self._done = runtime.count(BEGUN), runtime.compiled()
        executes = int(self._cached.read(runtime.count("CachedCompile")) + self._compiled.read(self._done))
        reads = int(self._scalar_reads.read(runtime.count(SCALAR_READS)))
        if self._section not in NOT_STEPS:
            self._executes_in_step += executes
            self._reads_in_step += reads
        if self._section not in ENGINE_SECTIONS:
            self._task_reads += reads
            self._reads_since_run += reads

    def _meanwhile(self) -> TraceActivity:
        """Reads, and operations on the host CPU, since the last run."""
        reads, self._reads_since_run = self._reads_since_run, 0
        before, self._fallbacks = self._fallbacks, self._runtime.fallbacks()
        new = [name for name, times in self._fallbacks.items() if times > before.get(name, 0)]
        return TraceActivity(reads, [name.removeprefix("aten::") for name in new])


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

    def sample(self) -> ev.MemorySampled:
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
        reading = ev.HbmReading(
            core=core,
            used_bytes=info["bytes_used"],
            limit_bytes=info["bytes_limit"],
            peak_bytes=info.get("peak_bytes_used", 0),
        )
        return ev.MemorySampled(t=time.time(), hbm=[reading])


def _unavailable(reason: str) -> ev.MemorySampled:
    return ev.MemorySampled(t=time.time(), hbm=None, hbm_reason=reason)

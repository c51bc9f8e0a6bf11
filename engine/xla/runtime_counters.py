"""Runs the traced programs, and records what the runtime compiled, executed and read around them; reads device memory.

The counters are those of the whole process, so work outside a sync is included. They are read at every change of
section; a counter costs 0.3 us, and the metrics behind them are read only when a counter has changed. Must not read a
tensor.

Counts recompiles, executions and reads of a run, and writes the warnings about them. Pure.

A program has warm-up runs, in which every shape should occur. Any later compilation is a recompile, wherever in the
process it happens: at the program's own sync, inside its trace (an operation without a lowering, `.item()`), or outside
any program. Warnings name what was observed, never a guessed cause.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import torch
from msgspec.structs import replace

from engine.xla import backend
from tputui.engine_api import (
    BEGUN,
    SCALAR_READS,
    WARM_UP_RUNS,
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

STEPS = ("step", "accumulate")
"""Programs that end a training step; every run has the first."""
AT_SYNC = "sync"
"""The place of a program's own graph; every other place is a section of the loop."""
ENGINE_SECTIONS = frozenset({"report", "save"})
"""Sections of the engine alone: reads there are not the task's."""
NOT_STEPS = ENGINE_SECTIONS | {"evaluate"}
"""Sections outside of training steps."""
FIRST_REPORTED = 3
"""Number of recompiles of a kind that are reported one by one; later only the 10th, the 100th, ..."""
EXCESS_STEPS = 5
"""Minimum number of steps before their executions and reads are judged."""
EXCESS = 0.5
"""Executions above the expected number, or scalar reads, per step that cause a warning."""
READS_HOW = ".item(), float(), if tensor"
NO_STEPS = ev.StepPrograms(steps=0, executes=0, expected_executes=0, scalar_reads=0)


class TraceActivity(NamedTuple):
    """Other work during the trace of a program."""

    scalar_reads: int = 0
    fallbacks: Collection[str] = ()
    """Operations that ran on the host CPU."""

    def __str__(self) -> str:
        reads = f"{self.scalar_reads} scalar read{'s' if self.scalar_reads != 1 else ''} ({READS_HOW})"
        seen = [f"{name} on the host CPU" for name in sorted(self.fallbacks)] + [reads] * (self.scalar_reads > 0)
        return f"; seen in that trace: {', '.join(seen)}" if seen else ""


class _Compiled:
    def __init__(self) -> None:
        self.times = 0
        self.seconds = 0.0


class CompileLedger:
    def __init__(self, warm_up: Mapping[str, int]) -> None:
        """`warm_up` maps programs to the number of runs in which they may compile, if that is not `WARM_UP_RUNS`."""
        self.recompiles = 0
        """Programs compiled after warm-up."""
        self.steps = NO_STEPS
        """The training steps after warm-up."""
        self._warm_up = warm_up
        self._runs: Counter[str] = Counter()
        self._fresh: dict[str, tuple[int, float]] = {}
        """By place: programs compiled since the last run, and their seconds."""
        self._kinds: dict[tuple[str, str], _Compiled] = {}
        self._judged = NO_STEPS
        self._warned = False

    def is_warm(self, name: str) -> bool:
        """Whether the newest run of a program was after its warm-up."""
        return self._runs[name] > self._warm_up_of(name)

    def is_warming_up(self, name: str) -> bool:
        """Whether the next run of a program belongs to its warm-up."""
        return self._runs[name] < self._warm_up_of(name)

    def compiled(self, place: str, programs: int, seconds: float) -> str | None:
        """Records programs compiled in a place. Returns a warning if it is due at once; compilations of a program are
        judged after its run."""
        if place not in ENGINE_SECTIONS:
            before, before_s = self._fresh.get(place, (0, 0.0))
            self._fresh[place] = before + programs, before_s + seconds
            return None
        if self.is_warming_up(STEPS[0]):
            return None
        return self._recompiled("", place, programs, seconds, f"{_programs(programs)} compiled in {place}", "")

    def ran(self, name: str, meanwhile: TraceActivity) -> list[str]:
        """Records a run of a program. Returns the warnings that are due."""
        self._runs[name] += 1
        fresh, self._fresh = self._fresh, {}
        if not self.is_warm(name):
            return []
        warnings = [self._belongs(name, place, *fresh[place], meanwhile) for place in fresh]
        return [text for text in warnings if text is not None]

    def stepped(self, name: str, executes: int, expected_executes: int, scalar_reads: int) -> None:
        """Records the counts of a training step that ended with a program; steps of its warm-up are ignored."""
        if self.is_warm(name):
            self.steps = self.steps.plus(
                ev.StepPrograms(
                    steps=1, executes=executes, expected_executes=expected_executes, scalar_reads=scalar_reads
                )
            )

    def excess(self, fallbacks: Collection[str], waited_s: float) -> str | None:
        """A warning, once, if the steps execute too many programs or read single values.

        `fallbacks` are the operations that ran on the host CPU, `waited_s` the seconds that the host has waited for the
        task's reads so far.
        """
        before, now = self._judged, self.steps
        num_steps = now.steps - before.steps
        if self._warned or num_steps < EXCESS_STEPS:
            return None
        self._judged = now
        executes = (now.executes - before.executes) / num_steps
        expected = (now.expected_executes - before.expected_executes) / num_steps
        reads = (now.scalar_reads - before.scalar_reads) / num_steps
        if executes - expected < EXCESS and reads < EXCESS:
            return None
        self._warned = True
        parts = []
        if executes - expected >= EXCESS:
            one_or_more = "1 is" if expected == 1 else f"{expected:g} are"
            parts.append(f"{executes:.1f} executions a step where {one_or_more} expected")
        if reads > 0:
            parts.append(f"{reads:.1f} scalar reads a step ({READS_HOW})")
        if fallbacks:
            parts.append(f"on the host CPU because they have no lowering: {', '.join(sorted(fallbacks))}")
        return "; ".join([*parts, f"the host has waited {_took(waited_s)} for reads so far"])

    def _warm_up_of(self, name: str) -> int:
        return self._warm_up.get(name, WARM_UP_RUNS)

    def _belongs(self, name: str, place: str, programs: int, seconds: float, meanwhile: TraceActivity) -> str | None:
        """Records a compilation in the newest run of a program."""
        run = f'program "{name}", run {self._runs[name]}'
        if place == AT_SYNC:
            why = "; its graph differs from every earlier one in a shape, a type, a constant or an operation"
            return self._recompiled(name, place, programs, seconds, f"{run}: compiled again at its sync", why)
        where = "inside its trace, before its sync" if place in ("trace", "evaluate") else f"before its trace ({place})"
        what = f"{run}: {_programs(programs)} compiled {where}"
        return self._recompiled(name, place, programs, seconds, what, str(meanwhile))

    def _recompiled(self, name: str, place: str, programs: int, seconds: float, what: str, more: str) -> str | None:
        """Counts a recompile, and returns a sentence if one is due."""
        self.recompiles += programs
        kind = self._kinds.setdefault((name, place), _Compiled())
        kind.times += 1
        kind.seconds += seconds
        text = f"{what} ({_took(seconds)}){more}"
        if kind.times < FIRST_REPORTED:
            return text
        if kind.times == FIRST_REPORTED:
            return f"{text}; later ones of this kind are reported at the 10th, the 100th and so on"
        if str(kind.times).strip("0") == "1":
            return f"{text}; {kind.times:,} times after warm-up, {_took(kind.seconds)} in all"
        return None


def _programs(count: int) -> str:
    return f"{count} program{'s' if count != 1 else ''}"


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


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

"""Counts recompiles, executions and reads of a run, and writes the warnings about them. Pure.

A program has warm-up runs, in which every shape should occur. Any later compilation is a recompile, wherever in the
process it happens: at the program's own sync, inside its trace (an operation without a lowering, `.item()`), or outside
any program. Warnings name what was observed, never a guessed cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from tputui.engine_api import WARM_UP_RUNS
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

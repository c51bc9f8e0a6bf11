"""Decides from counters when a window of hooks is worth its cost. Must not read a tensor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tputui.observers.totals import ResettableTotal
from tputui.observers.xla_runtime import XlaRuntime

CHECK_STEPS = 5
"""Minimum number of steps between two checks."""
EARLY_STEPS = 50
CHECK_INTERVAL_S = 1.0
"""Minimum time between two checks after the first `EARLY_STEPS` steps: a check takes up to 0.1 ms."""
READS_PER_STEP = 0.5
AGAIN_AFTER_S = 600.0
"""A kind of trouble opens at most one window in this time; a new kind opens one at once."""
RECOMPILES, READ_COMPILES, READS = "recompiles", "compiled reads", "reads"


class Reason(NamedTuple):
    """Why a window opens."""

    why: str
    """One sentence."""
    in_graph: bool
    """Whether graphs are compared in it, with the calls that their operations come from; else calls are timed. Not
    both, because comparing graphs waits for the device."""


EVERY_STEP = Reason("every step is observed", in_graph=False)
"""Why a window opens without trouble."""


class Trouble:
    """What the counters showed that has not been explained yet."""

    def __init__(
        self,
        runtime: XlaRuntime,
        own_reads: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`own_reads` is the number of transfers from the device by tputui itself."""
        self._runtime = runtime
        self._own_reads = own_reads
        self._clock = clock
        self._reads, self._own = ResettableTotal(runtime.reads()), ResettableTotal(own_reads())
        self._fallbacks: dict[str, ResettableTotal] = {}
        self._checked_step = 0
        self._checked = clock()
        self._opened: dict[str, float] = {}
        self._open: dict[str, str] = {}
        """What is to be explained: a sentence by kind."""
        self.fallbacks: dict[str, int] = {}
        """Operations on the host between the two newest checks, with their counts."""
        self.steps = 1
        """Steps between these checks."""
        self.seconds = 0.0
        """Time between them."""
        self.reads = 0
        """Transfers from the device between them."""

    def compiled(self, kind: str, why: str) -> None:
        """A compilation after warm-up needs an explanation."""
        self._add(kind, why)

    def check(self, step: int) -> bool:
        """Reads the counters and returns True, if it is time to; `step` is the number of steps so far."""
        now, steps = self._clock(), step - self._checked_step
        if steps < CHECK_STEPS or (step > EARLY_STEPS and now - self._checked < CHECK_INTERVAL_S):
            return False
        self.steps, self.seconds = steps, now - self._checked
        self._checked_step, self._checked = step, now
        self.fallbacks = self._new_fallbacks()
        self.reads = reads = int(self._reads.read(self._runtime.reads()) - self._own.read(self._own_reads()))
        for name, count in self.fallbacks.items():
            self._add(name, f"{name} ran on the host CPU {count / steps:.1f} times a step")
        if reads / steps > READS_PER_STEP:
            self._add(READS, f"{reads / steps:.1f} transfers from the device a step")
        return True

    def take(self) -> Reason | None:
        """Why a window should open now; None if nothing is to be explained."""
        in_graph = {kind: why for kind, why in self._open.items() if kind == RECOMPILES}
        chosen = in_graph or self._open
        if not chosen:
            return None
        self._opened.update(dict.fromkeys(chosen, self._clock()))
        self._open = {kind: why for kind, why in self._open.items() if kind not in chosen}
        return Reason("; ".join(chosen.values()), bool(in_graph))

    def settle(self, reason: Reason, operators: Iterable[str]) -> None:
        """A window ended, in which these operations ran on the host: what it showed opens no other window soon."""
        if reason.in_graph:
            return
        now = self._clock()
        for kind in (READS, READ_COMPILES, *operators):
            self._opened[kind] = now
            self._open.pop(kind, None)
        self._reads.read(self._runtime.reads())
        self._own.read(self._own_reads())
        self._new_fallbacks()

    def _add(self, kind: str, why: str) -> None:
        opened = self._opened.get(kind)
        if opened is None or self._clock() - opened >= AGAIN_AFTER_S:
            self._open.setdefault(kind, why)

    def _new_fallbacks(self) -> dict[str, int]:
        added = {
            name: int(self._fallbacks.setdefault(name, ResettableTotal()).read(count))
            for name, count in self._runtime.fallbacks().items()
        }
        return {name: count for name, count in added.items() if count > 0}

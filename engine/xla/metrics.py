"""What compiling and executing cost: every program is run through here, timed, and recompiles are told.

A program is new when it is first traced; after its warm-up runs every shape should have been seen, and whatever is
compiled then is a recompile. Must not read a tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from engine.sections import Sections
from engine.xla import backend
from tputui.telemetry.events import XlaMetricsRead

WARM_UP_RUNS = {"gradients": 2, "step": 2, "accumulate": 2, "evaluate": 2}
"""Runs in which a program may be compiled: the first step makes the optimizer's state, the second uses it."""


class _Entry(NamedTuple):
    begun: int
    done: int
    since: float


class Programs:
    """Runs what was traced, and keeps the books on the compiler. Used by the loop's thread."""

    def __init__(
        self, sections: Sections, warn: Callable[[str], None], warm_up: Mapping[str, int] = WARM_UP_RUNS
    ) -> None:
        """`warn` is told of every recompile, in one sentence; `warm_up` names the programs, with their first runs."""
        self._sections = sections
        self._warn = warn
        self._warm_up = warm_up
        self._runs = dict.fromkeys(warm_up, 0)
        self._recompiles = 0
        self.compile_s = 0.0
        """Time spent inside the compiler so far."""
        self._entry: _Entry | None = None

    def run(self, name: str) -> None:
        """Runs the traced program `name`; time inside the compiler is charged to `compile`, the rest to the current
        section."""
        before = backend.compiles()
        self._entry = _Entry(before.begun, before.done, time.monotonic())
        try:
            backend.sync()
        finally:
            self._entry = None
        after = backend.compiles()
        self._runs[name] += 1
        if after.done > before.done:
            seconds = after.seconds - before.seconds
            self.compile_s += seconds
            self._sections.recharge("compile", seconds)
            self._note_recompiles(name, after.done - before.done, seconds)

    def compiling_since(self) -> float | None:
        """Since when (monotonic) the loop has been inside the compiler; None where it is not. For any thread."""
        entry = self._entry
        if entry is None:
            return None
        now = backend.compiles()
        return entry.since if now.begun > entry.begun and now.done == entry.done else None

    def totals(self) -> XlaMetricsRead:
        """The counters as a fact."""
        return XlaMetricsRead(t=time.time(), recompiles=self._recompiles, **backend.counters()._asdict())

    def _note_recompiles(self, name: str, count: int, seconds: float) -> None:
        if self._runs[name] > self._warm_up[name]:
            self._recompiles += count
            self._warn(
                f'the program "{name}" was compiled again at its run {self._runs[name]} ({seconds:.1f} s): '
                "a shape, a type or a number in it has changed"
            )

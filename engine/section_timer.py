"""Where the wall time of an epoch goes: sections that do not overlap and add up. Pure but for the clock handed in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMES = ("data", "trace", "compile", "execute", "report", "evaluate", "save", "other")
"""Sections of an epoch."""
TRACE_PARTS = ("forward", "loss", "backward", "optimizer", "compile", "other")
"""Parts of `trace`; `compile` takes what is compiled inside the others, and is no part of `trace` itself."""


class SectionTimer:
    """Charges every moment since `restart` to exactly one section, the innermost one entered. For one thread.

    Time inside the compiler is charged to `compile`, whichever section it was spent in.
    """

    def __init__(
        self,
        entered: Callable[[str], None] = lambda name: None,
        clock: Callable[[], float] = time.perf_counter,
        names: tuple[str, ...] = NAMES,
    ) -> None:
        """`entered` is told the name of every section as it becomes the current one. `other` and `compile` are among
        the names."""
        self.compiled_s: Callable[[], float] = lambda: 0.0
        """Seconds spent inside the compiler so far; set by the owner of the compiler's counters."""
        self.current = "other"
        """The innermost section entered."""
        self._entered = entered
        self._clock = clock
        self._names = names
        self._spent = dict.fromkeys(names, 0.0)
        self._since = clock()
        self._compiled_s = 0.0

    def restart(self) -> None:
        """Begins a new epoch."""
        self._spent = dict.fromkeys(self._names, 0.0)
        self._since = self._clock()
        self._compiled_s = self.compiled_s()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Charges the block to `name`; what is entered inside is charged to itself alone."""
        outer = self.current
        self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def totals(self) -> dict[str, float]:
        """Seconds by section since `restart`, up to now."""
        self._switch(self.current)
        return dict(self._spent)

    def _switch(self, name: str) -> None:
        now, compiled_s = self._clock(), self.compiled_s()
        # Another thread may compile for longer than this one was in the section.
        compiling_s = min(compiled_s - self._compiled_s, now - self._since)
        self._spent[self.current] += now - self._since - compiling_s
        self._spent["compile"] += compiling_s
        self._since, self._compiled_s = now, compiled_s
        if name != self.current:
            self.current = name
            self._entered(name)

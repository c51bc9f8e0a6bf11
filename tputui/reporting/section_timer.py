"""`SectionTimer`: splits the wall time of an epoch into sections that do not overlap and add up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMES = ("data", "trace", "compile", "execute", "wait", "report", "evaluate", "save", "other")
"""Sections of an epoch. `execute` hands programs to the device, `wait` waits for their results before a report."""
TRACE_PARTS = ("forward", "loss", "backward", "optimizer", "compile", "other")
"""Parts of the section `trace`. Compiling inside them is charged to `compile`, which is not a part of `trace`."""
SECTIONS_MAX = 64
"""Most sections; the time of later ones is charged to `other`."""


class SectionTimer:
    """Charges all time since `restart` to exactly one section, the innermost one that was entered.

    Time inside the compiler is charged to `compile`, whatever section it was spent in. Not thread-safe.
    """

    def __init__(
        self,
        entered: Callable[[str], None] = lambda name: None,
        clock: Callable[[], float] = time.perf_counter,
        names: tuple[str, ...] = NAMES,
        charged: Callable[[str, float], None] = lambda name, seconds: None,
    ) -> None:
        """`entered` is called with the name of each section that becomes the current one, `charged` with the seconds
        that are charged to a section. `names` are the sections that are known before they are entered."""
        self.compiled_s: Callable[[], float] = lambda: 0.0
        """Returns the seconds spent inside the compiler so far; set by the owner of the compiler's counters."""
        self.current = "other"
        """The innermost section entered."""
        self._entered = entered
        self._charged = charged
        self._clock = clock
        self._names = names
        self._spent = dict.fromkeys(names, 0.0)
        self._since = clock()
        self._compiled_s = 0.0

    def restart(self) -> None:
        """Sets all sections to 0."""
        self._spent = dict.fromkeys(self._names, 0.0)
        self._since = self._clock()
        self._compiled_s = self.compiled_s()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Charges the block to `name`, except for sections entered inside it."""
        outer = self.enter(name)
        try:
            yield
        finally:
            self.enter(outer)

    def enter(self, name: str) -> str:
        """Charges the time from now on to `name`; returns the section before."""
        now, compiled_s, before = self._clock(), self.compiled_s(), self.current
        # Another thread may compile for longer than this one was in the section.
        compiling_s = min(compiled_s - self._compiled_s, now - self._since)
        self._charge(before, now - self._since - compiling_s)
        if compiling_s:
            self._charge("compile", compiling_s)
        self._since, self._compiled_s = now, compiled_s
        if name != before:
            self.current = name
            self._entered(name)
        return before

    def charge(self, name: str, seconds: float) -> None:
        """Charges a part of the time since the last entry to another section than the current one."""
        seconds = min(seconds, self._clock() - self._since)
        self._since += seconds
        self._charge(name, seconds)

    def totals(self) -> dict[str, float]:
        """Seconds by section since `restart`."""
        self.enter(self.current)
        return dict(self._spent)

    def _charge(self, name: str, seconds: float) -> None:
        self._charged(name, seconds)
        if name not in self._spent and len(self._spent) >= SECTIONS_MAX:
            name = "other"
        self._spent[name] = self._spent.get(name, 0.0) + seconds

"""Where the wall time of an epoch goes: sections that do not overlap and add up. Pure but for the clock handed in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMES = ("data", "trace", "compile", "execute", "report", "evaluate", "save", "other")
"""Sections of an epoch."""
TRACE_PARTS = ("forward", "loss", "backward", "optimizer", "other")
"""Parts of `trace`."""


class Sections:
    """Charges every moment since `restart` to exactly one section, the innermost one entered. For one thread."""

    def __init__(
        self,
        entered: Callable[[str], None] = lambda name: None,
        clock: Callable[[], float] = time.perf_counter,
        names: tuple[str, ...] = NAMES,
    ) -> None:
        """`entered` is told the name of every section as it becomes the current one. `other` is one of the names."""
        self._entered = entered
        self._clock = clock
        self._names = names
        self._spent = dict.fromkeys(names, 0.0)
        self._current = "other"
        self._since = clock()

    def restart(self) -> None:
        """Begins a new epoch."""
        self._spent = dict.fromkeys(self._names, 0.0)
        self._since = self._clock()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Charges the block to `name`; what is entered inside is charged to itself alone."""
        outer = self._current
        self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def recharge(self, name: str, seconds: float) -> None:
        """Moves seconds that were spent in the current section to another: compiling hides inside other work."""
        self._spent[self._current] -= seconds
        self._spent[name] += seconds

    def totals(self) -> dict[str, float]:
        """Seconds by section since `restart`, up to now."""
        self._switch(self._current)
        return dict(self._spent)

    def _switch(self, name: str) -> None:
        now = self._clock()
        self._spent[self._current] += now - self._since
        self._since = now
        if name != self._current:
            self._current = name
            self._entered(name)

"""The calls of torch that run at the same time in the windows of several threads, which share all counters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable


class Calls:
    """Finds out which call made a counter rise.

    A read of a value and an operation on the host wait for the device, so of several calls that run when the counter
    rises, the last one to end is the cause.
    """

    def __init__(self) -> None:
        self.num_threads = 1
        """Threads that train."""
        self.num_hooked = 0
        """Threads whose calls are observed."""
        self._lock = threading.RLock()
        self._running: dict[Hashable, Counter[str]] = {}
        """The calls that run, each with what was not claimed at its start."""
        self._claimed: Counter[str] = Counter()

    @property
    def are_shared(self) -> bool:
        """Whether several threads train."""
        return self.num_threads > 1

    def begin(self, caller: Hashable, counters: Counter[str]) -> None:
        """A call begins."""
        with self._lock:
            self._running[caller] = counters - self._claimed

    def drop(self, caller: Hashable) -> None:
        """A call raised an exception."""
        with self._lock:
            self._running.pop(caller, None)

    def end(self, caller: Hashable, counters: Counter[str], sure: str) -> Counter[str]:
        """A call ended; returns by how much it made each counter rise. `sure`: a counter that it certainly makes rise
        by one, if it rose; others are only claimed while all threads are observed."""
        with self._lock:
            now = counters - self._claimed
            before = self._running.pop(caller, now)
            others = list(self._running.values())
            claimed = now - before
            for name in list(claimed):
                if name == sure:
                    claimed[name] = 1
                elif self.num_hooked < self.num_threads or any(other[name] < now[name] for other in others):
                    del claimed[name]
            for name, count in claimed.items():
                self._claimed[name] += count
                for other in others:
                    # Of what rose before the other call began, it knows that it was not claimed.
                    other[name] -= max(0, min(count, other[name] - before[name]))
            return claimed

"""Totals of counters that any code in the process may reset."""

from __future__ import annotations


class ResettableTotal:
    """A running total of a counter that any code may reset: a decrease is a reset, not a negative count."""

    def __init__(self, newest: float = 0.0) -> None:
        """`newest` is the value of the counter from which the total counts."""
        self.value = 0.0
        self._newest = newest

    def read(self, now: float) -> float:
        """Takes the current value of the counter; returns the increase since the last call."""
        added = now - self._newest if now >= self._newest else now
        self._newest = now
        self.value += added
        return added

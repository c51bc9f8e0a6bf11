"""Counts the steps of one thread, and measures their time."""

from __future__ import annotations

import threading
import time

_MIN_S = 1e-6


class Pace:
    """Counters of one thread, and its step times without those of other phases."""

    def __init__(self) -> None:
        self.step = 0
        """Newest step."""
        self.num_steps = 0
        self.num_examples = 0
        self.stepped_at = self._reported_at = time.perf_counter()
        self._lock = threading.Lock()
        self._paused_s = 0.0
        """Time since the last report that is not part of a step."""
        self._steps_before = self._examples_before = 0

    def begin(self) -> None:
        """Begins to measure anew: the time since the last step is not part of the next one."""
        self.pause(time.perf_counter() - self.stepped_at)

    def begin_first(self) -> None:
        """Begins to measure after the first step, which contains one-time work."""
        with self._lock:
            self._reported_at, self._paused_s = self.stepped_at, 0.0
            self._steps_before, self._examples_before = self.num_steps, self.num_examples

    def pause(self, seconds: float) -> None:
        """Leaves out time that ends now."""
        with self._lock:
            self._paused_s += seconds
            self.stepped_at = time.perf_counter()

    def since_last(self) -> tuple[int, float, float] | None:
        """Steps since the last call, and seconds and examples per step; None without a step."""
        with self._lock:
            steps, examples, at = self.num_steps, self.num_examples, self.stepped_at
            num_steps = steps - self._steps_before
            if num_steps <= 0:
                return None
            spent_s = max(at - self._reported_at - self._paused_s, _MIN_S)
            found = num_steps, spent_s / num_steps, (examples - self._examples_before) / num_steps
            self._reported_at, self._paused_s = at, 0.0
            self._steps_before, self._examples_before = steps, examples
            return found

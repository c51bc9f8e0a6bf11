"""Counts the steps of one thread, and measures their time."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

_MIN_S = 1e-6


class MeanPace(NamedTuple):
    """Means over some steps."""

    num_steps: int
    step_s: float
    """Seconds per step."""
    examples: float
    """Examples per step."""
    data_s: float | None
    """Seconds per step that were spent waiting for batches; None if that is not measured."""


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
        self._data_s: float | None = None
        """Time of waiting for batches that is in no report yet; None if that was never measured."""

    def begin(self) -> None:
        """Begins to measure anew: the time since the last step is not part of the next one."""
        self.pause(time.perf_counter() - self.stepped_at)

    def begin_first(self) -> None:
        """Begins to measure after the first step, which contains one-time work."""
        with self._lock:
            self._reported_at, self._paused_s = self.stepped_at, 0.0
            self._data_s = None if self._data_s is None else 0.0
            self._steps_before, self._examples_before = self.num_steps, self.num_examples

    def pause(self, seconds: float) -> None:
        """Leaves out time that ends now."""
        with self._lock:
            self._paused_s += seconds
            self.stepped_at = time.perf_counter()

    def wait_for_data(self, seconds: float) -> None:
        """Adds time in which the thread waited for a batch."""
        with self._lock:
            self._data_s = (self._data_s or 0.0) + seconds

    def since_last(self) -> MeanPace | None:
        """The pace since the last call; None without a step."""
        with self._lock:
            steps, examples, at = self.num_steps, self.num_examples, self.stepped_at
            num_steps = steps - self._steps_before
            if num_steps <= 0:
                return None
            spent_s = max(at - self._reported_at - self._paused_s, _MIN_S)
            data_s = None
            if self._data_s is not None:
                # The rest is of the next step, which has not ended.
                waited_s = min(self._data_s, spent_s)
                self._data_s -= waited_s
                data_s = waited_s / num_steps
            found = MeanPace(num_steps, spent_s / num_steps, (examples - self._examples_before) / num_steps, data_s)
            self._reported_at, self._paused_s = at, 0.0
            self._steps_before, self._examples_before = steps, examples
            return found

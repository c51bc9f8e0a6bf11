"""`StageTimes`: where the threads of the loader spend their time: read, decode, collate, copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ, DECODE, COLLATE, COPY = "read", "decode", "collate", "copy"
"""Stages of our own datasets. A dataset of yours may use others, such as `augment`, in `with stage(NAME):`."""


class _Thread(threading.local):
    """What one thread measures."""

    def __init__(self) -> None:
        self.times: StageTimes | None = None
        self.nested_s = 0.0
        """Seconds of the stages inside the current one."""


_thread = _Thread()


class StageTimes:
    """Seconds by stage since the start of training, summed over threads. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.batches = 0
        self.waited_s = 0.0
        """Seconds that the training loop waited for batches; added by its thread alone."""
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def totals(self) -> dict[str, float]:
        """Seconds by stage."""
        with self._lock:
            return dict(self._seconds)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Charges the block to a stage, except for the blocks of `stage` in it."""
        outer, _thread.times = _thread.times, self
        try:
            with stage(name):
                yield
        finally:
            _thread.times = outer

    def _add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Charges the block to a stage of the loader that runs in this thread, if one does."""
    times = _thread.times
    if times is None:
        yield
        return
    outer_s, _thread.nested_s = _thread.nested_s, 0.0
    began = times.clock()
    try:
        yield
    finally:
        seconds = times.clock() - began
        times._add(name, max(0.0, seconds - _thread.nested_s))
        _thread.nested_s = outer_s + seconds

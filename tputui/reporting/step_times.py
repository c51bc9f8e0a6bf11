"""Wall times of steps one by one, and of Python's garbage collections: what a rhythm of slow steps is found in.

They cost a step nothing: its end is known already. A collection calls a function twice.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import os
import weakref
from operator import sub
from time import perf_counter
from typing import Any

from tputui.telemetry import float_blocks

TIMES_MAX = 1024
"""Steps of a report up to which they are timed: faster ones are too many to be written one by one."""


class StepTimes:
    """The wall times of the steps since the last report. Not thread-safe."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ended_at = math.nan
        """End of the newest step (`time.perf_counter`); NaN if what followed is not part of the next one."""
        self._before = math.nan
        """The same of the step before it."""

    def ended(self, at: float, num_steps: int = 1) -> None:
        """A step ended. Of several that end at once no time is known."""
        self._before, self._ended_at = self._ended_at, at
        if len(self._times) <= TIMES_MAX:
            self._times += [at - self._before] if num_steps == 1 else [math.nan] * min(num_steps, TIMES_MAX)

    def extend(self, ends: list[float]) -> None:
        """Steps ended, in order."""
        if ends:
            before = [self._ended_at, *ends]
            if len(self._times) <= TIMES_MAX:
                self._times += map(sub, ends, before)
            self._before, self._ended_at = before[-2:]

    def date(self, ended_at: float) -> None:
        """Corrects the end of the newest step."""
        if self._times:
            self._times[-1], self._ended_at = ended_at - self._before, ended_at

    def skip(self) -> None:
        """The time since the newest step is not part of the next one, whose time is therefore not known."""
        self._ended_at = math.nan

    def take(self, num_steps: int) -> tuple[int, str]:
        """The number of steps since the last call and the block of their times; none unless these are `num_steps`."""
        times, self._times = self._times, []
        if len(times) != num_steps or num_steps > TIMES_MAX or all(map(math.isnan, times)):
            return 0, ""
        return num_steps, float_blocks.pack(float_blocks.little_endian_bytes(float_blocks.float32(times)))


class Collections:
    """Counts and times the garbage collections of this process. They stop the thread that trains whichever thread
    causes them, and none runs inside another, so that no lock is needed."""

    def __init__(self) -> None:
        self._counts, self._seconds = [0, 0, 0], [0.0, 0.0, 0.0]
        self._taken: tuple[list[int], list[float]] = ([0, 0, 0], [0.0, 0.0, 0.0])
        self._began = math.nan

    def start(self) -> None:
        _stop_in_forked()
        _started.add(self)
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        _started.discard(self)
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._note)

    def take(self) -> tuple[list[int], list[float]]:
        """Collections since the last call and the seconds in them, by generation."""
        counts, seconds = self._counts.copy(), self._seconds.copy()
        before, self._taken = self._taken, (counts, seconds)
        return (
            [now - then for now, then in zip(counts, before[0], strict=True)],
            [now - then for now, then in zip(seconds, before[1], strict=True)],
        )

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began == self._began and (generation := info.get("generation", 3)) < 3:
            self._counts[generation] += 1
            self._seconds[generation] += perf_counter() - self._began


_started: weakref.WeakSet[Collections] = weakref.WeakSet()


@functools.cache
def _stop_in_forked() -> None:
    """Makes forked processes stop counting, once for all."""

    def stop() -> None:
        for collections in [*_started]:
            collections.stop()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=stop)

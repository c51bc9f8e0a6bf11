"""Per-core values of steps on their way into a journal.

`StepLog` is what a loop calls once a step with values that are on the host already; `RawSteps` carries a buffer of
them to the reporter's thread, which packs it. Must not touch files.
"""

from __future__ import annotations

import contextlib
import math
import struct
import threading
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

from tputui.telemetry import float_blocks
from tputui.telemetry.events import StepsRecorded

FLOAT_BYTES = 4
_FLOAT32_MAX = (2 - 2**-23) * 2.0**127
BUFFER_BYTES = 1 << 16
"""Presized buffer of a `StepLog`; it holds at least one step however wide."""
INTERVAL_S = 0.5
"""A buffer is handed over when it is full or this old; a fact must be on screen within 1.5 s."""


class RawSteps:
    """Values of consecutive steps, [steps][cores] float32, not packed yet."""

    __slots__ = ("cores", "first", "metric", "raw", "recycle", "t")

    def __init__(
        self,
        t: float,
        first: int,
        cores: int,
        metric: str,
        raw: bytes | memoryview,
        recycle: Callable[[], None] | None = None,
    ) -> None:
        self.t = t
        self.first = first
        self.cores = cores
        self.metric = metric
        self.raw = raw
        self.recycle = recycle
        """Gives the memory of `raw` back to its owner, once it was packed or dropped."""

    @property
    def num_steps(self) -> int:
        """Rows."""
        return len(self.raw) // FLOAT_BYTES // self.cores

    def release(self) -> None:
        """Says that `raw` is not needed any more."""
        if self.recycle:
            self.recycle()

    def to_event(self) -> StepsRecorded:
        """Packs and summarises, and releases the memory; done off the training thread."""
        values = struct.unpack(f"<{len(self.raw) // FLOAT_BYTES}f", self.raw)
        mean, least, greatest, bad = float_blocks.summarise(values)
        event = StepsRecorded(
            t=self.t,
            first=self.first,
            n=self.num_steps,
            cores=self.cores,
            mean=mean,
            min=least,
            max=greatest,
            bad=bad,
            metric=self.metric,
            block=float_blocks.pack(self.raw),
        )
        self.release()
        return event


class StepLog:
    """Per-core values that are on the host already, gathered to one record a report.

    For loops of any framework: a call costs a copy into a presized buffer. One thread calls `log`; the reporter's
    calls `flush_if_due`, so that the last steps before a pause do not wait for the next one.
    """

    def __init__(
        self, put: Callable[[RawSteps], None], clock: Callable[[], float], cores: int, metric: str = "loss"
    ) -> None:
        self._put = put
        self._clock = clock
        self._cores = cores
        self._metric = metric
        self._row_bytes = cores * FLOAT_BYTES
        self._pack_into = struct.Struct(f"<{cores}f").pack_into
        self._size = max(1, BUFFER_BYTES // self._row_bytes) * self._row_bytes
        self._buffer = memoryview(bytearray(self._size))
        self._spare: deque[memoryview] = deque()
        self._lock = threading.Lock()
        self._used = 0
        self._first = 0
        self._next = 0
        self._flushed_at = clock()

    def log(self, step: int, values: Any) -> None:
        """Records the values of one step, one a core: a list or tuple of floats, or float32 memory such as a numpy
        array's. Never raises: what is no number is recorded as NaN."""
        with self._lock:
            if step != self._next and self._used:
                self._flush()
            used = self._used
            if not used:
                self._first = step
            try:
                if type(values) is list or type(values) is tuple:
                    self._pack_into(self._buffer, used, *values)
                else:
                    self._buffer[used : used + self._row_bytes] = memoryview(values).cast("B")
            except (TypeError, ValueError, OverflowError, struct.error):
                self._pack_into(self._buffer, used, *_as_row(values, self._cores))
            self._next = step + 1
            self._used = used = used + self._row_bytes
            if used == self._size or self._clock() - self._flushed_at >= INTERVAL_S:
                self._flush()

    def flush(self) -> None:
        """Hands over what was gathered."""
        with self._lock:
            self._flush()

    def flush_if_due(self) -> None:
        """Hands over what has waited its time."""
        if self._used and self._clock() - self._flushed_at >= INTERVAL_S:
            self.flush()

    def _flush(self) -> None:
        now = self._flushed_at = self._clock()
        if not self._used:
            return
        full, spare = self._buffer, self._spare
        self._put(RawSteps(now, self._first, self._cores, self._metric, full[: self._used], lambda: spare.append(full)))
        # Fresh memory costs more in page faults than the copy itself, so buffers go round.
        self._buffer = spare.popleft() if spare else memoryview(bytearray(self._size))
        self._used = 0


def float32_bytes(values: Any) -> bytes:
    """A copy of float32 memory, or of memory of another number type converted to it.

    Raises `TypeError` where `values` lends no C-contiguous memory of numbers.
    """
    view = memoryview(values)
    if view.format in {"f", "<f", "B"}:
        return bytes(view.cast("B"))
    numbers = view.cast("B").cast(view.format)  # type: ignore[call-overload]  # the format is the memory's own
    return array("f", numbers).tobytes()


def _as_row(values: Any, cores: int) -> list[float]:
    """Takes what has another number type; what is no number at all is NaN, what float32 cannot hold is infinite."""
    row = [math.nan] * cores
    with contextlib.suppress(TypeError):
        for place, value in zip(range(cores), values, strict=False):
            with contextlib.suppress(TypeError, ValueError):
                row[place] = _as_float32(float(value))
    return row


def _as_float32(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) > _FLOAT32_MAX else value

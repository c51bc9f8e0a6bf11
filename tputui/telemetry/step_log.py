"""Buffers the per-core values of steps before they are written to a journal.

A training loop calls `StepLog.log` once per step with values that are already on the host. `RawSteps` passes a buffer
of them to the reporter's thread, which encodes it. Must not access files.
"""

from __future__ import annotations

import contextlib
import math
import struct
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tputui.telemetry import float_blocks
from tputui.telemetry.events import StepsRecorded

FLOAT_BYTES = 4
BUFFER_BYTES = 1 << 16
"""Size of the buffer of a `StepLog`; it always holds at least one step."""
INTERVAL_S = 0.5
"""A buffer is passed on when it is full, or by the reporter's thread when it is this old; values must be on screen
within 1.5 s."""


class RawSteps:
    """Values of consecutive steps, [steps][cores] float32, not encoded yet."""

    __slots__ = ("cores", "exact", "first", "metric", "raw", "recycle", "t")

    def __init__(
        self,
        t: float,
        first: int,
        cores: int,
        metric: str,
        raw: bytes | memoryview,
        recycle: Callable[[], None] | None = None,
        exact: Sequence[float] | None = None,
    ) -> None:
        self.t = t
        self.first = first
        self.cores = cores
        self.metric = metric
        self.raw = raw
        self.recycle = recycle
        """Returns the memory of `raw` to its owner after it was encoded or dropped."""
        self.exact = exact
        """The values, if one is finite and beyond float32."""

    @property
    def num_steps(self) -> int:
        return len(self.raw) // FLOAT_BYTES // self.cores

    def release(self) -> None:
        """Releases `raw` for reuse."""
        if self.recycle:
            self.recycle()

    def to_event(self) -> StepsRecorded:
        """Encodes and summarises the values, and releases the memory. Not called on the training thread."""
        values = self.exact or struct.unpack(f"<{len(self.raw) // FLOAT_BYTES}f", self.raw)
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
    """Gathers per-core values that are already on the host into one event per report.

    For loops of any framework: a call only copies into a preallocated buffer. One thread calls `log`; the reporter's
    thread calls `flush_if_due`, so that `log` needs no clock and the last steps before a pause are written, too.
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
        """Records the values of one step: [cores], a list or tuple of floats, or float32 memory such as that of a numpy
        array. Never raises: values that are not numbers are recorded as NaN."""
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
                row = _as_row(values, self._cores)
                if any(map(float_blocks.is_beyond_float32, row)):
                    self._put_exact(step, row)
                    return
                self._pack_into(self._buffer, used, *row)
            self._next = step + 1
            self._used = used = used + self._row_bytes
            if used == self._size:
                self._flush()

    def flush(self) -> None:
        """Passes the gathered values on."""
        with self._lock:
            self._flush()

    def flush_if_due(self) -> None:
        """Passes the gathered values on if they have waited long enough."""
        if self._used and self._clock() - self._flushed_at >= INTERVAL_S:
            self.flush()

    def _put_exact(self, step: int, row: list[float]) -> None:
        """Passes on a step with a value beyond float32, which stays exact in an event of its own."""
        self._flush()
        raw = float_blocks.little_endian_bytes(float_blocks.float32(row))
        self._put(RawSteps(self._clock(), step, self._cores, self._metric, raw, exact=row))
        self._next = step + 1

    def _flush(self) -> None:
        now = self._flushed_at = self._clock()
        if not self._used:
            return
        full, spare = self._buffer, self._spare
        self._put(RawSteps(now, self._first, self._cores, self._metric, full[: self._used], lambda: spare.append(full)))
        # Page faults of new memory take longer than the copy itself, so buffers are reused.
        self._buffer = spare.popleft() if spare else memoryview(bytearray(self._size))
        self._used = 0


def float32_bytes(values: Any) -> bytes:
    """A copy of float32 memory, or of memory of another number type converted to it.

    Raises `TypeError` if `values` does not provide C-contiguous memory of numbers.
    """
    view = memoryview(values)
    if view.format in {"f", "<f", "B"}:
        return bytes(view.cast("B"))
    numbers = view.cast("B").cast(view.format)  # type: ignore[call-overload]  # the format is the memory's own
    return array("f", numbers).tobytes()


def _as_row(values: Any, cores: int) -> list[float]:
    """Converts values of other types to [cores] floats: NaN if not a number."""
    row = [math.nan] * cores
    with contextlib.suppress(TypeError):
        for index, value in zip(range(cores), values, strict=False):
            with contextlib.suppress(TypeError, ValueError):
                row[index] = float(value)
    return row

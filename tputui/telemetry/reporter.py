"""The small object that a training loop talks to.

It never blocks, never raises and never touches a device: facts go onto a bounded queue, a thread of its own encodes
them and writes them to the journal. When the disk stalls, the oldest facts that may be dropped are dropped and
counted, and none that must survive is. A reporter is an object bound to its cores, never a module global, since two
cores may be two threads of one process.
"""

from __future__ import annotations

import contextlib
import math
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tputui import __version__
from tputui.telemetry import blocks
from tputui.telemetry.events import FORMAT_VERSION, Event, JournalOpened, StepsDropped, StepsRecorded
from tputui.telemetry.journal import SUFFIX, JournalWriter
from tputui.telemetry.rundir import this_process

QUEUE_BYTES_MAX = 16 << 20
"""Facts waiting for the disk: beyond this the oldest droppable ones go. 1 s of 2,048 cores at 100 steps/s is 0.8 MB."""
BUFFER_BYTES = 1 << 16
"""Presized buffer of `log_step`; it holds at least one step however wide."""
DRAIN_INTERVAL_S = 0.1
LOG_INTERVAL_S = 0.5
"""`log_step` hands its buffer over when it is full or this old; a fact must be on screen within 1.5 s."""
_EVENT_BYTES = 512
_FLOAT_BYTES = 4


class Buffer(Protocol):
    """Anything that lends float32 memory: a numpy array, an `array('f')`, a memoryview."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class RawSteps:
    """Values of consecutive steps on their way to the thread that packs them."""

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

    def to_event(self) -> StepsRecorded:
        """Packs and summarises; done off the training thread."""
        num_values = len(self.raw) // _FLOAT_BYTES
        values = struct.unpack(f"<{num_values}f", self.raw)
        mean, least, greatest, bad = blocks.summarise(values)
        return StepsRecorded(
            t=self.t,
            first=self.first,
            n=num_values // self.cores,
            cores=self.cores,
            mean=mean,
            min=least,
            max=greatest,
            bad=bad,
            metric=self.metric,
            block=blocks.pack(self.raw),
        )


class Reporter:
    """Takes facts from any thread of one process and keeps them in that process's journal."""

    def __init__(
        self,
        run_dir: Path,
        role: str,
        host_index: int = 0,
        *,
        clock: Callable[[], float] = time.time,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
    ) -> None:
        """Creates the journal `ROLE-HOST.jsonl`. Raises `FileExistsError` where there is one already."""
        self.writer = f"{role}-{host_index}"
        self.clock = clock
        self._journal = JournalWriter(run_dir / f"{self.writer}{SUFFIX}")
        self._queue: deque[Event | RawSteps] = deque()
        self._queue_bytes = 0
        self._queue_bytes_max = queue_bytes_max
        self._lock = threading.Lock()
        self._dropped_records = 0
        self._dropped_steps = 0
        self._closing = threading.Event()
        self._drained = threading.Condition()
        self._failure: str | None = None
        self._writing = False
        me = this_process()
        self.emit(
            JournalOpened(
                t=clock(),
                format=FORMAT_VERSION,
                writer=self.writer,
                role=role,
                host=me.host,
                host_id=me.host_id,
                pid=me.pid,
                pid_started=me.pid_started,
                version=__version__,
                blocks=blocks.ENCODING,
            )
        )
        self._thread = threading.Thread(target=self._drain_until_closed, name="tputui-reporter", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Records a fact."""
        self._put(event, _EVENT_BYTES)

    def record_steps(self, first: int, values: Buffer, cores: int, metric: str = "loss") -> None:
        """Records the per-core values of consecutive steps.

        `values` lends C-contiguous little-endian float32 memory, [steps, cores]; it is copied at once.
        """
        raw = bytes(memoryview(values).cast("B"))
        if raw:
            self.put_steps(RawSteps(self.clock(), first, cores, metric, raw))

    def put_steps(self, steps: RawSteps) -> None:
        """Records values whose memory the caller lends until `recycle` is called."""
        self._put(steps, len(steps.raw))

    def step_log(self, cores: int, metric: str = "loss") -> StepLog:
        """A log of per-core values that are on the host already, one call a step."""
        return StepLog(self, cores, metric)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until everything emitted so far was written; False where the disk did not take it in time."""
        deadline = time.monotonic() + timeout_s
        with self._drained:
            while self._is_behind() and time.monotonic() < deadline:
                self._drained.wait(DRAIN_INTERVAL_S)
        return not self._is_behind()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Writes what is left and ends the thread; False where the disk did not take everything in time."""
        self._closing.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._journal.close()
        return not self._is_behind()

    @property
    def failure(self) -> str | None:
        """Why the newest write failed, or None where it did not."""
        return self._failure

    def _is_behind(self) -> bool:
        """Whether anything emitted is not written yet."""
        with self._lock:
            return bool(self._queue) or self._writing

    def _put(self, item: Event | RawSteps, size: int) -> None:
        with self._lock:
            self._queue.append(item)
            self._queue_bytes += size
            if self._queue_bytes > self._queue_bytes_max:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops droppable facts, oldest first, until half the room is free again."""
        kept: deque[Event | RawSteps] = deque()
        while self._queue and self._queue_bytes > self._queue_bytes_max // 2:
            item = self._queue.popleft()
            if isinstance(item, Event) and not item.droppable:
                kept.append(item)
                continue
            self._queue_bytes -= _size(item)
            self._dropped_records += 1
            if isinstance(item, RawSteps):
                self._dropped_steps += len(item.raw) // _FLOAT_BYTES // item.cores
                if item.recycle:
                    item.recycle()
        kept.extend(self._queue)
        self._queue = kept

    def _drain_until_closed(self) -> None:
        while not self._closing.wait(DRAIN_INTERVAL_S):
            self._drain()
        self._drain()

    def _drain(self) -> None:
        """Writes what is queued. What the disk refuses stays queued, or in the journal's hands."""
        try:
            self._journal.push()
            with self._lock:
                batch, self._queue = self._queue, deque()
                self._queue_bytes = 0
                dropped_records, dropped_steps = self._dropped_records, self._dropped_steps
                self._dropped_records = self._dropped_steps = 0
                self._writing = True
            events = [_packed(item) if isinstance(item, RawSteps) else item for item in batch]
            if dropped_records:
                events.append(StepsDropped(t=self.clock(), num_records=dropped_records, num_steps=dropped_steps))
            self._journal.append(events)
            self._failure = None
        except OSError as error:
            self._failure = str(error)
        else:
            self._writing = False
        with self._drained:
            self._drained.notify_all()


class StepLog:
    """Per-core values that are on the host already, gathered to one record a report.

    For loops of any framework: a call costs a copy into a presized buffer. Not for use from two threads at once.
    """

    def __init__(self, reporter: Reporter, cores: int, metric: str) -> None:
        self._reporter = reporter
        self._cores = cores
        self._metric = metric
        self._row_bytes = cores * _FLOAT_BYTES
        self._row = struct.Struct(f"<{cores}f")
        self._size = max(1, BUFFER_BYTES // self._row_bytes) * self._row_bytes
        self._buffer = memoryview(bytearray(self._size))
        self._spare: deque[memoryview] = deque()
        self._clock = reporter.clock
        self._used = 0
        self._first = 0
        self._next = 0
        self._due = math.inf

    def log(self, step: int, values: Sequence[float] | Buffer) -> None:
        """Records the values of one step, one a core: floats, or float32 memory such as a numpy array's."""
        used = self._used
        if step != self._next and used:
            self.flush()
            used = 0
        if not used:
            self._first = step
            self._due = self._clock() + LOG_INTERVAL_S
        try:
            if type(values) is list or type(values) is tuple:
                self._row.pack_into(self._buffer, used, *values)
            else:
                self._buffer[used : used + self._row_bytes] = memoryview(values).cast("B")  # type: ignore[arg-type]
        except (TypeError, ValueError, struct.error, OverflowError):
            self._pack_slowly(used, values)
        self._next = step + 1
        self._used = used + self._row_bytes
        if self._used == self._size or self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Hands what was gathered to the reporter."""
        if not self._used:
            return
        full, spare = self._buffer, self._spare
        raw = full[: self._used]
        self._reporter.put_steps(
            RawSteps(self._clock(), self._first, self._cores, self._metric, raw, lambda: spare.append(full))
        )
        # Fresh memory costs more in page faults than the copy itself, so buffers go round.
        self._buffer = spare.popleft() if spare else memoryview(bytearray(self._size))
        self._used = 0

    def _pack_slowly(self, used: int, values: object) -> None:
        """Takes what has another number type; what is no number at all is recorded as NaN, never raised."""
        row = [math.nan] * self._cores
        with contextlib.suppress(TypeError):
            for place, value in zip(range(self._cores), values, strict=False):  # type: ignore[call-overload]
                with contextlib.suppress(TypeError, ValueError, OverflowError):
                    row[place] = float(value)
        self._row.pack_into(self._buffer, used, *row)


def _packed(steps: RawSteps) -> StepsRecorded:
    event = steps.to_event()
    if steps.recycle:
        steps.recycle()
    return event


def _size(item: Event | RawSteps) -> int:
    return len(item.raw) if isinstance(item, RawSteps) else _EVENT_BYTES

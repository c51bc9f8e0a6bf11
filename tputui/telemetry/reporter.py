"""`Reporter`: records the events of one process in its journal, also in that of a process whose place it takes.

It never blocks, raises or touches a device: events go to a bounded queue, and a thread encodes them and writes them to
the journal. If the disk stalls, the oldest droppable events are dropped and counted. A reporter is never a module
global, because two cores may be two threads of one process.

of the processes that they replace.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tputui import __version__
from tputui.telemetry import float_blocks, logged_values, rundir
from tputui.telemetry.codec import SHORTEST_LINE, DamagedLine, NumberedEvent, decode
from tputui.telemetry.events import (
    COMPUTE_METRIC,
    FORMAT_VERSION,
    Event,
    JournalOpened,
    StepsDropped,
    StepsRecorded,
    ValuesLogged,
    WarningRaised,
)
from tputui.telemetry.files import reading
from tputui.telemetry.journal import LINE_BYTES_MAX, SUFFIX, WHY_CHARS_MAX, Bookmark, JournalWriter
from tputui.telemetry.run_clock import RunClock, run_clock
from tputui.telemetry.rundir import ProcessId, this_process
from tputui.telemetry.step_log import FLOAT_BYTES, RawSteps, StepLog, float32_bytes

_CHUNK_BYTES = 1 << 20
_HEAD_START = b'{"k":"JournalOpened"'


class StillWritten(FileExistsError):
    """A journal cannot be continued, because the process that writes it is alive."""


def continue_journal(path: Path) -> JournalWriter:
    """A writer that appends to a journal; a new one if there is none.

    An incomplete last line is removed, so an event that was being written when its process ended is lost whole.
    Raises `StillWritten` if the process that opened it last is alive on this host, `FileExistsError` if it was sealed,
    and `OSError`.
    """
    if path.with_name(path.name.removesuffix(SUFFIX) + rundir.SEALED_SUFFIX).exists():
        raise FileExistsError(f"{path} was sealed; its run has ended")
    try:
        with reading(path) as fd:
            end = _end(_backwards(fd), path)
            opened = _newest_head(_backwards(fd))
    except FileNotFoundError:
        return JournalWriter(path)
    if opened is not None and rundir.is_alive(rundir.process_of(opened)):
        raise StillWritten(f"{path} is still written by process {opened.pid}")
    return JournalWriter.continued(path, end)


def newest_head(path: Path) -> JournalOpened | None:
    """The head that the newest process of a journal wrote; None if there is none, or it cannot be read."""
    try:
        with reading(path) as fd:
            return _newest_head(_backwards(fd))
    except OSError:
        return None


def _backwards(fd: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a file, from the last one: the offset after each line, and the line without its newline.

    Text after the last newline is not one.
    """
    start = after = os.fstat(fd).st_size
    begun, is_whole = b"", False
    while start > 0:
        size = min(_CHUNK_BYTES, start)
        start -= size
        begun, *lines = (os.pread(fd, size, start) + begun).split(b"\n")
        for line in reversed(lines):
            if is_whole:
                yield after, line
            after -= len(line) + is_whole
            is_whole = True
        if len(begun) > LINE_BYTES_MAX:
            # It is no event, whatever comes before it.
            after, begun = after - len(begun), b""
    if is_whole:
        yield after, begun


def _end(lines: Iterator[tuple[int, bytes]], path: Path) -> Bookmark:
    """The position after the last whole line, with the number and the journal id of the last valid event."""
    last = 0
    for offset, line in lines:
        last = last or offset
        numbered = _decoded(line)
        if numbered is not None:
            return Bookmark(path.name, last, numbered.seq + 1, journal_id=numbered.journal_id)
    return Bookmark(path.name, last)


def _newest_head(lines: Iterator[tuple[int, bytes]]) -> JournalOpened | None:
    """The head that was written last; None if there is none."""
    for _, line in lines:
        numbered = _decoded(line) if line.startswith(_HEAD_START) else None
        if numbered is not None and isinstance(numbered.event, JournalOpened):
            return numbered.event
    return None


def _decoded(line: bytes) -> NumberedEvent | None:
    try:
        return decode(line) if len(line) >= SHORTEST_LINE else None
    except DamagedLine:
        return None


QUEUE_BYTES_MAX = 16 << 20
"""Maximum size of the queue; above it the oldest droppable events are dropped. 20 s of 8 cores at 1,000 steps/s take
0.6 MB."""
RECORD_BYTES_MAX = 4 << 20
"""Maximum size of the raw values in one event; more are split. The longest valid line holds three times as many."""
DRAIN_INTERVAL_S = 0.1
_REST_S = 0.01
"""Minimum pause between two writes if the disk is slow."""
_RANKED = frozenset({"rank", "observer"})
"""Roles whose journals are numbered by rank."""
_EVENT_BYTES = 512
"""Assumed size of an event without the values in it."""


class Reporter:
    """Writes the events of one process to its journal. Thread-safe."""

    def __init__(
        self,
        run_dir: Path,
        role: str,
        number: int = 0,
        *,
        generation: int = 0,
        host_index: int | None = None,
        process: ProcessId | None = None,
        clock: Callable[[], float] | None = None,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
    ) -> None:
        """Creates the journal `ROLE-NUMBER.jsonl`; the number is the index of the host, or the rank over all hosts.

        Raises `FileExistsError` if the journal exists. In a later `generation`, after the training processes of the run
        were restarted, the journal of the process before is continued; raises `StillWritten` if that process is alive.
        `process` is the process that the journal is about, if not the calling one: viewers check whether it is alive.
        `host_index`: index of the host, if it is not the number. `clock` gives unix time, by default that of the run.
        """
        self.writer = f"{role}-{number}"
        self._run_clock = run_clock()
        self.clock = clock or self._run_clock.now
        self.run_dir = run_dir
        self.path = run_dir / f"{self.writer}{SUFFIX}"
        self._journal = continue_journal(self.path) if generation else JournalWriter(self.path)
        self._queue: deque[Event | RawSteps] = deque()
        self._queue_bytes = 0
        self._queue_bytes_max = queue_bytes_max
        # A signal handler may emit while the thread that it interrupts holds the lock.
        self._lock = threading.RLock()
        self._logs: list[StepLog] = []
        self._dropped_events = 0
        self._dropped_steps = 0
        self._failure: str | None = None
        self._writing = False
        self._closing = threading.Event()
        self._drained = threading.Condition()
        head = self._head(run_dir, role, process or this_process())
        by_number = 0 if role in _RANKED else number
        where = by_number if host_index is None else host_index
        self.emit(msgspec.structs.replace(head, host_index=where, generation=generation))
        self._thread = threading.Thread(target=self._drain_until_closed, name="tputui-reporter", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Queues an event to be written. If the clock of the system was set since the run began, its time is
        corrected."""
        if self._run_clock.was_set():
            event = _on_clock(event, self._run_clock)
        self._put(event, _size(event))

    def record_steps(self, first: int, values: Any, cores: int, metric: str = "loss") -> None:
        """Records the per-core values of consecutive steps.

        `values`: [steps, cores], C-contiguous float32 memory such as a numpy array; copied before this returns.
        """
        try:
            raw = float32_bytes(values)
        except (TypeError, ValueError) as error:
            self._warn(f"the {metric} of the steps from {first} could not be recorded: {error}")
            return
        row_bytes = FLOAT_BYTES * cores
        if not 0 < row_bytes <= RECORD_BYTES_MAX or len(raw) % row_bytes:
            self._warn(f"the {metric} of the steps from {first} could not be recorded: not {cores} values per step")
            return
        piece = RECORD_BYTES_MAX // row_bytes * row_bytes
        for offset in range(0, len(raw), piece):
            rows = raw[offset : offset + piece]
            self.put_steps(RawSteps(self.clock(), first + offset // row_bytes, cores, metric, rows))

    def follow(self, log: StepLog) -> None:
        """Flushes a log when its values have waited long enough, and before the journal is closed."""
        self._logs.append(log)

    def put_steps(self, steps: RawSteps) -> None:
        """Queues a block of a step log."""
        self._put(steps, len(steps.raw))

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until everything emitted so far is written; returns False on timeout."""
        self._flush_logs()
        deadline = time.monotonic() + timeout_s
        with self._drained:
            while self._is_behind() and time.monotonic() < deadline:
                self._drained.wait(DRAIN_INTERVAL_S)
        return not self._is_behind()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Writes the rest of the queue and stops the thread; returns False on timeout."""
        self._flush_logs()
        self._closing.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._journal.close()
        return not self._is_behind()

    @property
    def num_unwritten(self) -> int:
        """Number of events that are not in the journal because they are queued, dropped or partly written."""
        with self._lock:
            return len(self._queue) + self._dropped_events + self._journal.num_unsent

    @property
    def failure(self) -> str | None:
        """Why the newest write failed; None if it succeeded."""
        return self._failure

    def _head(self, run_dir: Path, role: str, process: ProcessId) -> JournalOpened:
        return JournalOpened(
            t=self.clock(),
            format=FORMAT_VERSION,
            writer=self.writer,
            role=role,
            host=process.host,
            host_id=process.host_id,
            pid=process.pid,
            pid_started=process.pid_started,
            run=run_dir.resolve().name,
            version=__version__,
            blocks=float_blocks.ENCODING,
            boot_t=self._run_clock.boot_t,
        )

    def _warn(self, text: str) -> None:
        self.emit(WarningRaised(t=self.clock(), text=text))

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
        """Drops droppable events, oldest first, until the queue is half empty."""
        kept: deque[Event | RawSteps] = deque()
        while self._queue and self._queue_bytes > self._queue_bytes_max // 2:
            item = self._queue.popleft()
            if isinstance(item, RawSteps):
                self._queue_bytes -= len(item.raw)
                self._dropped_events += 1
                # The loss of the same steps is an item of its own.
                self._dropped_steps += item.num_steps if item.metric != COMPUTE_METRIC else 0
                item.release()
            elif item.droppable:
                self._queue_bytes -= _size(item)
                self._dropped_events += 1
                self._dropped_steps += item.n if isinstance(item, StepsRecorded) else 0
            else:
                kept.append(item)
        kept.extend(self._queue)
        self._queue = kept

    def _drain_until_closed(self) -> None:
        due = time.monotonic() + DRAIN_INTERVAL_S
        # Scheduled by when the last write was due, not by when it finished, so that viewers get ten per second.
        while not self._closing.wait(max(due - time.monotonic(), _REST_S)):
            due = max(due, time.monotonic() - DRAIN_INTERVAL_S) + DRAIN_INTERVAL_S
            for log in self._logs:
                log.flush_if_due()
            self._drain()
        self._drain()

    def _flush_logs(self) -> None:
        for log in self._logs:
            log.flush()

    def _drain(self) -> None:
        """Writes the queue. After an error, unwritten events stay in the queue or in the `JournalWriter`."""
        try:
            self._journal.push()
            with self._lock:
                batch, self._queue = self._queue, deque()
                self._queue_bytes = 0
                dropped_events, dropped_steps = self._dropped_events, self._dropped_steps
                self._dropped_events = self._dropped_steps = 0
                self._writing = True
            events = [_as_event(item) for item in batch]
            if dropped_events:
                events.append(StepsDropped(t=self.clock(), num_records=dropped_events, num_steps=dropped_steps))
            self._journal.append(events)
            self._failure = None
        except OSError as error:
            self._failure = str(error)
        else:
            self._writing = False
        with self._drained:
            self._drained.notify_all()


def _as_event(item: Event | RawSteps) -> Event:
    """The event to write for a queued item; a warning if the item is invalid, so that later ones are still written."""
    if not isinstance(item, RawSteps):
        return item
    try:
        return item.to_event()
    except Exception as error:  # noqa: BLE001, RUF100 - it would end the writing thread; it is reported
        why = repr(error)[:WHY_CHARS_MAX]
        return WarningRaised(t=item.t, text=f"a {type(item).__name__} could not be written: {why}")


def _on_clock(event: Event, clock: RunClock) -> Event:
    """The event with times by the clock of the run."""
    if isinstance(event, ValuesLogged):
        event = logged_values.with_times(event, clock.of_event)
    return msgspec.structs.replace(event, t=clock.of_event(event.t))


def _size(event: Event) -> int:
    """Bytes of an event in the queue, by and large."""
    if isinstance(event, ValuesLogged):
        return _EVENT_BYTES + len(event.values) + len(event.steps) + len(event.times) + len(event.epochs)
    return _EVENT_BYTES

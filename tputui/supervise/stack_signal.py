"""Fetches the stacks of processes that do not answer a request for them, by a signal.

Native code that holds the interpreter lock keeps every Python thread from answering. The signal handler is native too:
it prints the stacks to a file, which is read here. The process continues.

The handler does not take the lock, so the process must not run Python meanwhile: it would read stacks as they change,
which ended one by a segmentation fault. So a process is signalled only if it is silent. A process that still sends its
heartbeats is slow, and has the rest of the time to answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tputui.state.reducer import RunState
from tputui.supervise.training_processes import is_in_set
from tputui.telemetry import events as ev
from tputui.telemetry import rundir, stack_frames
from tputui.telemetry.safe_open import open_plain

SILENT_S = 4.0
"""Seconds after a request without any event of a process after which it cannot run Python: heartbeats are a second
apart."""
WAIT_S = 10.0
"""Seconds for which an answer is awaited, like `tputui stacks` does."""
FOLDER = "stacks"
READ_BYTES_MAX = 1 << 20


class _PendingRequest:
    """A request for stacks, and the processes that were signalled for it."""

    def __init__(self, request: str, now: float) -> None:
        self.request = request
        self.requested_at = now
        self.signalled: dict[str, int] = {}
        """Size of the output file before the signal by process; -1 once the process is done."""
        self._newest: dict[str, tuple[int, float]] = {}
        """Number of the newest event by process, and the monotonic time at which it was first seen."""

    def is_silent(self, process: str, last_seq: int, now: float) -> bool:
        """Whether a process has written nothing for `SILENT_S` since the request; `last_seq` is its newest event."""
        if process not in self._newest or self._newest[process][0] != last_seq:
            self._newest[process] = last_seq, now
        return now - self._newest[process][1] >= SILENT_S


class StackSignal:
    """Follows requests for stacks until each is answered or has timed out."""

    def __init__(self, run_dir: Path, emit: Callable[[ev.Event], None]) -> None:
        self._run_dir = run_dir
        self._emit = emit
        self._pending: list[_PendingRequest] = []

    def add_request(self, request: str, now: float) -> None:
        """Adds a request. `now` is a monotonic time in seconds, as for `check`."""
        self._pending.append(_PendingRequest(request, now))

    def check(self, state: RunState, now: float) -> None:
        """Signals the processes that cannot answer, and emits the stacks that they printed."""
        for pending in self._pending:
            for last_seq, process in _unanswered(state, pending.request):
                if pending.is_silent(process.writer, last_seq, now) or process.writer in pending.signalled:
                    self._fetch(pending, process)
        self._pending = [one for one in self._pending if now - one.requested_at < WAIT_S]

    def _fetch(self, pending: _PendingRequest, process: ev.JournalOpened) -> None:
        path = self._run_dir / FOLDER / f"{process.writer}.signal"
        if process.writer not in pending.signalled:
            # Only a process that has created the file has installed a handler; the signal would end any other.
            if path.is_file() and _is_alive(process):
                self._signal(pending, process, path.stat().st_size)
            return
        before = pending.signalled[process.writer]
        threads = stack_frames.printed(_read_from(path, before)) if before >= 0 else []
        if threads:
            pending.signalled[process.writer] = -1
            self._emit(
                ev.StacksTaken(
                    t=time.time(),
                    request=pending.request,
                    process=process.writer,
                    pid=process.pid,
                    threads=sorted(threads, key=lambda thread: not _is_users(thread)),
                    path=f"{FOLDER}/{path.name}",
                    by_signal=True,
                )
            )

    def _signal(self, pending: _PendingRequest, process: ev.JournalOpened, size: int) -> None:
        if (why := _obstacle(process.pid)) is not None:
            pending.signalled[process.writer] = -1
            self._emit(ev.WarningRaised(t=time.time(), text=f"no stacks of {process.writer}: {why}"))
            return
        pending.signalled[process.writer] = size
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGUSR1)


def _obstacle(pid: int) -> str | None:
    """Why a process cannot be asked by a signal; None if it can."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return "it has ended"
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if status.get("State", "").startswith(("T", "t")):
        # It would print once it continues, when its threads run again: to read their stacks then can end the process.
        return f"it is stopped; kill -CONT {pid} continues it"
    if not is_in_set(status.get("SigCgt", "0"), signal.SIGUSR1):
        return "its code removed the handler of SIGUSR1, so it cannot be signalled"
    return None


def _unanswered(state: RunState, request: str) -> Iterator[tuple[int, ev.JournalOpened]]:
    """The training processes without an answer, each once, with the numbers of their newest events."""
    seen: set[int] = set()
    answered = {taken.pid for w in state.in_order for taken in w.stacks.values() if taken.request == request}
    for process in (*state.workers, *state.ranks):
        opened = process.opened
        if opened and process.training_ended is None and opened.pid not in answered | seen:
            seen.add(opened.pid)
            yield process.last_seq, opened


def _is_alive(process: ev.JournalOpened) -> bool:
    return rundir.is_alive(rundir.process_of(process)) is True


def _read_from(path: Path, offset: int) -> str:
    try:
        fd = open_plain(path)
    except OSError:
        return ""
    try:
        return os.pread(fd, READ_BYTES_MAX, offset).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _is_users(thread: ev.ThreadStack) -> bool:
    return any(frame.owner == "user" for frame in thread.frames)

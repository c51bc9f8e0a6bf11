"""Stacks of processes that were asked for them and do not answer, fetched by a signal.

Native code that holds the interpreter keeps every thread of Python from answering. The signal's handler is native,
too: it prints the stacks into a file of the process, which is read back here. Nothing is stopped by it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tputui.state.reducer import RunState
from tputui.telemetry import events as ev
from tputui.telemetry import rundir, stack_frames
from tputui.telemetry.safe_open import open_plain

ANSWER_S = 2.0
"""What a process has to answer by itself."""
PRINT_S = 3.0
"""What the handler has to print."""
FOLDER = "stacks"
READ_BYTES_MAX = 1 << 20


class _Wanted:
    """One request, with what is known of the answers."""

    def __init__(self, request: str, now: float) -> None:
        self.request = request
        self.asked = now
        self.signalled: dict[str, int] = {}
        """By process: where its file ended before the signal."""


class StackSignal:
    """Follows the requests for stacks, until each was answered or cannot be."""

    def __init__(self, run_dir: Path, emit: Callable[[ev.Event], None], answer_s: float = ANSWER_S) -> None:
        self._run_dir = run_dir
        self._emit = emit
        self._answer_s = answer_s
        self._wanted: list[_Wanted] = []

    def asked(self, request: str, now: float) -> None:
        """A request was found; `now` is by any clock that never goes back."""
        self._wanted.append(_Wanted(request, now))

    def look(self, state: RunState, now: float) -> None:
        """Signals those that are late, and reads what they printed."""
        for wanted in self._wanted:
            if now - wanted.asked >= self._answer_s:
                for process in _unanswered(state, wanted.request):
                    self._fetch(wanted, process)
        self._wanted = [one for one in self._wanted if now - one.asked < self._answer_s + PRINT_S]

    def _fetch(self, wanted: _Wanted, process: ev.JournalOpened) -> None:
        path = self._run_dir / FOLDER / f"{process.writer}.signal"
        if process.writer not in wanted.signalled:
            # Only a process that has made the file has had a handler; any other would be ended by the signal.
            if path.is_file() and _is_alive(process):
                self._signal(wanted, process, path.stat().st_size)
            return
        before = wanted.signalled[process.writer]
        threads = stack_frames.printed(_read_from(path, before)) if before >= 0 else []
        if threads:
            wanted.signalled[process.writer] = -1
            self._emit(
                ev.StacksTaken(
                    t=time.time(),
                    request=wanted.request,
                    process=process.writer,
                    pid=process.pid,
                    threads=sorted(threads, key=lambda thread: not _is_users(thread)),
                    path=f"{FOLDER}/{path.name}",
                    by_signal=True,
                )
            )

    def _signal(self, wanted: _Wanted, process: ev.JournalOpened, size: int) -> None:
        if not _catches(process.pid, signal.SIGUSR1):
            wanted.signalled[process.writer] = -1
            text = f"no stacks of {process.writer}: its code has reset the handler of SIGUSR1, which would end it now"
            self._emit(ev.WarningRaised(t=time.time(), text=text))
            return
        wanted.signalled[process.writer] = size
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGUSR1)


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal now."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def _unanswered(state: RunState, request: str) -> Iterator[ev.JournalOpened]:
    """The training processes that gave no answer yet, each once."""
    seen: set[int] = set()
    answered = {taken.pid for w in state.in_order for taken in w.stacks.values() if taken.request == request}
    for writer in (*state.workers, *state.ranks):
        opened = writer.opened
        if opened and writer.training_ended is None and opened.pid not in answered | seen:
            seen.add(opened.pid)
            yield opened


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

"""Takes the stacks of the Python processes of a user's command with py-spy, which reads them from outside.

A script that knows nothing of tputui cannot answer a request for its stacks. Every process is read by a py-spy of its
own while the supervisor goes on; the processes continue.

Native code that holds the interpreter lock keeps every Python thread from answering. The signal handler is native too:
it prints the stacks to a file, which is read here. The process continues.

The handler does not take the lock, so the process must not run Python meanwhile: it would read stacks as they change,
which ended one by a segmentation fault. So a process is signalled only if it is silent. A process that still sends its
heartbeats is slow, and has the rest of the time to answer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from tputui.state.reducer import RunState
from tputui.supervise.training_processes import environment_of, is_in_set, is_python
from tputui.telemetry import events as ev
from tputui.telemetry import rundir, stack_frames
from tputui.telemetry.files import read_at
from tputui.telemetry.rank_environment import rank_info
from tputui.telemetry.stack_frames import FRAMES_MAX, THREADS_MAX, owner_of

NOT_INSTALLED = (
    "the script does not report its stacks, and py-spy is not installed: pip install 'tputui[pyspy]', or call "
    "tputui.start() in the script"
)
NO_PYTHON = "the script does not report its stacks, and none of its processes runs Python"
PROCESSES_MAX = 64
DUMP_S = 10.0
"""Seconds after which a py-spy that has not ended is killed."""
OUTPUT_BYTES_MAX = 4 << 20


class _FrameDump(msgspec.Struct):
    name: str
    filename: str
    line: int


class _ThreadDump(msgspec.Struct):
    frames: list[_FrameDump]
    thread_name: str | None = None
    os_thread_id: int | None = None
    thread_id: int = 0


class _Dump(NamedTuple):
    """A py-spy that reads one process."""

    request: str
    pid: int
    name: str
    popen: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    until: float
    """Monotonic time at which it is killed."""


class PythonStacks:
    """Follows requests for the stacks of one command until each is answered."""

    def __init__(self, pid: int, leader: str, emit: Callable[[ev.Event], None]) -> None:
        """`pid` is the command, `leader` the name of its journal; `emit` records an event."""
        self._pid = pid
        self._leader = leader
        self._emit = emit
        self._dumps: list[_Dump] = []
        self._failures: dict[str, list[str]] = {}
        self._num_taken: dict[str, int] = {}

    def begin(self, request: str, now: float) -> str | None:
        """Begins to take the stacks; returns why that is not possible. `now` is a monotonic time in seconds."""
        program = find_py_spy()
        if program is None:
            return NOT_INSTALLED
        processes = list(_python_processes(self._pid, self._leader))
        if not processes:
            return NO_PYTHON
        self._failures[request], self._num_taken[request] = [], 0
        for pid, name in processes:
            # Files, not pipes: a pipe that nobody reads would block a long dump.
            out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115, RUF100 - closed in `_finish`
            try:
                popen = subprocess.Popen(
                    [program, "dump", "--json", "--pid", str(pid)], stdin=subprocess.DEVNULL, stdout=out, stderr=err
                )
            except OSError as error:
                self._failures[request].append(f"{name}: {error}")
                continue
            self._dumps.append(_Dump(request, pid, name, popen, out, err, now + DUMP_S))
        return self._refusal(request) if not self._dumps else None

    def poll(self, now: float, step: int) -> None:
        """Emits the stacks that have arrived, and a receipt once a request has all of them."""
        for dump in list(self._dumps):
            if dump.popen.poll() is None:
                if now >= dump.until:
                    dump.popen.kill()
                continue
            self._dumps.remove(dump)
            self._finish(dump)
            if not any(other.request == dump.request for other in self._dumps):
                self._close(dump.request, step)

    def close(self) -> None:
        """Ends what still runs."""
        for dump in self._dumps:
            dump.popen.kill()
            dump.popen.wait()
            dump.out.close()
            dump.err.close()
        self._dumps.clear()

    def _finish(self, dump: _Dump) -> None:
        with dump.out, dump.err:
            dump.out.seek(0)
            dump.err.seek(0)
            content, errors = dump.out.read(OUTPUT_BYTES_MAX), dump.err.read(OUTPUT_BYTES_MAX)
        try:
            threads = msgspec.json.decode(content, type=list[_ThreadDump])
        except msgspec.MsgspecError:
            first = next(iter(errors.decode("utf-8", "replace").splitlines()), f"exit code {dump.popen.returncode}")
            self._failures[dump.request].append(f"{dump.name} (pid {dump.pid}): {first.removeprefix('Error: ')}")
            return
        self._num_taken[dump.request] += 1
        self._emit(
            ev.StacksTaken(
                t=time.time(),
                request=dump.request,
                process=dump.name,
                pid=dump.pid,
                threads=sorted(map(_stack_of, threads[:THREADS_MAX]), key=lambda thread: not _is_users(thread)),
            )
        )

    def _close(self, request: str, step: int) -> None:
        now = time.time()
        if self._num_taken[request]:
            self._emit(ev.RequestApplied(t=now, request=request, kind="stacks", step=step))
        else:
            self._emit(ev.RequestRefused(t=now, request=request, kind="stacks", why=self._refusal(request)))

    def _refusal(self, request: str) -> str:
        return f"py-spy could not read the processes: {'; '.join(self._failures[request])[:600]}"


def find_py_spy() -> str | None:
    """The path of py-spy: beside this interpreter, else in PATH; None if it is not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files("py-spy") or ():
            if file.name == "py-spy" and (program := shutil.which(str(file.locate()))) is not None:
                return program
    return shutil.which("py-spy")


def _python_processes(pid: int, leader: str) -> Iterator[tuple[int, str]]:
    """The Python processes of a command, with names: that of the leader, `rank 3`, `python 4711`."""
    import psutil

    pids = [pid]
    with contextlib.suppress(psutil.Error):
        pids += [child.pid for child in psutil.Process(pid).children(recursive=True)]
    names: set[str] = set()
    for python_pid in pids[:PROCESSES_MAX]:
        if not is_python(python_pid):
            continue
        rank = rank_info(environment_of(python_pid)).rank
        name = leader if python_pid == pid else f"rank {rank}" if rank is not None else f"python {python_pid}"
        name = f"{name}, pid {python_pid}" if name in names else name
        names.add(name)
        yield python_pid, name


def _stack_of(thread: _ThreadDump) -> ev.ThreadStack:
    number = thread.os_thread_id or thread.thread_id
    name = thread.thread_name or f"thread {number}"
    frames = [
        ev.CodeFrame(
            file=frame.filename,
            line=max(0, min(frame.line, 2**31)),
            function=frame.name,
            owner=owner_of(frame.filename),
        )
        for frame in thread.frames[:FRAMES_MAX]
    ]
    return ev.ThreadStack(name=name, frames=frames)


def _is_users(thread: ev.ThreadStack) -> bool:
    return any(frame.owner == "user" for frame in thread.frames)


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
        self._pending = [waiting for waiting in self._pending if now - waiting.requested_at < WAIT_S]

    def _fetch(self, pending: _PendingRequest, process: ev.JournalOpened) -> None:
        path = self._run_dir / FOLDER / f"{process.writer}.signal"
        if process.writer not in pending.signalled:
            # Only a process that has created the file has installed a handler; the signal would end any other.
            if path.is_file() and rundir.is_alive(rundir.process_of(process)) is True:
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


def _read_from(path: Path, offset: int) -> str:
    try:
        return read_at(path, offset, READ_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""

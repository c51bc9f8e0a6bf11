"""Takes the stacks of the Python processes of a user's command with py-spy, which reads them from outside.

A script that knows nothing of tputui cannot answer a request for its stacks. Every process is read by a py-spy of its
own while the supervisor goes on; the processes continue.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import IO, NamedTuple

import msgspec

from tputui.supervise.training_processes import environment_of, is_python
from tputui.telemetry import events as ev
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


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct):
    frames: list[_Frame]
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
            threads = msgspec.json.decode(content, type=list[_Thread])
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
    for each in pids[:PROCESSES_MAX]:
        if not is_python(each):
            continue
        rank = rank_info(environment_of(each)).rank
        name = leader if each == pid else f"rank {rank}" if rank is not None else f"python {each}"
        name = f"{name}, pid {each}" if name in names else name
        names.add(name)
        yield each, name


def _stack_of(thread: _Thread) -> ev.ThreadStack:
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

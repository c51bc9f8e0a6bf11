"""Where the Python code of this process is: every thread's stack while it runs, and the calls that led to an error.

The interpreter's lock is free while the loop is inside the compiler or waits in native code, so another thread reads
its stack there and disturbs nothing. Files of code are never opened: the disk they are on may be what hangs.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from tputui.telemetry import requests
from tputui.telemetry.events import CodeFrame, StacksTaken, ThreadStack
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import write_atomically
from tputui.telemetry.stack_frames import FRAMES_MAX, THREADS_MAX, owner_of

FOLDER = "stacks"
"""Folder of the run in which the stacks lie."""
_TRAINING = "trainer.py"


class StackReporter:
    """Answers requests for the stacks of this process."""

    def __init__(self, run_dir: Path, reporter: Reporter) -> None:
        self._folder = run_dir / FOLDER
        self._reporter = reporter
        self._inbox = requests.Inbox(run_dir)

    def look(self) -> None:
        """Answers what was asked since the last look; for a process that is asked nothing else."""
        for request in self._inbox.poll():
            if request.kind == "stacks":
                self.tell(request)

    def tell(self, request: requests.Request) -> str | None:
        """Tells the stacks as a fact and as a file; gives the file, relative to the run directory, if there is one."""
        threads = of_threads()
        path = self._write(f"{request.id}-{self._reporter.writer}.txt", as_text(threads))
        self._reporter.emit(
            StacksTaken(
                t=time.time(),
                request=request.id,
                process=self._reporter.writer,
                pid=os.getpid(),
                threads=threads,
                path=path,
            )
        )
        return path

    def _write(self, name: str, text: str) -> str | None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(self._folder / name, text.encode("utf-8", "replace"))
        except OSError:
            return None
        return f"{FOLDER}/{name}"


def tell_on_signal(run_dir: Path, writer: str) -> None:
    """From now on SIGUSR1 has the interpreter print every stack into a file of its own, even while native code holds
    the interpreter and no thread of Python can answer."""
    try:
        (run_dir / FOLDER).mkdir(mode=0o700, exist_ok=True)
        path = run_dir / FOLDER / f"{writer}.signal"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    else:
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)


def of_threads() -> list[ThreadStack]:
    """Every thread of this process, first those that train, then those in the user's code, then the rest."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        ThreadStack(name=names.get(ident, "a thread of native code"), frames=_frames(frame))
        for ident, frame in sys._current_frames().items()
    ]
    return sorted(found, key=_rank)[:THREADS_MAX]


def of_error(error: BaseException) -> list[CodeFrame]:
    """The calls in the user's own code that led to an error, the newest of what broke first at the top."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    found = [frame for broke in reversed(chain) for frame in _raised_in(broke.__traceback__) if frame.owner == "user"]
    return list(dict.fromkeys(found))[:FRAMES_MAX]


def as_text(threads: list[ThreadStack]) -> str:
    """The stacks as they stand in a file, whole."""
    return "\n".join(line for stack in threads for line in _lines(stack))


def _lines(stack: ThreadStack) -> Iterator[str]:
    yield f"thread {stack.name} (newest call first)"
    for frame in stack.frames:
        yield f"  {frame.file}:{frame.line} in {frame.function}"
    yield ""


def _rank(stack: ThreadStack) -> tuple[bool, bool]:
    trains = any(frame.owner == "tputui" and frame.file.endswith(_TRAINING) for frame in stack.frames)
    return not trains, not any(frame.owner == "user" for frame in stack.frames)


def _frames(frame: FrameType) -> list[CodeFrame]:
    found: list[CodeFrame] = []
    place: FrameType | None = frame
    while place is not None and len(found) < FRAMES_MAX:
        found.append(_code_frame(place, place.f_lineno))
        place = place.f_back
    return found


def _raised_in(trace: TracebackType | None) -> list[CodeFrame]:
    """The calls of a traceback, the newest first."""
    return [_code_frame(frame, line) for frame, line in traceback.walk_tb(trace)][::-1]


def _code_frame(frame: FrameType, line: int | None) -> CodeFrame:
    file = frame.f_code.co_filename
    return CodeFrame(file=file, line=line or 0, function=frame.f_code.co_qualname, owner=owner_of(file))

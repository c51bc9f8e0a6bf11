"""Stacks of this process: of every thread on request or signal, and the user's calls that led to an error.

The interpreter's lock is free while the loop compiles or waits in native code, so another thread can read its stack
there without disturbing it. Source files are never opened: a hanging disk may be the cause.
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
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import write_atomically
from tputui.telemetry.stack_frames import FRAMES_MAX, THREADS_MAX, owner_of

FOLDER = "stacks"
"""Folder in the run directory for the stacks."""
_TRAINING = "trainer.py"


class StackReporter:
    """Answers requests for the stacks of this process."""

    def __init__(self, run_dir: Path, reporter: Reporter) -> None:
        self._folder = run_dir / FOLDER
        self._reporter = reporter
        self._inbox = requests.Inbox(run_dir, requests.answered_in(reporter.path))

    def poll(self) -> None:
        """Answers new requests; for a process that handles no other requests."""
        for request in self._inbox.poll():
            if request.kind == "stacks":
                self.report(request)

    def report(self, request: requests.Request) -> str | None:
        """Emits the stacks as an event and writes them to a file; returns its path relative to the run directory, if
        written."""
        threads = thread_stacks()
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
            write_atomically(self._folder / name, masked_text(text).encode("utf-8", "replace"))
        except OSError:
            return None
        return f"{FOLDER}/{name}"


def dump_on_signal(run_dir: Path, writer: str) -> None:
    """Makes SIGUSR1 print every stack into a file, even while native code holds the interpreter's lock and no Python
    thread can respond."""
    try:
        (run_dir / FOLDER).mkdir(mode=0o700, exist_ok=True)
        path = run_dir / FOLDER / f"{writer}.signal"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    else:
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)


def thread_stacks() -> list[ThreadStack]:
    """Every thread of this process: training threads first, then those in user code, then the rest."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        ThreadStack(name=names.get(ident, "a native thread"), frames=_frames(frame))
        for ident, frame in sys._current_frames().items()
    ]
    return sorted(found, key=_rank)[:THREADS_MAX]


def error_frames(error: BaseException) -> list[CodeFrame]:
    """The calls in user code that led to an error, innermost first, beginning with the newest exception."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    found = [frame for broke in reversed(chain) for frame in _raised_in(broke.__traceback__) if frame.owner == "user"]
    return list(dict.fromkeys(found))[:FRAMES_MAX]


def as_text(threads: list[ThreadStack]) -> str:
    """All stacks as text for a file."""
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
    """The calls of a traceback, innermost first."""
    return [_code_frame(frame, line) for frame, line in traceback.walk_tb(trace)][::-1]


def _code_frame(frame: FrameType, line: int | None) -> CodeFrame:
    file = frame.f_code.co_filename
    return CodeFrame(file=file, line=line or 0, function=frame.f_code.co_qualname, owner=owner_of(file))

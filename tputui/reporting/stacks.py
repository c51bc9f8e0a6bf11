"""Stacks of this process: of every thread, on request or signal.

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
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tputui.telemetry.events import CodeFrame, StacksTaken, ThreadStack
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.requests import Request
from tputui.telemetry.rundir import write_atomically
from tputui.telemetry.stack_frames import FRAMES_MAX, THREADS_MAX, owner_of

FOLDER = "stacks"
"""Folder in the run directory for the stacks."""
_TRAINING = "trainer.py"


def report(request: Request, reporter: Reporter) -> str | None:
    """Emits the stacks of this process as an event and writes them to a file; returns its path relative to the run
    directory, if written."""
    threads = thread_stacks()
    path = _write(reporter.run_dir, f"{request.id}-{reporter.writer}.txt", as_text(threads))
    reporter.emit(
        StacksTaken(
            t=time.time(), request=request.id, process=reporter.writer, pid=os.getpid(), threads=threads, path=path
        )
    )
    return path


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
    stacks = [
        ThreadStack(name=names.get(ident, "a native thread"), frames=frames_of(frame))
        for ident, frame in sys._current_frames().items()
    ]
    return sorted(stacks, key=_rank)[:THREADS_MAX]


def as_text(threads: list[ThreadStack]) -> str:
    """All stacks as text for a file."""
    return "\n".join(line for stack in threads for line in _lines(stack))


def frames_of(frame: FrameType) -> list[CodeFrame]:
    """The call of a frame and those that led to it, innermost first."""
    frames: list[CodeFrame] = []
    place: FrameType | None = frame
    while place is not None and len(frames) < FRAMES_MAX:
        frames.append(code_frame(place, place.f_lineno))
        place = place.f_back
    return frames


def code_frame(frame: FrameType, line: int | None) -> CodeFrame:
    """The call of a frame that is at a line."""
    file = frame.f_code.co_filename
    return CodeFrame(file=file, line=line or 0, function=frame.f_code.co_qualname, owner=owner_of(file))


def _write(run_dir: Path, name: str, text: str) -> str | None:
    try:
        (run_dir / FOLDER).mkdir(mode=0o700, exist_ok=True)
        write_atomically(run_dir / FOLDER / name, masked_text(text).encode("utf-8", "replace"))
    except OSError:
        return None
    return f"{FOLDER}/{name}"


def _lines(stack: ThreadStack) -> Iterator[str]:
    yield f"thread {stack.name} (newest call first)"
    for frame in stack.frames:
        yield f"  {frame.file}:{frame.line} in {frame.function}"
    yield ""


def _rank(stack: ThreadStack) -> tuple[bool, bool]:
    trains = any(frame.owner == "tputui" and frame.file.endswith(_TRAINING) for frame in stack.frames)
    return not trains, not any(frame.owner == "user" for frame in stack.frames)

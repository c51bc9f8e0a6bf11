"""Where the Python code of this process is: every thread's stack while it runs, and the calls that led to an error.

The interpreter's lock is free while the loop is inside the compiler or waits in native code, so another thread reads
its stack there and disturbs nothing. Files of code are never opened: the disk they are on may be what hangs.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

import engine
import tputui
from tputui.telemetry.events import CodeFrame, FrameOwner, ThreadStack

FRAMES_MAX = 64
"""Calls kept of a stack, the newest ones."""
THREADS_MAX = 64
_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})
_TRAINING = "trainer.py"


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


def owner_of(file: str) -> FrameOwner:
    """Whose code a file holds."""
    if _is_in(file, _OURS):
        return "tputui"
    parts = Path(file).parts
    if file.startswith("<") or _LIBRARY_FOLDERS.intersection(parts) or _is_in(file, _PYTHON):
        return "library"
    return "user"


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


def _is_in(file: str, folders: tuple[str, ...]) -> bool:
    return file.startswith(folders)


_OURS = tuple(str(Path(package.__file__ or "").resolve().parent) + os.sep for package in (engine, tputui))
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})

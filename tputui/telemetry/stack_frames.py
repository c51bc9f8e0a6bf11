"""The owner of the code of a stack frame, and a parser of the stacks that `faulthandler` prints. Opens no files."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import tputui
from tputui.telemetry.events import CodeFrame, FrameOwner, ThreadStack

FRAMES_MAX = 64
"""Maximum number of calls of a stack; the newest ones are kept."""
THREADS_MAX = 64
_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})
_HERE = Path(tputui.__file__).resolve().parent
_OURS = (str(_HERE) + os.sep, str(_HERE.parent / "engine") + os.sep)
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)")
_CALL = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def owner_of(file: str) -> FrameOwner:
    """The owner of the code in a file."""
    if file.startswith(_OURS):
        return "tputui"
    if file.startswith("<") or _LIBRARY_FOLDERS.intersection(Path(file).parts) or file.startswith(_PYTHON):
        return "library"
    return "user"


def printed(text: str) -> list[ThreadStack]:
    """The stacks of all threads in the output of `faulthandler`; other lines are ignored."""
    return list(_printed(text))[:THREADS_MAX]


def _printed(text: str) -> Iterator[ThreadStack]:
    name, frames = "", list[CodeFrame]()
    for line in [*text.splitlines(), "Thread 0x0"]:
        thread, call = _THREAD.match(line), _CALL.match(line)
        if thread:
            if name and frames:
                yield ThreadStack(name=name, frames=frames[:FRAMES_MAX])
            name, frames = f"thread {thread.group(1)}", []
        elif call:
            file = call.group(1)
            number = min(int(call.group(2)[:9]), 2**31)
            frames.append(CodeFrame(file=file, line=number, function=call.group(3), owner=owner_of(file)))

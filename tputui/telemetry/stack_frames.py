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
_LIBRARY = re.compile(r"/(?:lib|lib64)/python\d[\d.]*/")
"""The standard library of any interpreter: a command of the user may use another one than this."""


def owner_of(file: str) -> FrameOwner:
    if file.startswith(_OURS):
        return "tputui"
    if (
        file.startswith("<")
        or _LIBRARY_FOLDERS.intersection(Path(file).parts)
        or file.startswith(_PYTHON)
        or _LIBRARY.search(file)
        or _is_console_script(file)
    ):
        return "library"
    return "user"


def _is_console_script(file: str) -> bool:
    """Whether a file is a command that the installer of a package wrote beside the interpreter, such as `torchrun`."""
    folder, _, name = file.rpartition("/")
    if not folder.endswith("/bin") or name.endswith(".py"):
        return False
    return folder.endswith("/.local/bin") or os.path.exists(f"{folder}/python3") or os.path.exists(f"{folder}/python")


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

"""The owner of the code of a stack frame, a parser of the stacks that `faulthandler` prints, and one of the tracebacks
in the output of a command. Opens no files."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tputui
from tputui.telemetry.events import CodeFrame, FrameOwner, ThreadStack
from tputui.telemetry.process_end import is_lost_peer

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

TRACEBACK_LINES_MAX = 400
TRACEBACKS_MAX = 200
"""More in one text are ignored."""
_PREFIX = re.compile(r"(?:\[[\w.:\- ]{1,40}\]:? ?|\d{1,6}: )?")
"""What launchers put before each line: `[rank3]: `, `[default0]:`, `3: `."""
_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(.*)", line (\d+)(?:, in (.*))?$')
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*)|:)?$")
_SYNTAX_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError"})
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_QUOTE = '"""'
_ASIDE = ("Exception ignored in", "Error in atexit", "Exception in thread", "--- Logging error ---")
"""Lines before the traceback of an exception that does not end the process."""
_OF_LAUNCHERS = frozenset(
    {
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        "torch.distributed.elastic.multiprocessing.api.SignalException",
        "torch.multiprocessing.spawn.ProcessRaisedException",
        "torch.multiprocessing.spawn.ProcessExitedException",
        "subprocess.CalledProcessError",
    }
)
"""Exceptions of launchers about the end of a process that they started."""


class Traceback(NamedTuple):
    """A traceback in the output of a command."""

    error: str
    """Type of the exception."""
    message: str
    """First line of its message."""
    frames: list[CodeFrame]
    """Its calls, newest first; of a chain those of the last exception."""
    text: str
    """The whole traceback, of a chain with the exceptions before it."""
    first_line: int = 0
    """Index of its first line in the output."""


def owner_of(file: str) -> FrameOwner:
    """The owner of the code in a file."""
    if file.startswith(_OURS):
        return "tputui"
    if (
        file.startswith("<")
        or _LIBRARY_FOLDERS.intersection(Path(file).parts)
        or file.startswith(_PYTHON)
        or _LIBRARY.search(file)
    ):
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


def cause_in(lines: Sequence[str]) -> Traceback | None:
    """The traceback of the exception that ended a command, in the lines that it printed; None if there is none.

    It is the last one, or if a launcher reports the end of a process that it started, the first one of such a process
    that did not only lose another one. Exceptions that end no process count only if there are no others.
    """
    found = list(_tracebacks(lines))
    of_launcher = [is_of_launcher(traceback) for _, traceback in found]
    real = [entry for entry, is_launcher in zip(found, of_launcher, strict=True) if not is_launcher]
    fatal = [traceback for is_aside, traceback in real if not is_aside] or [traceback for _, traceback in real]
    if not fatal:
        return found[0][1] if found else None
    if not any(of_launcher):
        return fatal[-1]
    return next((traceback for traceback in fatal if not is_lost_peer(traceback.message)), fatal[0])


def is_of_launcher(traceback: Traceback) -> bool:
    """Whether a launcher raised it because a process that it started has ended."""
    if traceback.error == "subprocess.CalledProcessError":
        return any("/accelerate/" in frame.file for frame in traceback.frames)
    return traceback.error in _OF_LAUNCHERS


def _tracebacks(lines: Sequence[str]) -> Iterator[tuple[bool, Traceback]]:
    """The tracebacks in order, each with whether its exception ends no process. A chain is one traceback."""
    place, count = 0, 0
    while place < len(lines) and count < TRACEBACKS_MAX:
        prefix = _PREFIX.match(lines[place])
        assert prefix is not None, "it matches the empty text"
        rest = lines[place][prefix.end() :]
        is_syntax = _FRAME.match(rest) is not None and _syntax_error_follows(lines, place, prefix.group())
        if rest != _HEAD and not is_syntax:
            place += 1
            continue
        own = [(at, line[prefix.end() :]) for at, line in _with_prefix(lines, place, prefix.group())]
        traceback, length = _parse([line for _, line in own])
        if traceback is not None:
            count += 1
            before = lines[place - 1][prefix.end() :] if place else ""
            yield before.startswith(_ASIDE), traceback._replace(first_line=place)
        place = own[max(1, length) - 1][0] + 1


def _with_prefix(lines: Sequence[str], start: int, prefix: str) -> list[tuple[int, str]]:
    """The lines from `start` on that begin with a prefix, with their places: lines of other ranks may be between."""
    found: list[tuple[int, str]] = []
    for place in range(start, min(len(lines), start + 4 * TRACEBACK_LINES_MAX)):
        if lines[place].startswith(prefix) or (prefix and lines[place] == prefix.rstrip()):
            found.append((place, lines[place]))
            if len(found) == TRACEBACK_LINES_MAX:
                break
    return found


def _syntax_error_follows(lines: Sequence[str], place: int, prefix: str) -> bool:
    """Whether the frame at `place` begins the report of a script that does not compile, which has no other head."""
    for line in lines[place + 1 : place + 4]:
        error = _ERROR.match(line[len(prefix) :])
        if error is not None:
            return error.group(1) in _SYNTAX_ERRORS
    return False


def _parse(lines: Sequence[str]) -> tuple[Traceback | None, int]:
    """The traceback that begins with the first line, and how many lines it has; None if it has no end."""
    frames: list[CodeFrame] = []
    for place, line in enumerate(lines):
        call, error = _FRAME.match(line), _ERROR.match(line)
        if call:
            file, number = call.group(1), min(int(call.group(2)[:9]), 2**31)
            function = call.group(3) or "<module>"
            frames.append(CodeFrame(file=file, line=number, function=function, owner=owner_of(file)))
        elif line == _HEAD:
            frames = []
        elif error and (place > 0 and line != _HEAD):
            text = "\n".join(lines[: place + 1])
            found = Traceback(error.group(1), error.group(2) or "", frames[: -FRAMES_MAX - 1 : -1], text)
            following = next(
                (at for at in range(place + 1, min(place + 40, len(lines))) if lines[at] in _CHAINED), None
            )
            if following is not None and _HEAD in lines[following : following + 3]:
                head = lines.index(_HEAD, following)
                rest, length = _parse(lines[head:])
                if rest is not None:
                    # What a pool quotes of another process: the failure is there, the rest of the chain waited for it.
                    is_quoted = lines[place + 1 : place + 2] == [_QUOTE]
                    frames = found.frames if is_quoted else rest.frames
                    return rest._replace(frames=frames, text="\n".join(lines[: head + length])), head + length
            return found, place + 1
        elif line and not line.startswith(" "):
            return None, place + 1
    return None, len(lines)

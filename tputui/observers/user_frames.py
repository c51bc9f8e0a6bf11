"""The innermost call of the user's code on the stack of a thread, without the frames of libraries and of tputui."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

from tputui.telemetry.events import CodeFrame, FrameOwner
from tputui.telemetry.stack_frames import owner_of

FRAMES_MAX = 200
"""Calls that are examined, from the innermost one; a recursion of the user may be deeper."""
AUTOGRAD_THREAD = "autograd thread: the backward pass runs in a thread without calls of Python code"
NO_USER_FRAME = "no code of the user is on the stack"

_owner_of = lru_cache(maxsize=4096)(owner_of)


class UserLine(NamedTuple):
    """A line of the user's code, or why it is not known."""

    frame: CodeFrame | None
    reason: str | None


def owner(frame: FrameType) -> FrameOwner:
    """Whose code a frame runs."""
    return _owner_of(frame.f_code.co_filename)


def is_user_file(file: str) -> bool:
    """Whether a file contains code of the user."""
    return _owner_of(file) == "user"


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's code among a frame and its callers, innermost first."""
    for _ in range(FRAMES_MAX):
        if frame is None:
            return
        if is_user_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def user_line(frame: FrameType | None) -> UserLine:
    """The innermost line of the user's code at a frame or its callers."""
    return line_of(next(user_frames(frame), None))


def line_of(found: FrameType | None) -> UserLine:
    """The line of a frame of the user's code; if there is none, why, as far as the calling thread shows it."""
    if found is None:
        # Threads that native code started are known to Python only by the calls that they make.
        is_native = type(threading.current_thread()).__name__ == "_DummyThread"
        return UserLine(None, AUTOGRAD_THREAD if is_native else NO_USER_FRAME)
    code = found.f_code
    return UserLine(
        CodeFrame(file=code.co_filename, line=found.f_lineno, function=code.co_name, owner="user"),
        None,
    )

"""The line of the user's code that called a framework, and the names of its variables."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from inspect import CO_OPTIMIZED, getattr_static
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tputui.observers.source_code import source_code
from tputui.telemetry.events import ChangedInput, CodeFrame, FrameOwner
from tputui.telemetry.stack_frames import owner_of

FRAMES_MAX = 200
"""Calls that are examined, from the innermost one; a recursion of the user may be deeper."""
AUTOGRAD_THREAD = "autograd thread: the backward pass runs in a thread without calls of Python code"
_OWN_REFERENCES = 3
"""Of the copies of a call's variables: its own, and those of `local_variables` and of `getrefcount`."""
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


def callers(frame: FrameType | None, most: int = FRAMES_MAX) -> Iterator[FrameType]:
    """A frame and those of its callers, innermost first, as many as `most`."""
    for _ in range(most):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's code among a frame and its callers, innermost first."""
    return (caller for caller in callers(frame) if is_user_file(caller.f_code.co_filename))


def code_of(function: Any) -> CodeType | None:
    """The code of a function, or of an object that is called; None if it is not written in Python."""
    code = getattr(function, "__code__", None) or getattr(getattr_static(function, "__call__", None), "__code__", None)
    return code if isinstance(code, CodeType) else None


def user_line(frame: FrameType | None) -> UserLine:
    """The innermost line of the user's code at a frame or its callers."""
    return line_of(next(user_frames(frame), None))


def line_of(frame: FrameType | None) -> UserLine:
    """The line of a frame of the user's code; if there is none, why, as far as the calling thread shows it."""
    if frame is None:
        # Threads that native code started are known to Python only by the calls that they make.
        is_native = type(threading.current_thread()).__name__ == "_DummyThread"
        return UserLine(None, AUTOGRAD_THREAD if is_native else NO_USER_FRAME)
    code = frame.f_code
    return UserLine(user_code(code.co_filename, frame.f_lineno, code.co_name), None)


def user_code(file: str, line: int, function: str) -> CodeFrame:
    """A line of the user's code, with its text."""
    return CodeFrame(file=file, line=line, function=function, owner="user", code=source_code(file, line))


TENSORS_MAX = 64
ITEMS_MAX = 16
"""Items of a list or a dictionary that are examined."""
DEPTH_MAX = 2
_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "s64", "int32": "s32",
    "int16": "s16", "int8": "s8", "uint8": "u8", "bool": "pred",
}  # fmt: skip
Specs = dict[str, str]
"""Type and shape as `f32[8,28]`, by the name of the variable."""


def specs_of(frames: Iterable[FrameType]) -> Specs:
    """The tensors in the variables of calls that need no gradient, such as batches; those of inner calls count.

    Those on XLA devices come first: a program has no other inputs.
    """
    on_device: Specs = {}
    others: Specs = {}
    for frame in frames:
        for name, tensor in _tensors(frame):
            if len(on_device) + len(others) >= TENSORS_MAX:
                break
            if not tensor.requires_grad and name not in on_device and name not in others:
                (on_device if tensor.device.type == "xla" else others)[name] = spec_of(tensor)
    return on_device | others


def xla_tensors(frames: Iterable[FrameType]) -> list[Any]:
    """The tensors on XLA devices in the variables of calls."""
    tensors = [tensor for frame in frames for _, tensor in _tensors(frame) if tensor.device.type == "xla"]
    return tensors[:TENSORS_MAX]


def spec_of(tensor: Any) -> str:
    """Type and shape of a tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{_SHORT.get(dtype, dtype)}[{','.join(map(str, tensor.shape))}]"


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[ChangedInput]:
    """The variables that had another type or shape."""
    return [
        ChangedInput(name=name, before=before[name], now=spec)
        for name, spec in now.items()
        if name in before and before[name] != spec
    ]


def local_variables(frame: FrameType) -> Mapping[str, Any]:
    """The variables of a call. Before Python 3.13 a call keeps what it copies for `f_locals`, such as the tensors of a
    step, until the next look; these copies are dropped, unless the program holds them as its `locals()`."""
    variables = frame.f_locals
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return variables  # Of a module, these are no copies.
    copied = dict(variables)
    # What a trace function leaves there becomes the variables again.
    is_traced = sys.gettrace() is not None or sys.getprofile() is not None
    if sys.version_info < (3, 13) and not is_traced and sys.getrefcount(variables) <= _OWN_REFERENCES:
        variables.clear()
    return copied


def _tensors(frame: FrameType) -> Iterator[tuple[str, Any]]:
    tensor_type: Any = sys.modules["torch"].Tensor
    for name, value in local_variables(frame).items():
        if not name.startswith("__"):
            yield from _in_value(name, value, tensor_type, 0)


def _in_value(name: str, value: Any, tensor_type: Any, depth: int) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if issubclass(kind, tensor_type):
        yield name, value
    elif depth < DEPTH_MAX and kind in (list, tuple):
        for place, item in enumerate(value[:ITEMS_MAX]):
            yield from _in_value(f"{name}[{place}]", item, tensor_type, depth + 1)
    elif depth < DEPTH_MAX and kind is dict:
        for key, item in list(value.items())[:ITEMS_MAX]:
            yield from _in_value(
                f"{name}[{key!r}]" if type(key) in (str, int) else f"{name}[...]", item, tensor_type, depth + 1
            )

"""Counts training steps while it is armed, for a program that does not report them.

A line of code is compared with the steps around it. `LoopCounter` counts, with Python's trace function, the iterations
of the loops on the stack, and how often the user's code that calls a compiled function ran. It slows every call of
Python code, so it is armed for a moment only.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from time import perf_counter
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from tputui.observers.user_frames import callers, is_user_file

FRAMES_MAX = 60
"""Calls whose loops are counted, from the innermost one."""
_LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_CALL = 0
"""Stands for the call of a function where its loops have a line."""


class Loop(NamedTuple):
    """A loop in the instructions of a function."""

    first: int
    """Offset of its first instruction."""
    last: int
    """Offset of the instruction that jumps back."""
    line: int
    """Line that runs once per iteration."""


class LoopCounter:
    """Counts steps in the calls of one thread. Does not count while a debugger or coverage traces."""

    def __init__(self, frame: FrameType, max_s: float) -> None:
        """Starts to count in the loops around the current instruction of `frame` and of its callers, and in all code of
        the user that is called later. After `max_s` seconds it stops by itself.
        """
        self._counts: Counter[tuple[CodeType, int]] = Counter()
        self._steps: dict[tuple[CodeType, int], bool] = {}
        """Whether a loop, or a function outside of its loops, calls a compiled function."""
        self._frames: list[FrameType] = []
        self._libraries: set[str] = set()
        """Files that contain no code of the user."""
        self._deadline = perf_counter() + max_s
        self._thread = threading.get_ident()
        self.is_counting = sys.gettrace() is None
        if not self.is_counting:
            return
        for caller in callers(frame, FRAMES_MAX):
            self._frames.append(caller)
            caller.f_trace = self._on_event
        sys.settrace(self._on_call)

    def stop(self) -> None:
        """Stops counting. Only in the thread that started it."""
        if not self.is_counting or self._thread != threading.get_ident():
            return
        self.is_counting = False
        if sys.gettrace() == self._on_call:
            sys.settrace(None)
        for frame in self._frames:
            if frame.f_trace == self._on_event:
                frame.f_trace = None
        self._frames.clear()

    def steps(self, frame: FrameType) -> int:
        """Steps since the start, as a call sees them; 0 if there is no loop.

        They are the iterations of the loop around the call that ran most often, or the calls of compiled functions, if
        these are more: they may be in another loop than the call. If no call of a compiled function is recognised, all
        loops of the user count.
        """
        around = 0
        for caller in callers(frame, FRAMES_MAX):
            for loop in loops_of(caller.f_code):
                if loop.first <= caller.f_lasti <= loop.last:
                    around = max(around, self._counts[caller.f_code, loop.line])
        if not around:
            return 0
        places = [place for place, is_step in self._steps.items() if is_step]
        return max([around, *(self._counts[place] for place in places or self._counts if places or place[1] != _CALL)])

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file in self._libraries:
            return None
        if not is_user_file(file):
            self._libraries.add(file)
            return None
        self._count(frame, _CALL)
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno in _headers_of(frame.f_code):
            self._count(frame, frame.f_lineno)
            if perf_counter() > self._deadline:
                self.stop()
        return self._on_event if self.is_counting else None

    def _count(self, frame: FrameType, line: int) -> None:
        place = (frame.f_code, line)
        self._counts[place] += 1
        if place not in self._steps:
            self._steps[place] = any(_is_compiled(value) for value in _called(frame, line))


@lru_cache(maxsize=512)
def loops_of(code: CodeType) -> tuple[Loop, ...]:
    """The loops of a function: ranges of instructions that end with a jump back."""
    lines: dict[int, int] = {}
    last_of: dict[int, int] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        position = instruction.positions
        if position is not None and position.lineno is not None:
            line = position.lineno
        lines[instruction.offset] = line
        if "JUMP_BACKWARD" in instruction.opname:  # `continue` jumps back as well
            last_of[instruction.argval] = instruction.offset
    return tuple(Loop(first, last, lines.get(first, line)) for first, last in sorted(last_of.items()))


@lru_cache(maxsize=512)
def _headers_of(code: CodeType) -> frozenset[int]:
    return frozenset(loop.line for loop in loops_of(code))


@lru_cache(maxsize=512)
def _names_in(code: CodeType, line: int) -> frozenset[tuple[str, str]]:
    """Variables that a loop loads, outside of the loops in it, each with the attribute of it that is loaded, if any.

    With `_CALL` for the line: those that a function loads outside of its loops.
    """
    loops = loops_of(code)
    names: set[tuple[str, str]] = set()
    variable = ""
    for instruction in dis.get_instructions(code):
        around = [loop for loop in loops if loop.first <= instruction.offset <= loop.last]
        innermost = min(around, key=lambda loop: loop.last - loop.first).line if around else _CALL
        is_attribute = bool(variable) and instruction.opname in _ATTRIBUTES
        if innermost == line and is_attribute:
            names.add((variable, str(instruction.argval)))
        variable = str(instruction.argval) if instruction.opname in _LOADS else ""
        if innermost == line and variable:
            names.add((variable, ""))
    return frozenset(names)


def _called(frame: FrameType, line: int) -> Iterator[Any]:
    """The values that a loop or a function may call, as far as its instructions name them."""
    names = _names_in(frame.f_code, line)
    local_values = frame.f_locals if names else {}
    for variable, attribute in names:
        value = local_values.get(variable, frame.f_globals.get(variable))
        if not attribute:
            yield value
        elif not isinstance(value, ModuleType) or is_user_file(getattr(value, "__file__", None) or "<builtin>"):
            # No property of the user is called.
            yield getattr(value, "__dict__", {}).get(attribute, getattr(type(value), "__dict__", {}).get(attribute))


def _is_compiled(value: Any) -> bool:
    """Whether a value is a compiled function, such as `jax.jit` and its wrappers in other libraries return."""
    return "jit" in type(value).__name__.lower()

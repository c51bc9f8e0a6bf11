"""Marks the operations of a graph with the call of torch that they come from, and its line in the user's code.

The runtime records the innermost call of Python code as the line of an operation, which is in torch for `x ** y` and
most functions. It also records in which scope of the profiler an operation was made: each call gets one of its own.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any, NamedTuple

from tputui.observers.xla_runtime import XlaRuntime
from tputui.telemetry.events import CodeFrame

CALLS_MAX = 10_000
"""Most calls that are distinguished at a time."""
_SCOPE = re.compile(r"\btputui_(\d+)")


class Call(NamedTuple):
    """A call of torch."""

    function: str
    """The function of torch, as `layer_norm`."""
    frame: CodeFrame
    """The innermost line of the user that led to it."""
    is_direct: bool
    """Whether this line calls the function itself, not by a library."""


class CallScopes:
    """The scopes of the calls of all threads."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._numbers = count()
        """None is used twice: operations of an earlier window may be a part of a later graph."""
        self._known: dict[Call, int] = {}
        self._calls: dict[int, Call] = {}

    def open(self, call: Call) -> Any:
        """Marks what the calling thread adds to the graph, as long as the result is referenced; None if there are too
        many different calls. No sync may run meanwhile."""
        number = self._known.get(call)
        if number is None:
            if len(self._known) >= CALLS_MAX:
                return None
            number = self._known[call] = next(self._numbers)
            self._calls[number] = call
        return self._runtime.open_scope(f"tputui_{number}")

    def call_of(self, scopes: str) -> Call | None:
        """The call that an operation comes from, by the names of the scopes in which it was made."""
        found = _SCOPE.search(scopes)
        return self._calls.get(int(found.group(1)[:9])) if found is not None else None

    def forget(self) -> None:
        """Frees the calls."""
        self._known.clear()
        self._calls.clear()

"""Callbacks of JAX: Python functions that a compiled program calls on the host, by the line that adds them to it.

`io_callback`, `pure_callback`, `jax.debug.callback` and `jax.debug.print` are timed. What they read from their
arguments is no read of the program's loop. Every hook is optional, since these parts of JAX change between versions.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from tputui.observers.sinks import observes_all, process_sink
from tputui.observers.user_frames import NO_USER_FRAME, UserLine, user_line
from tputui.telemetry.events import SyncObserved

REPORT_S = 10.0
"""Time for which the calls at a line are combined."""
REPORT_ALL_S = 1.0
"""The same in a process that is observed in all steps."""
LINES_MAX = 256
IO, PURE, DEBUG, PRINT = "io_callback", "pure_callback", "jax.debug.callback", "jax.debug.print"
_IMPLEMENTATIONS = (
    ("jax._src.callback", "", "io_callback_impl", IO),
    ("jax._src.callback", "", "pure_callback_impl", PURE),
    ("jax._src.debugging", "debug_callback_p", "impl", DEBUG),
)
"""Functions of JAX that run a callback: module, object in it, name, and the operation of the user."""


class _Kind(NamedTuple):
    """A callback of the user."""

    operation: str
    line: UserLine


class _Calls:
    """Calls of one callback since they were last reported."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.since = perf_counter()


class JaxCallbacks:
    """Reports the time in callbacks."""

    def __init__(self, pause_reads: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """`pause_reads`: while it is entered, the calling thread reports no reads."""
        self._pause_reads = pause_reads
        self._report_s = REPORT_ALL_S if observes_all() else REPORT_S
        # A signal handler may run a callback while the thread that it interrupts holds the lock.
        self._lock = threading.RLock()
        self._calls: dict[_Kind, _Calls] = {}
        self._lines: dict[Any, UserLine] = {}
        """By the function of the user, or by the format of `jax.debug.print`."""
        for name, part, function, operation in _IMPLEMENTATIONS:
            owner: Any = sys.modules.get(name)
            owner = getattr(owner, part, None) if part else owner
            if (original := getattr(owner, function, None)) is not None:
                setattr(owner, function, self._timed(original, operation))
        self._follow(sys.modules.get("jax._src.callback"), "_FlatCallback")
        self._follow(sys.modules.get("jax._src.debugging"), "_split_callback_args")
        process_sink.before_close(self._flush)

    def after_fork(self) -> None:
        """In a forked child: another thread, which does not exist here, may have held the lock."""
        self._lock = threading.RLock()

    def _follow(self, module: Any, name: str) -> None:
        """Notes the line of the user at which JAX wraps a callback, which is while it traces the program."""
        original = getattr(module, name, None)
        if original is None:
            return

        @functools.wraps(original, updated=())
        def made(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                caller = sys._getframe(1)
                found = caller.f_locals.get("fmt", caller.f_locals.get("callback"))
                if len(self._lines) < LINES_MAX and (line := user_line(caller)).frame is not None:
                    self._lines[found] = line
            return original(*args, **kwargs)

        setattr(module, name, made)

    def _kind_of(self, operation: str, wrapped: Any) -> _Kind:
        """What the user called, and where, from the object that JAX calls."""
        called = getattr(wrapped, "callback_func", None)
        if called is None and "callback" in wrapped.__code__.co_freevars:
            called = wrapped.__closure__[wrapped.__code__.co_freevars.index("callback")].cell_contents
        if isinstance(called, functools.partial) and called.func.__name__ == "_format_print_callback":
            operation, called = PRINT, called.args[0]
        return _Kind(operation, self._lines.get(called, UserLine(None, NO_USER_FRAME)))

    def _timed(self, run: Callable[..., Any], operation: str) -> Callable[..., Any]:
        @functools.wraps(run)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            try:
                with self._pause_reads():
                    return run(*args, **kwargs)
            finally:
                with contextlib.suppress(Exception):
                    self._count(operation, kwargs.get("callback"), perf_counter() - start)

        return timed

    def _count(self, operation: str, callback: Any, seconds: float) -> None:
        kind = self._kind_of(operation, callback)
        with self._lock:
            calls = self._calls.setdefault(kind, _Calls())
            calls.count += 1
            calls.seconds += seconds
            if perf_counter() - calls.since >= self._report_s:
                self._report(kind, self._calls.pop(kind))

    def _flush(self) -> None:
        with self._lock:
            waiting, self._calls = self._calls, {}
            for kind, calls in waiting.items():
                self._report(kind, calls)

    def _report(self, kind: _Kind, calls: _Calls) -> None:
        event = SyncObserved(
            t=time.time(),
            runtime="jax",
            operation=kind.operation,
            user_frame=kind.line.frame,
            line_reason=kind.line.reason,
            count=calls.count,
            waited_s=calls.seconds,
            steps=calls.count,
            window_s=perf_counter() - calls.since,
        )
        process_sink.emit(event)

"""Reads of values from the device in JAX, by line of code.

JAX has no counter of them, so the places through which values leave the device are hooked: a property and a method of
JAX's arrays, which adds a few microseconds to a read. On the CPU backend numpy reads the memory of an array past these
hooks, so `np.asarray` and `np.array` are hooked as well, for a limited time.

A read is no fault by itself: how often it occurs per step decides. When a line has read several times, the loops around
it are counted for a moment (`LoopCounter`). If it reads in most steps, all its later reads are reported too, with as
many steps as they had in that moment.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tputui.observers.loop_counter import LoopCounter
from tputui.observers.numpy_hook import NumpyHook
from tputui.observers.sinks import observes_all, process_sink
from tputui.observers.user_frames import callers, line_of, user_frames
from tputui.telemetry.events import ObservationEnded, SyncObserved

ARMED_AFTER = 6
"""Reads at a line after which the loops around it are counted: the first ones belong to warm-up."""
WINDOW_READS = 12
"""Reads at that line after which counting ends, ..."""
WINDOW_S = 5.0
"""... and time after which it ends at the latest."""
REST_S = 10.0
"""Time until the same line is counted again; it doubles each time."""
NUMPY_S = 60.0
"""Time for which functions of numpy are hooked on the CPU backend."""
RARE_STEPS = 5
"""A line that reads once in more steps than this is not reported."""
REPORT_S = 10.0
"""Time for which the reads of a line are combined outside of windows."""
REPORT_ALL_S = 1.0
"""The same in a process that is observed in all steps."""
INTERVALS_KEPT = 16
LINES_MAX = 1024
_NUMPY = ("asarray", "array")
_OPERATIONS = {
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "int()",
    "__bool__": "if array",
    "__complex__": "complex()",
    "__repr__": "print()",
    "__str__": "print()",
    "__format__": "format()",
    "__array__": "np.asarray()",
    "tolist": ".tolist()",
    "tobytes": ".tobytes()",
    "item": ".item()",
    "device_get": "jax.device_get()",
}
_TO_TEXT = ("print()", "format()")

_take_value: Callable[..., None] | None = None


def report_values_to(take: Callable[..., None]) -> None:
    """Calls `take` for every value that is read: with the call of the user's code, the array, its value, and
    `is_printed`, whether it was read to be text."""
    global _take_value
    _take_value = take


class _Line:
    """Reads at a line of code so far."""

    def __init__(self) -> None:
        self.count = 0
        self.rest_s = REST_S
        self.next_window = 0.0
        self.times: deque[float] = deque(maxlen=INTERVALS_KEPT)
        """Times of the newest reads outside of windows."""
        self.in_window: _Reads | None = None
        """Reads in the newest window, if it reads in most steps."""
        self.later = 0
        self.later_waited_s = 0.0
        self.since = 0.0

    def add_later(self, waited_s: float, now: float) -> None:
        """Counts a read outside of windows."""
        self.times.append(now)
        if self.in_window is not None:
            self.later += 1
            self.later_waited_s += waited_s

    def take_later(self, now: float) -> SyncObserved | None:
        """The reads outside of windows since the last call; None if there are none."""
        reads = self.in_window
        if reads is None or not self.later:
            return None
        steps = round(self.later * reads.steps / reads.count)
        event = reads.event(self.later, self.later_waited_s, max(1, steps), now - self.since)
        self.later, self.later_waited_s, self.since = 0, 0.0, now
        return event


class _Reads:
    """Reads of one line in a window."""

    def __init__(self, frame: FrameType, operation: str) -> None:
        self.line = line_of(frame)
        self.operation = operation
        self.count = 0
        self.waited_s = 0.0
        self.steps = 0
        self.gaps: deque[int] = deque(maxlen=INTERVALS_KEPT)
        """Steps from one read to the next."""

    @property
    def is_regular(self) -> bool:
        """Whether about as many steps lie between all reads, as they do not if an evaluation reads for each batch."""
        return max(self.gaps, default=0) <= 2 * max(1.0, median(self.gaps or [0]))

    def event(self, count: int, waited_s: float, steps: int, window_s: float) -> SyncObserved:
        return SyncObserved(
            t=time.time(),
            runtime="jax",
            operation=self.operation,
            user_frame=self.line.frame,
            line_reason=self.line.reason,
            count=count,
            waited_s=waited_s,
            steps=steps,
            window_s=window_s,
        )


class _Key(NamedTuple):
    code: CodeType
    line: int


class _Window:
    """A time in which the loops of a thread are counted."""

    def __init__(self, key: _Key, frame: FrameType, operation: str) -> None:
        self.key = key
        self.thread = threading.get_ident()
        self.why = f"{operation} in line {key.line} read a value {ARMED_AFTER} times"
        self.began = perf_counter()
        self.loops = LoopCounter(frame, WINDOW_S)
        self.reads: dict[_Key, _Reads] = {}


class JaxReads:
    """Reports lines that read values from the device."""

    def __init__(self, array: Any) -> None:
        """`array` is JAX's class of arrays."""
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._lines: dict[_Key, _Line] = {}
        self._window: _Window | None = None
        self._array = array
        self._report_s = REPORT_ALL_S if observes_all() else REPORT_S
        self._hook_value()
        self._hook_item()
        self._device = ""
        """The backend, in capitals."""
        self._numpy_until = 0.0
        self._numpy_hooks: list[NumpyHook] = []
        process_sink.before_close(self._end_at_exit)

    def on_backend(self, name: str) -> None:
        """Called once JAX computes on a backend."""
        self._device = name.upper()
        if name == "cpu":
            self._hook_numpy()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Reports no reads of the calling thread meanwhile."""
        before = getattr(self._inside, "is_reading", False)
        self._inside.is_reading = True
        try:
            yield
        finally:
            self._inside.is_reading = before

    def _hook_value(self) -> None:
        read = self._array.__dict__["_value"].fget
        inside, observe = self._inside, self._observe

        def value(array: Any) -> Any:
            if getattr(array, "_npy_value", None) is not None or getattr(inside, "is_reading", False):
                return read(array)
            start = perf_counter()
            result = read(array)
            observe(perf_counter() - start, sys._getframe(1), None, array, result)
            return result

        self._array._value = property(value, doc=self._array.__dict__["_value"].__doc__)

    def _hook_item(self) -> None:
        self._array.item = self._timed(self._array.item, ".item()", lambda _: True)

    def _hook_numpy(self) -> None:
        """Hooks functions of numpy; not if numba is in use, which recognises them by identity."""
        numpy = sys.modules.get("numpy")
        if numpy is None or "numba" in sys.modules:
            return
        self._numpy_until = perf_counter() + NUMPY_S
        for name in _NUMPY:
            observe = functools.partial(self._timed, operation=f"np.{name}()", is_read=self._is_numpy_read)
            self._numpy_hooks.append(NumpyHook(name, observe))

    def _is_numpy_read(self, value: Any) -> bool:
        if perf_counter() > self._numpy_until or "numba" in sys.modules:
            self._unhook_numpy()
        return type(value) is self._array

    def _unhook_numpy(self) -> None:
        while self._numpy_hooks:
            self._numpy_hooks.pop().remove()

    def _timed(self, function: Callable[..., Any], operation: str, is_read: Callable[[Any], bool]) -> Any:
        inside, observe = self._inside, self._observe

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not args or not is_read(args[0]) or getattr(inside, "is_reading", False):
                return function(*args, **kwargs)
            inside.is_reading, result = True, None
            start = perf_counter()
            try:
                result = function(*args, **kwargs)
                return result
            finally:
                inside.is_reading = False
                observe(perf_counter() - start, sys._getframe(1), operation, args[0], result)

        return timed

    def _observe(self, waited_s: float, frame: FrameType, operation: str | None, array: Any, value: Any) -> None:
        """Counts a read; arms and disarms the counting of loops. `value` was read from `array`; None if that failed."""
        # A read by a signal handler meanwhile would wait for the lock forever.
        self._inside.is_reading = True
        try:
            # The value was read; the program goes on whatever happens here.
            with contextlib.suppress(Exception):
                if (user := next(user_frames(frame), None)) is not None:
                    self._count(waited_s, frame, user, operation)
                    if value is not None and _take_value is not None:
                        is_printed = (operation or _operation(frame, user)) in _TO_TEXT
                        _take_value(user, array, value, is_printed=is_printed)
        finally:
            self._inside.is_reading = False

    def after_fork(self) -> None:
        """In a forked child, such as a worker of a data loader: ends what was armed. Another thread, which does not
        exist here, may have held the lock."""
        self._lock = threading.Lock()
        window, self._window = self._window, None
        if window is not None:
            window.loops.stop()

    def _count(self, waited_s: float, frame: FrameType, user: FrameType, operation: str | None) -> None:
        key = _Key(user.f_code, user.f_lineno)
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                if len(self._lines) >= LINES_MAX:
                    return
                line = self._lines[key] = _Line()
            line.count += 1
            now, window = perf_counter(), self._window
            if window is None or window.thread != threading.get_ident():
                line.add_later(waited_s, now)
                if now >= line.since + self._report_s and (event := line.take_later(now)) is not None:
                    process_sink.emit(event)
                if window is None and line.count >= ARMED_AFTER and now >= line.next_window:
                    self._window = _Window(key, user, operation or _operation(frame, user))
                elif window is not None and now > window.began + WINDOW_S:
                    self._end(window)
                return
            reads = window.reads.get(key)
            if reads is None:
                reads = window.reads[key] = _Reads(user, operation or _operation(frame, user))
            reads.count += 1
            reads.waited_s += waited_s
            steps = max(reads.steps, window.loops.steps(user))
            reads.gaps.append(steps - reads.steps)
            reads.steps = steps
            own_reads = window.reads.get(window.key)
            if (own_reads is not None and own_reads.count >= WINDOW_READS) or not window.loops.is_counting:
                self._end(window)

    def _end(self, window: _Window) -> None:
        """Stops counting, and reports the lines that read in a loop."""
        window.loops.stop()
        self._window = None
        now = perf_counter()
        steady_step_s = _steady_step_s(self._lines[window.key].times, window.reads.get(window.key))
        for key in {window.key, *window.reads}:
            line, reads = self._lines[key], window.reads.get(key)
            if (event := line.take_later(window.began)) is not None:
                process_sink.emit(event)
            line.next_window, line.rest_s, line.since = now + line.rest_s, 2 * line.rest_s, now
            line.times.clear()
            line.in_window = reads if reads is not None and 0 < reads.steps <= RARE_STEPS * reads.count else None
            if line.in_window is not None:
                in_window = line.in_window
                process_sink.emit(
                    in_window.event(in_window.count, in_window.waited_s, in_window.steps, now - window.began)
                )
        process_sink.emit(
            ObservationEnded(
                t=time.time(),
                runtime="jax",
                why=window.why,
                steps=max((reads.steps for reads in window.reads.values()), default=0),
                window_s=now - window.began,
                steady_step_s=steady_step_s,
                device=self._device,
            )
        )

    def _end_at_exit(self) -> None:
        with self._lock:
            if self._window is not None:
                self._end(self._window)
            now = perf_counter()
            for line in self._lines.values():
                if (event := line.take_later(now)) is not None:
                    process_sink.emit(event)


def _steady_step_s(times: Sequence[float], reads: _Reads | None) -> float | None:
    """Time of a step, from the times between the reads before a window; None if there were too few, or if these say
    nothing about the steps between reads."""
    if reads is None or not reads.steps or not reads.is_regular or len(times) < 3:
        return None
    return median(later - before for before, later in pairwise(times)) * reads.count / reads.steps


def _operation(frame: FrameType | None, user: FrameType) -> str:
    """How a value was read: the name of the call that the user's code made."""
    name = ""
    for caller in callers(frame):
        if caller is user:
            break
        name = caller.f_code.co_name
    return _OPERATIONS.get(name, f"{name}()" if name else "read")

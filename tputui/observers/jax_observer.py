"""Observes programs of JAX: what they compile, with the reason, and callbacks to the host.

The first compilation of a function is warm-up. A later one is not, and neither is the compilation of a function that a
line defines again after the earlier ones are gone: a new lambda in each step is never found in JAX's cache.

`io_callback`, `pure_callback`, `jax.debug.callback` and `jax.debug.print` are timed. What they read from their
arguments is no read of the program's loop. Every hook is optional, since these parts of JAX change between versions.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

from tputui.observers import jax_programs
from tputui.observers.jax_dispatch import JaxDispatches
from tputui.observers.jax_reads import JaxReads
from tputui.observers.sinks import CompileReports, attaching, observes_all, process_sink
from tputui.observers.user_frames import NO_USER_FRAME, UserLine, callers, code_of, user_line
from tputui.telemetry.events import (
    ChangedInput,
    CodeFrame,
    CompileObserved,
    SyncObserved,
    TensorSpec,
    TopologyDeclared,
)
from tputui.telemetry.stack_frames import owner_of

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


class _UserCallback(NamedTuple):
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
        self._calls: dict[_UserCallback, _Calls] = {}
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
                callback = caller.f_locals.get("fmt", caller.f_locals.get("callback"))
                if len(self._lines) < LINES_MAX and (line := user_line(caller)).frame is not None:
                    self._lines[callback] = line
            return original(*args, **kwargs)

        setattr(module, name, made)

    def _kind_of(self, operation: str, wrapped: Any) -> _UserCallback:
        """What the user called, and where, from the object that JAX calls."""
        called = getattr(wrapped, "callback_func", None)
        if called is None and "callback" in wrapped.__code__.co_freevars:
            called = wrapped.__closure__[wrapped.__code__.co_freevars.index("callback")].cell_contents
        if isinstance(called, functools.partial) and called.func.__name__ == "_format_print_callback":
            operation, called = PRINT, called.args[0]
        return _UserCallback(operation, self._lines.get(called, UserLine(None, NO_USER_FRAME)))

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

    def _report(self, kind: _UserCallback, calls: _Calls) -> None:
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


PREFIX = "TRACING CACHE MISS"
"""Begins every explanation."""
TEXT_CHARS_MAX = 20_000
CHANGES_MAX = 16
VALUE_CHARS_MAX = 200
_FOR = re.compile(r"^\s*for (\S+)", re.MULTILINE)
_NEVER_SEEN = re.compile(r"never seen function:\s+(\S+)")
_CHANGE = re.compile(r"\* at (?P<name>.{1,300}?), now (?P<now>.*?) and before (?P<before>.*)$", re.MULTILINE)
_CHANGE_BEFORE_0_5 = re.compile(
    r"\* at (?P<name>.{1,300}?), seen (?P<before>.*?), but now given (?P<now>.*)$", re.MULTILINE
)
_CONTEXT = re.compile(r"\* (?P<name>.{1,300}?) differs: now (?P<now>.*?) and before (?P<before>.*)$", re.MULTILINE)
_PATH = re.compile(r"^input path \[([01])\](.*)$")
_REASON = re.compile(r", so (?:the|that) .*$")
_LINK = re.compile(r"https?://\S*$")
_STATIC = re.compile(r"^.*\bStatic\(val=(.*)\)$")
_CLASS = re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>")


class Explanation(NamedTuple):
    """Why JAX traced a function."""

    function: str
    """Name of the function; empty if unknown."""
    is_new: bool
    """Whether JAX sees this function object for the first time."""
    changed: list[ChangedInput]
    """Inputs that differ from the most similar earlier call; empty if none are named."""


def parse(text: str) -> Explanation | None:
    """The content of an explanation; None if the text is something else."""
    text = text[:TEXT_CHARS_MAX]
    if not text.startswith(PREFIX):
        return None
    new, seen = _NEVER_SEEN.search(text), _FOR.search(text)
    function_match = new or seen
    changed: list[ChangedInput] = []
    for pattern in (_CHANGE, _CHANGE_BEFORE_0_5, _CONTEXT):
        for match in pattern.finditer(text):
            if len(changed) < CHANGES_MAX:
                changed.append(_changed_input(match["name"], match["before"], match["now"]))
    return Explanation(function_match.group(1) if function_match else "", new is not None, changed)


def _changed_input(name: str, before: str, now: str) -> ChangedInput:
    path = _PATH.match(name)
    if path:
        name = ("kwargs" if path.group(1) == "1" else "args") + path.group(2)
    return ChangedInput(name=name[:VALUE_CHARS_MAX], before=_value(before), now=_value(now))


def _value(text: str) -> str:
    """A value without the words around it: `Static(val=3)` is 3."""
    text = _LINK.sub("", _REASON.sub("", text)).strip()
    static = _STATIC.match(text)
    return (static.group(1) if static else _CLASS.sub(r"\1", text))[:VALUE_CHARS_MAX]


EXPLAINED_MAX = 64
"""Late compilations after which JAX is no longer asked to explain them: it compares all earlier calls of a function."""
EAGER_FIRST_MAX = 16
"""Compilations of one operation at one line, outside of a compiled function, that count as warm-up: a program creates
its parameters in many shapes."""
LIVE_FIRST_MAX = 32
"""Compilations of functions that one line defined and that are still in use, such as layers, that count as warm-up."""
_BACKEND = "/jax/core/compile/backend_compile_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_PARTS = ("/jax/core/compile/jaxpr_trace_duration", _LOWERED)
_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"
_LOGGERS = ("jax._src.interpreters.partial_eval", "jax._src.pjit")
_CACHE_LOGGER = "jax._src.compiler"
_CACHE_TEXTS = ("PERSISTENT COMPILATION CACHE MISS", "Not writing persistent cache entry")
_EXPLAIN = "jax_explain_cache_misses"
_FRAMES_MAX = 40


class _Pending(threading.local):
    """The compilation that a thread is in."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.explanations: list[Explanation] = []
        self.cached: bool | None = None
        self.donations: list[TensorSpec] = []


class _Program:
    """The functions that one line of code defined, or an operation at one line."""

    def __init__(self) -> None:
        self.compiled = 0
        self.functions: list[weakref.ref[Any]] = []


class JaxCompiles:
    """Reports the compilations of this process."""

    def __init__(self, jax: Any, on_backend: Callable[[str], None], on_compiled: Callable[[], None]) -> None:
        """`on_backend` is called with the name of the backend, at the first compilation; `on_compiled` at each."""
        self._on_any = on_compiled
        self._backend: Callable[[], str] | None = getattr(jax, "default_backend", None)
        self._devices: Callable[[], list[Any]] = jax.devices
        self._on_backend = on_backend
        self._config = jax.config
        self._reports = CompileReports(process_sink.emit)
        process_sink.before_close(self._flush)
        self._pending = _Pending()
        # A signal handler may compile while the thread that it interrupts holds the lock.
        self._lock = threading.RLock()
        self._programs: dict[tuple[object, ...], _Program] = {}
        self._late = 0
        self._explains_for_user = bool(getattr(jax.config, _EXPLAIN, False))
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        self._filters = [(name, _Filter(self._on_message)) for name in _LOGGERS]
        self._filters.append((_CACHE_LOGGER, _Filter(self._on_cache_message)))
        for name, added in self._filters:
            logging.getLogger(name).addFilter(added)
        self._explain(True)

    def _explain(self, on: bool) -> None:
        """Switches JAX's explanations on or off, unless the user did."""
        if not self._explains_for_user and hasattr(self._config, _EXPLAIN):
            self._config.update(_EXPLAIN, on)

    def _on_message(self, record: logging.LogRecord) -> bool:
        """Takes an explanation; returns whether the user asked for it."""
        explanation = parse(record.getMessage())
        if explanation is None:
            return True
        if len(self._pending.explanations) < EXPLAINED_MAX:
            self._pending.explanations.append(explanation)
        return self._explains_for_user

    def _on_cache_message(self, record: logging.LogRecord) -> bool:
        """Messages of the persistent cache are shown only if the user asked for explanations."""
        return self._explains_for_user or not str(record.msg).startswith(_CACHE_TEXTS)

    def _on_event(self, event: str, **_: Any) -> None:
        if event in (_HIT, _MISS):
            self._pending.cached = event == _HIT

    def _on_duration(self, event: str, seconds: float, **facts: Any) -> None:
        if event in _PARTS:
            self._pending.seconds += seconds
            if event == _LOWERED:
                with contextlib.suppress(Exception):
                    self._pending.donations = jax_programs.unused_donations(sys._getframe(1))
        elif event == _BACKEND:
            try:
                if self._backend is not None:
                    backend, self._backend = self._backend, None
                    self._on_backend(backend())
                    _declare(self._devices())
                self._on_any()
                self._on_compiled(seconds, str(facts.get("fun_name") or ""), sys._getframe(1))
            except Exception:  # noqa: BLE001, RUF100 - it would end the compilation
                pass

    def _on_compiled(self, seconds: float, name: str, frame: FrameType) -> None:
        pending = self._pending
        explanations, pending.explanations = pending.explanations, []
        seconds, pending.seconds = seconds + pending.seconds, 0.0
        cached, pending.cached = pending.cached, None
        donations, pending.donations = pending.donations, []
        name = name.removeprefix("jit(").removeprefix("pmap(").removesuffix(")") if "(" in name else name
        explanation = next((entry for entry in explanations if entry.function == name), None)
        line = user_line(frame)
        step = process_sink.step
        function = _function_at(frame)
        late = self._is_late(name, function, line.frame)
        if not late and is_users(function):
            with contextlib.suppress(Exception):
                if (program := jax_programs.observed(frame, name, line.frame, donations)) is not None:
                    process_sink.emit(program)
        if late:
            self._late += 1
            if self._late == EXPLAINED_MAX:
                self._explain(False)
        event = CompileObserved(
            t=time.time(),
            runtime="jax",
            program=name,
            cause="call",
            warm_up=not late,
            seconds=seconds,
            step=None if step is None else step + 1,
            user_frame=line.frame,
            line_reason=line.reason,
            changed_inputs=_changed(explanation, late),
            cached=cached,
        )
        with self._lock:
            self._reports.add(event)

    def _flush(self) -> None:
        with self._lock:
            self._reports.flush()

    def after_fork(self) -> None:
        """In a forked child: another thread, which does not exist here, may have held the lock."""
        self._lock = threading.RLock()

    def _is_late(self, name: str, function: Any, line: CodeFrame | None) -> bool:
        """Whether a compilation is not one of the first runs of a program; counts it."""
        code = code_of(function)
        key: tuple[object, ...] = (name, line.file, line.line) if line is not None else (name,)
        if code is not None and is_users(function):
            key = (code.co_filename, code.co_firstlineno, code.co_name)
        with self._lock:
            program = self._programs.setdefault(key, _Program())
            program.compiled += 1
            if not is_users(function):
                return program.compiled > EAGER_FIRST_MAX
            live = [earlier for earlier in (ref() for ref in program.functions) if earlier is not None]
            if any(earlier is function for earlier in live):
                return True
            program.functions = [weakref.ref(earlier) for earlier in live]
            with contextlib.suppress(TypeError):  # an object without weak references
                program.functions.append(weakref.ref(function))
            return program.compiled > 1 and (not live or program.compiled > LIVE_FIRST_MAX)


class _Filter(logging.Filter):
    """Passes each record to a function that returns whether it is shown."""

    def __init__(self, keep: Callable[[logging.LogRecord], bool]) -> None:
        super().__init__()
        self._keep = keep

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            return self._keep(record)
        except Exception:  # noqa: BLE001, RUF100 - it would end the compilation
            return True


def _declare(devices: list[Any]) -> None:
    """Reports the devices of the program. Called once a backend has started."""
    device = str(devices[0].platform).upper()
    event = TopologyDeclared(
        t=time.time(),
        strategy="script",
        device=device,
        chip=str(devices[0].device_kind) if device == "TPU" else None,
        num_cores=len(devices),
        num_hosts=1,
        host_index=0,
        cores=[],
    )
    process_sink.emit_alone(event)


def _changed(explanation: Explanation | None, late: bool) -> list[ChangedInput] | None:
    """The inputs that changed; None if they were not compared."""
    if explanation is None or not late:
        return None
    if explanation.is_new:
        return [ChangedInput(name="the function itself", before="defined in an earlier call", now="defined again")]
    return explanation.changed


def _function_at(frame: FrameType | None) -> Any:
    """The function that JAX compiles, from the calls of `jax.jit` on the stack; None if it is not found there."""
    frames = callers(frame, _FRAMES_MAX)
    found = (caller.f_locals.get("fun") for caller in frames if caller.f_code.co_filename.endswith("pjit.py"))
    return next((_unwrapped(function) for function in found if callable(function)), None)


def _unwrapped(function: Any) -> Any:
    """The function of the user inside of `jax.grad`, `functools.partial` and the like."""
    for _ in range(16):
        inner = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)
        if not callable(inner):
            return function
        function = inner
    return function


def is_users(function: Any) -> bool:
    """Whether a function is the user's, not an operation of JAX."""
    code = code_of(function)
    return code is not None and owner_of(code.co_filename) == "user"


_lock = threading.Lock()
_started: list[object] = []


def start() -> None:
    """Starts to observe; a second call does nothing."""
    jax = sys.modules.get("jax")
    with _lock:
        if jax is None or _started:
            return
        reads: JaxReads | None = None
        with attaching("jax", "jax", "reads"):
            reads = JaxReads(sys.modules["jax._src.array"].ArrayImpl)
            _started.append(reads)
            os.register_at_fork(after_in_child=reads.after_fork)
            callbacks = JaxCallbacks(reads.paused)
            _started.append(callbacks)
            os.register_at_fork(after_in_child=callbacks.after_fork)
        dispatches: JaxDispatches | None = None
        with attaching("jax", "jax", "dispatches"):
            dispatches = JaxDispatches()
            os.register_at_fork(after_in_child=dispatches.after_fork)
        with attaching("jax", "jax", "compilations"):
            compiles = JaxCompiles(
                jax,
                reads.on_backend if reads is not None else lambda _: None,
                dispatches.compiled if dispatches is not None else lambda: None,
            )
            _started.append(compiles)
            os.register_at_fork(after_in_child=compiles.after_fork)


def is_started() -> bool:
    """Whether this process is observed."""
    return bool(_started)

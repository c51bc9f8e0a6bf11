"""Compilations of JAX: times from `jax.monitoring`, changed inputs from the explanations of cache misses.

The first compilation of a function is warm-up. A later one is not, and neither is the compilation of a function that a
line defines again after the earlier ones are gone: a new lambda in each step is never found in JAX's cache.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from inspect import getattr_static
from types import CodeType, FrameType
from typing import Any

from tputui.observers import jax_messages
from tputui.observers.compile_reports import CompileReports
from tputui.observers.sinks import process_sink
from tputui.observers.user_frames import user_line
from tputui.telemetry.events import ChangedInput, CodeFrame, CompileObserved
from tputui.telemetry.stack_frames import owner_of

EXPLAINED_MAX = 64
"""Late compilations after which JAX is no longer asked to explain them: it compares all earlier calls of a function."""
EAGER_FIRST_MAX = 16
"""Compilations of one operation at one line, outside of a compiled function, that count as warm-up: a program creates
its parameters in many shapes."""
LIVE_FIRST_MAX = 32
"""Compilations of functions that one line defined and that are still in use, such as layers, that count as warm-up."""
_BACKEND = "/jax/core/compile/backend_compile_duration"
_PARTS = ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")
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
        self.explanations: list[jax_messages.Explanation] = []
        self.cached: bool | None = None


class _Program:
    """The functions that one line of code defined, or an operation at one line."""

    def __init__(self) -> None:
        self.compiled = 0
        self.functions: list[weakref.ref[Any]] = []


class JaxCompiles:
    """Reports the compilations of this process."""

    def __init__(self, jax: Any, on_backend: Callable[[str], None]) -> None:
        """`on_backend` is called with the name of the backend, at the first compilation."""
        self._backend: Callable[[], str] | None = getattr(jax, "default_backend", None)
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
        explanation = jax_messages.parse(record.getMessage())
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
        elif event == _BACKEND:
            try:
                if self._backend is not None:
                    backend, self._backend = self._backend, None
                    self._on_backend(backend())
                self._on_compiled(seconds, str(facts.get("fun_name") or ""), sys._getframe(1))
            except Exception:  # noqa: BLE001, RUF100 - it would end the compilation
                pass

    def _on_compiled(self, seconds: float, name: str, frame: FrameType) -> None:
        pending = self._pending
        explanations, pending.explanations = pending.explanations, []
        seconds, pending.seconds = seconds + pending.seconds, 0.0
        cached, pending.cached = pending.cached, None
        name = name.removeprefix("jit(").removeprefix("pmap(").removesuffix(")") if "(" in name else name
        explanation = next((entry for entry in explanations if entry.function == name), None)
        line = user_line(frame)
        step = process_sink.step
        late = self._is_late(name, _function_at(frame), line.frame)
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
        code = _code_of(function)
        is_users = code is not None and owner_of(code.co_filename) == "user"
        key: tuple[object, ...] = (name, line.file, line.line) if line is not None else (name,)
        if code is not None and is_users:
            key = (code.co_filename, code.co_firstlineno, code.co_name)
        with self._lock:
            program = self._programs.setdefault(key, _Program())
            program.compiled += 1
            if not is_users:
                return program.compiled > EAGER_FIRST_MAX
            live = [known for known in (ref() for ref in program.functions) if known is not None]
            if any(known is function for known in live):
                return True
            program.functions = [weakref.ref(known) for known in live]
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


def _changed(explanation: jax_messages.Explanation | None, late: bool) -> list[ChangedInput] | None:
    """The inputs that changed; None if they were not compared."""
    if explanation is None or not late:
        return None
    if explanation.is_new:
        return [ChangedInput(name="the function itself", before="defined in an earlier call", now="defined again")]
    return explanation.changed


def _function_at(frame: FrameType | None) -> Any:
    """The function that JAX compiles, from the calls of `jax.jit` on the stack; None if it is not found there."""
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return None
        if frame.f_code.co_filename.endswith("pjit.py"):
            function = frame.f_locals.get("fun")
            if callable(function):
                return _unwrapped(function)
        frame = frame.f_back
    return None


def _unwrapped(function: Any) -> Any:
    """The function of the user inside of `jax.grad`, `functools.partial` and the like."""
    for _ in range(16):
        inner = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)
        if not callable(inner):
            return function
        function = inner
    return function


def _code_of(function: Any) -> CodeType | None:
    code = getattr(function, "__code__", None) or getattr(getattr_static(function, "__call__", None), "__code__", None)
    return code if isinstance(code, CodeType) else None

"""What a step of JAX runs one by one: operations outside of `jax.jit`, and arrays that are put on a device again.

Once compiled, JAX runs both from C++ without a call of Python, so a steady loop cannot be watched. Therefore a few
steps are: some time after the newest compilation JAX's C++ caches of calls are emptied, and kept empty for about ten
steps, so that each call passes through Python. Nothing is compiled again for that. Before, the line of the thread is
sampled for as long. Both happen once in a process, or a few times if there were too few steps. What the first tenths
of a second show is only reported if the process ends before the rest.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Hashable
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tputui.observers.sinks import observes_all, process_sink
from tputui.observers.user_frames import callers, line_of, user_frames
from tputui.telemetry.events import CodeFrame, DispatchedCalls, DispatchesCounted, DispatchKind

QUIET_S, QUIET_EARLY_S = 1.0, 0.2
"""Time without a compilation after which the steps are a steady loop; the second for a process that ends soon, or is
observed in all steps."""
SAMPLES = 50
STEPS, STEPS_MIN = 12, 4
"""Steps after which a window ends, and those that it needs."""
CALLS_MAX, WINDOW_S = 2_000, 3.0
"""Calls and seconds after which it ends at the latest."""
WINDOWS_MAX, REST_S = 3, 5.0
CLOSE_S = 1.0
"""Seconds that the end of a process waits for the report at most."""
LINES_MAX, NAMES_MAX = 64, 6
CONSTANT_BYTES = 1 << 10
"""Arrays of the host from which they are compared with those of other steps: not a learning rate."""
CHECKED_BYTES = 1 << 24
_FRAMES_MAX = 16


class _Call(NamedTuple):
    """A call of the window."""

    code: CodeType
    instruction: int
    line: int
    kind: DispatchKind | None
    """None: a compiled function of the user."""
    name: str
    num_bytes: int
    content: Hashable
    """What tells arrays of the host apart."""


class JaxDispatches:
    """Counts, in a few steps, what JAX runs outside of compiled functions."""

    def __init__(self) -> None:
        modules = [sys.modules[f"jax._src.{name}"] for name in ("pjit", "dispatch", "array", "interpreters.pxla")]
        self._pjit, dispatch, array, pxla = modules
        self._array: Any = array.ArrayImpl
        self._jax = os.path.join(os.path.dirname(sys.modules["jax"].__file__ or "jax"), "")
        self._caches: list[Any] = [
            getattr(self._pjit, f"_cpp_pjit_cache_{name}") for name in ("fun_only", "explicit_attributes")
        ]
        self._handlers: dict[Any, Any] = pxla.shard_arg_handlers
        hooks = [
            (vars(self._pjit), "_pjit_call_impl_python", self._run),
            (vars(dispatch), "_device_put_impl", self._put),
            (self._handlers, self._array, self._shard),
            (vars(self._pjit), "_get_fastpath_data", lambda _: lambda *_args, **_kwargs: None),
        ]
        self._hooks = [(owner, name, owner[name], hook(owner[name])) for owner, name, hook in hooks]
        self._thread = 0
        self._compiled_at = 0.0
        self._watcher: threading.Thread | None = None
        self._calls: list[_Call] | None = None
        self._ended = threading.Event()
        self._programs: Counter[str] = Counter()
        self._frames: dict[tuple[CodeType, int], CodeFrame | None] = {}
        self._closing = threading.Event()
        process_sink.before_close(self._close)

    def compiled(self) -> None:
        """The calling thread compiled a program."""
        self._thread, self._compiled_at = threading.get_ident(), perf_counter()
        if self._watcher is None:
            self._closing.clear()
            self._watcher = threading.Thread(target=self._watch, name="tputui-jax-calls", daemon=True)
            self._watcher.start()

    def after_fork(self) -> None:
        """In a forked child, which has no thread that would end a window."""
        self._disarm()

    def _close(self) -> None:
        """Reports what is known: no more calls will be counted."""
        self._closing.set()
        self._ended.set()
        watcher = self._watcher
        if watcher is not None and watcher.is_alive():
            watcher.join(CLOSE_S)
            self._watcher = None

    def _watch(self) -> None:
        with contextlib.suppress(Exception):
            early: DispatchesCounted | None = None
            for number in range(WINDOWS_MAX):
                if early is None and not observes_all():
                    early = self._counted(QUIET_EARLY_S, is_early=True)
                event = self._counted(QUIET_EARLY_S if observes_all() else QUIET_S)
                if event is not None or self._closing.wait(REST_S * 2**number):
                    break
            if (event := event or early) is not None:
                process_sink.emit(event)

    def _counted(self, quiet_s: float, *, is_early: bool = False) -> DispatchesCounted | None:
        """Counts in a window after a time without a compilation; None if there were too few steps. An early one may
        be of what a program does before its steps, so that it needs calls of a compiled function and no compilation."""
        while (rest_s := self._compiled_at + quiet_s - perf_counter()) > 0:
            if self._closing.wait(rest_s):
                return None
        compiled_at = self._compiled_at
        samples = self._sampled(quiet_s / SAMPLES)
        if self._closing.is_set():
            return None
        began = perf_counter()
        self._arm()
        try:
            self._ended.wait(WINDOW_S)
        finally:
            calls = self._disarm()
        event = self._event(calls, samples, perf_counter() - began)
        is_steady = not is_early or (self._compiled_at == compiled_at and event is not None and event.program)
        return event if is_steady else None

    def _sampled(self, interval_s: float) -> Counter[tuple[CodeType, int]]:
        """How often the thread was seen at a line."""
        seen: Counter[tuple[CodeType, int]] = Counter()
        for _ in range(SAMPLES):
            if self._closing.wait(interval_s):
                break
            user = next(user_frames(sys._current_frames().get(self._thread)), None)
            if user is not None:
                seen[user.f_code, user.f_lineno] += 1
        return seen

    def _arm(self) -> None:
        self._programs.clear()
        self._ended.clear()
        self._calls = []
        for owner, name, _, hook in self._hooks:
            owner[name] = hook
        for cache in self._caches:
            cache.clear()

    def _disarm(self) -> list[_Call]:
        calls, self._calls = self._calls or [], None
        for owner, name, original, hook in self._hooks:
            if owner[name] is hook:
                owner[name] = original
        # What was called in the window is marked in the caches as to be called through Python.
        for cache in self._caches:
            cache.clear()
        return calls

    def _run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **params: Any) -> Any:
            with contextlib.suppress(Exception):
                if threading.get_ident() == self._thread:
                    self._note_program(sys._getframe(1), args, params)
            return original(*args, **params)

        return run

    def _note_program(self, frame: FrameType, args: tuple[Any, ...], params: dict[str, Any]) -> None:
        name = str(params["name"])
        file = str(params["jaxpr"].jaxpr.debug_info.func_src_info).rpartition(" at ")[2]
        if not file.startswith(self._jax):
            self._programs[name] += 1
            self._note(frame, None, name, 0)
            if self._programs[name] > STEPS:
                self._ended.set()
            return
        if _is_in_put(frame):
            return  # a part of a `device_put`, which has been noted
        for value in args:
            self._note_host_array(frame, f"jnp.{name}", value)
        if name != "stage":  # of `jnp.asarray`, which only copies to the device
            self._note(frame, "operation", name, 0)

    def _note_host_array(self, frame: FrameType, name: str, value: Any) -> None:
        numpy = sys.modules["numpy"]
        if type(value) is numpy.ndarray and value.nbytes >= CONSTANT_BYTES:
            data = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)[:CHECKED_BYTES]
            content = value.shape, str(value.dtype), zlib.crc32(data)
            self._note(frame, "constant", "jnp.asarray" if name == "jnp.stage" else name, value.nbytes, content)

    def _put(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def put(x: Any, *args: Any, **params: Any) -> Any:
            with contextlib.suppress(Exception):
                target = params.get("device")
                if threading.get_ident() != self._thread:
                    pass
                elif type(x) is not self._array:
                    self._note_host_array(sys._getframe(1), "jax.device_put", x)
                elif target is not None and not _is_at(x, target):
                    self._note(sys._getframe(1), "moved", "jax.device_put", x.nbytes)
            return original(x, *args, **params)

        return put

    def _shard(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Inputs of compiled functions that have another sharding there."""

        def shard(xs: Any, shardings: Any, *args: Any, **params: Any) -> Any:
            with contextlib.suppress(Exception):
                frame = sys._getframe(1)
                if threading.get_ident() == self._thread and not _is_in_put(frame):
                    for x, target in zip(xs, shardings, strict=False):
                        if not _is_at(x, target):
                            self._note(frame, "moved", "an input of a compiled function", x.nbytes)
            return original(xs, shardings, *args, **params)

        return shard

    def _note(
        self, frame: FrameType, kind: DispatchKind | None, name: str, num_bytes: int, content: Hashable = None
    ) -> None:
        calls, user = self._calls, next(user_frames(frame), None)
        if calls is None or user is None or self._ended.is_set():
            return
        self._frames.setdefault((user.f_code, user.f_lineno), line_of(user).frame)
        calls.append(_Call(user.f_code, user.f_lasti, user.f_lineno, kind, name, num_bytes, content))
        if len(calls) >= CALLS_MAX:
            self._ended.set()

    def _event(
        self, calls: list[_Call], samples: Counter[tuple[CodeType, int]], window_s: float
    ) -> DispatchesCounted | None:
        """The lines of whole steps; None if there were too few."""
        step, whole, steps = _whole_steps(calls)
        if steps < STEPS_MIN:
            return None
        lines: dict[tuple[CodeType, int, DispatchKind], list[_Call]] = {}
        programs = {(call.code, call.line) for call in whole if call.kind is None}
        for call in whole:
            if call.kind is not None:
                lines.setdefault((call.code, call.line, call.kind), []).append(call)
        return DispatchesCounted(
            t=time.time(),
            runtime="jax",
            program=step,
            steps=steps,
            window_s=window_s,
            samples=SAMPLES,
            lines=[
                DispatchedCalls(
                    kind=kind,
                    names=[name for name, _ in Counter(call.name for call in same).most_common(NAMES_MAX)],
                    count=len(same),
                    num_bytes=sum(call.num_bytes for call in same),
                    # A line that calls a compiled function, too, may have been seen in that call.
                    samples=None if (code, line) in programs else samples[code, line],
                    user_frame=self._frames.get((code, line)),
                )
                for (code, line, kind), same in sorted(lines.items(), key=lambda item: -len(item[1]))[:LINES_MAX]
                if kind != "constant" or len({call.content for call in same}) * 2 <= len(same) >= steps
            ],
        )


def _whole_steps(calls: list[_Call]) -> tuple[str, list[_Call], int]:
    """What marks a step, the calls of whole steps and their number. A step is a call of the compiled function that was
    called most often, else of the operation in the code that ran least often, but at least `STEPS_MIN` times."""
    programs = Counter(call.name for call in calls if call.kind is None)
    if programs:
        name = programs.most_common(1)[0][0]
        places = [place for place, call in enumerate(calls) if call.kind is None and call.name == name]
    else:
        name, found = "", dict[Hashable, list[int]]()
        for place, call in enumerate(calls):
            found.setdefault((call.code, call.instruction, call.name), []).append(place)
        places = min((one for one in found.values() if len(one) > STEPS_MIN), key=len, default=[])
    return (name, calls[places[0] : places[-1]], len(places) - 1) if places else (name, [], 0)


def _is_at(array: Any, target: Any) -> bool:
    """Whether an array is on a device, or has a sharding, already."""
    if hasattr(target, "is_equivalent_to"):
        return bool(array.sharding.is_equivalent_to(target, array.ndim))
    return set(array.devices()) == {target} if hasattr(target, "platform") else True


def _is_in_put(frame: FrameType | None) -> bool:
    return any(caller.f_code.co_name.endswith("device_put_impl") for caller in callers(frame, _FRAMES_MAX))

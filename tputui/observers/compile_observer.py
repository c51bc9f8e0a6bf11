"""Observes torch.compile in this process: compilations with the guard that failed, graph breaks, and functions that
torch gave up to compile.

torch passes the metrics of each compilation to one function, while the call of the user is on the stack. That function
is wrapped.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

from tputui.logs import torch_guards
from tputui.observers.compile_reports import CompileReports
from tputui.observers.sinks import observes_all, process_sink
from tputui.observers.user_frames import user_line
from tputui.telemetry.events import CodeFrame, CompileLimitReached, CompileObserved, GraphBroken, ObservationEnded
from tputui.telemetry.stack_frames import owner_of

REASON_CHARS_MAX = 300
BREAKS_MAX = 512
"""Graph breaks that are reported per process."""
LIMITS_MAX = 512
STEPS_REPORTED = 5
"""Steps of optimizers after which a process that is observed in all steps reports them."""
NO_USER_CODE = "the graph breaks in code of a library"
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
_FRAMES_MAX = 60
_lock = threading.Lock()
_started: list[TorchCompile] = []


def start() -> None:
    """Starts to observe, once `torch._dynamo.utils` is imported; a second call does nothing."""
    utils = sys.modules.get("torch._dynamo.utils")
    with _lock:
        if utils is not None and not _started:
            _started.append(TorchCompile(utils))


class TorchCompile:
    """Reports what torch.compile does in this process."""

    def __init__(self, utils: Any) -> None:
        """`utils` is the module `torch._dynamo.utils`."""
        self._reports = CompileReports(process_sink.emit)
        # A signal handler may compile while the thread that it interrupts holds the lock.
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._after_fork)
        process_sink.before_close(self._flush)
        self._breaks: list[Any] = utils.graph_break_reasons
        self._breaks_read = 0
        self._num_breaks = 0
        self._num_limits = 0
        self._counter = StepCounter() if observes_all() else None
        self._names: dict[str, str] = {}
        context = utils._METRICS_CONTEXT
        context._on_exit = self._after(context._on_exit)

    def _after(self, record: Callable[..., None]) -> Callable[..., None]:
        """torch's own function, followed by ours."""

        def recorded(*args: Any, **kwargs: Any) -> None:
            record(*args, **kwargs)
            # Other versions of torch may pass something else.
            with contextlib.suppress(Exception):
                start_ns, end_ns, metrics, error = args[:4]
                self._on_compiled((end_ns - start_ns) / 1e9, metrics, getattr(error, "__name__", ""), sys._getframe(1))

        return recorded

    def _on_compiled(self, seconds: float, metrics: dict[str, Any], error: str, frame: FrameType) -> None:
        if self._counter is not None:
            self._counter.start()
        code, values = _call_at(frame)
        name = _plain_name(str(metrics.get("co_name") or ""), values)
        compile_id = str(metrics.get("compile_id") or "")
        is_backward = metrics.get("is_forward") is False
        if is_backward:
            name = f"{self._names.get(compile_id, '')} (backward)".strip()
        elif not name and code is not None:
            name = _plain_name(code.co_name, values)
        if not is_backward and len(self._names) < 4096:
            self._names[compile_id] = name
        reason = str(metrics.get("recompile_reason") or "")
        line = user_line(frame)
        changed = torch_guards.parse(reason, values) if reason else None
        self._report_breaks(name)
        if "LimitExceeded" in error or "LimitHit" in error:
            self._num_limits += 1
            if self._num_limits <= LIMITS_MAX:
                process_sink.emit(
                    CompileLimitReached(
                        t=time.time(),
                        runtime="torch_compile",
                        program=name,
                        limit=_limit(),
                        user_frame=line.frame,
                        line_reason=line.reason,
                        changed_inputs=changed,
                    )
                )
        elif not error and (metrics.get("has_guarded_code") or is_backward):
            step = process_sink.step
            event = CompileObserved(
                t=time.time(),
                runtime="torch_compile",
                program=name,
                cause="call",
                warm_up=not reason,
                seconds=seconds,
                step=None if step is None else step + 1,
                user_frame=line.frame,
                line_reason=line.reason,
                changed_inputs=changed,
            )
            with self._lock:
                self._reports.add(event)

    def _after_fork(self) -> None:
        # Another thread, which does not exist here, may have held the lock.
        self._lock = threading.RLock()

    def _flush(self) -> None:
        with self._lock:
            self._reports.flush()

    def _report_breaks(self, program: str) -> None:
        """Reports the graph breaks since the last compilation."""
        if len(self._breaks) < self._breaks_read:  # torch._dynamo.reset() clears them
            self._breaks_read = 0
        new, self._breaks_read = self._breaks[self._breaks_read :], len(self._breaks)
        for found in new:
            self._num_breaks += 1
            if self._num_breaks > BREAKS_MAX:
                return
            line = _line_in(found.user_stack)
            process_sink.emit(
                GraphBroken(
                    t=time.time(),
                    runtime="torch_compile",
                    program=program,
                    reason=str(found.reason).strip().partition("\n")[0][:REASON_CHARS_MAX],
                    user_frame=line,
                    line_reason=None if line is not None else NO_USER_CODE,
                )
            )


class StepCounter:
    """Reports steps of optimizers: without them a rehearsal does not know how many steps it has observed."""

    def __init__(self) -> None:
        self._is_started = False
        self._steps = 0
        self._since = 0.0

    def start(self) -> None:
        """Counts the steps of all optimizers from now on; later calls do nothing."""
        optimizers: Any = sys.modules.get("torch.optim.optimizer")
        if not self._is_started and optimizers is not None:
            self._is_started, self._since = True, time.perf_counter()
            optimizers.register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, *_: object) -> None:
        self._steps += 1
        if self._steps % STEPS_REPORTED == 0:
            now = time.perf_counter()
            process_sink.emit(
                ObservationEnded(
                    t=time.time(),
                    runtime="torch_compile",
                    why="every step is observed",
                    steps=STEPS_REPORTED,
                    window_s=now - self._since,
                    steady_step_s=None,
                )
            )
            self._since = now


def _line_in(stack: Any) -> CodeFrame | None:
    """The innermost line of the user's code in a stack of `traceback.FrameSummary`."""
    for call in reversed(list(stack)):
        if owner_of(call.filename) == "user":
            return CodeFrame(file=call.filename, line=call.lineno or 0, function=call.name, owner="user")
    return None


def _plain_name(name: str, values: Mapping[str, Any] | None) -> str:
    """Name of a function as the user knows it: that of a module, and of the code behind a graph break."""
    resumed = _RESUMED.match(name)
    if resumed:
        return f"{resumed.group(1)} from line {resumed.group(2)}"
    function = (values or {}).get("fn") if name == "inner" else None
    owner = getattr(function, "__self__", function)
    return name if owner is None else getattr(owner, "__name__", type(owner).__name__)


def _limit() -> int | None:
    """The maximum number of programs of a function."""
    config: Any = sys.modules.get("torch._dynamo.config")
    limit = getattr(config, "recompile_limit", None) or getattr(config, "cache_size_limit", None)
    return limit if isinstance(limit, int) else None


def _call_at(frame: FrameType | None) -> tuple[CodeType | None, dict[str, Any] | None]:
    """The function that is compiled and the local variables of its call, from the calls of torch on the stack."""
    code: CodeType | None = None
    for _ in range(_FRAMES_MAX):
        if frame is None:
            break
        if frame.f_code.co_filename.endswith("convert_frame.py"):
            found = frame.f_locals
            code = code or (found["code"] if isinstance(found.get("code"), CodeType) else None)
            values = getattr(found.get("frame"), "f_locals", None)
            if isinstance(values, dict):
                return code, values
        frame = frame.f_back
    return code, None

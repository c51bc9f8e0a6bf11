"""Observes torch.compile in this process: compilations with the guard that failed, graph breaks, and functions that
torch gave up to compile.

torch passes the metrics of each compilation to `log_compilation_event`, which it has for others to replace, while the
call of the user is on the stack. That function is wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from tputui.logs import torch_guards
from tputui.observers.sinks import CompileReports, attaching, could_not_attach, observes_all, process_sink
from tputui.observers.user_frames import callers, user_code, user_line
from tputui.telemetry.events import (
    CodeFrame,
    CompileLimitReached,
    CompileObserved,
    GraphBroken,
    Observation,
    ObservationEnded,
)
from tputui.telemetry.stack_frames import owner_of

REASON_CHARS_MAX = 300
BREAKS_MAX = 512
"""Graph breaks that are reported per process."""
LIMITS_MAX = 512
RECORDED: tuple[Observation, ...] = ("compilations", "graph breaks", "compile limits")
STEPS_REPORTED = 5
"""Steps of optimizers after which a process that is observed in all steps reports them."""
NO_USER_CODE = "the graph breaks in code of a library"
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
_OPTIMIZER = re.compile(r"OptimizerVariable\(|module: torch\.optim\.")
"""In the reason of a break by which torch compiles the step of an optimizer as a program of its own."""
_FRAMES_MAX = 60
_lock = threading.Lock()
_started: list[TorchCompile] = []


def start() -> None:
    """Starts to observe, once `torch._dynamo` is imported; a second call does nothing. Raises if it is unknown."""
    with _lock:
        if not _started:
            _started.append(TorchCompile(sys.modules["torch._dynamo.utils"]))
    # Where a compiled function breaks, torch would compile what our hooks call, too.
    sys.modules["torch._dynamo.trace_rules"].add("tputui")


class TorchCompile:
    """Reports what torch.compile does in this process."""

    def __init__(self, utils: Any) -> None:
        """`utils` is the module `torch._dynamo.utils`."""
        self._reports = CompileReports(process_sink.emit)
        # A signal handler may compile while the thread that it interrupts holds the lock.
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._after_fork)
        process_sink.before_close(self._flush)
        self._breaks: list[Any] = []
        with attaching("torch_compile", "torch", "graph breaks"):
            self._breaks = utils.graph_break_reasons
        self._breaks_read = 0
        self._num_breaks = 0
        self._num_limits = 0
        self._counter = StepCounter() if observes_all() else None
        self._names: dict[str, str] = {}
        self._modes = torch_guards.Modes()
        self._modules: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """Compiled modules. torch calls all of them through one function of its own, and takes the second one for
        another compilation of that."""
        self._owners: dict[str, int] = {}
        """The module of each program of that function, by the number of the program."""
        self._utils = utils
        self._has_seen = False
        utils.log_compilation_event = self._after(utils.log_compilation_event)

    def _after(self, log: Callable[..., None]) -> Callable[..., None]:
        """torch's own function, followed by ours."""

        @functools.wraps(log)
        def log_compilation_event(metrics: Any, *args: Any, **kwargs: Any) -> None:
            log(metrics, *args, **kwargs)
            # Other versions of torch may pass something else.
            with contextlib.suppress(Exception):
                if not metrics.is_runtime:
                    self._on_compiled(metrics, sys._getframe(1))
                    self._has_seen = True

        return log_compilation_event

    def _on_compiled(self, metrics: Any, frame: FrameType) -> None:
        if self._counter is not None:
            self._counter.start()
        code, values = _call_at(frame)
        name = _plain_name(metrics.co_name or "", values)
        compile_id = str(metrics.compile_id or "")
        is_backward = metrics.is_forward is False
        if is_backward:
            name = f"{self._names.get(compile_id, '')} (backward)".strip()
        elif not name and code is not None:
            name = _plain_name(code.co_name, values)
        if not is_backward and len(self._names) < 4096:
            self._names[compile_id] = name
        module = _module_of(metrics.co_name or "", values)
        reason = metrics.recompile_reason or ""
        if module is not None:
            reason = self._own_reason(_reasons_at(frame), compile_id, module) or reason
        line = user_line(frame)
        changed = torch_guards.parse(reason, values) if reason else None
        self._report_breaks(name)
        if torch_guards.is_limit(metrics.fail_type or "", metrics.fail_reason or ""):
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
        elif not metrics.fail_type and (metrics.has_guarded_code or is_backward):
            step = process_sink.step
            with self._lock:
                is_new, function = self._is_new(module), f"{compile_id.partition('/')[0]} {id(module)}"
                is_first = not reason or is_new or self._modes.is_first(function, changed or ())
            event = CompileObserved(
                t=time.time(),
                runtime="torch_compile",
                program=name,
                cause="call",
                warm_up=is_first,
                seconds=_seconds(metrics),
                step=None if step is None else step + 1,
                user_frame=line.frame,
                line_reason=line.reason,
                changed_inputs=changed,
            )
            with self._lock:
                self._reports.add(event)

    def _own_reason(self, reasons: Sequence[str], compile_id: str, module: Any) -> str:
        """The guard that failed of the newest program of this module: the newest of all may be another one's. Notes
        the program as one of the module."""
        own_reasons = [reason for reason in reasons if self._owners.get(reason.partition(":")[0].strip()) == id(module)]
        if len(self._owners) < 4096:
            self._owners[compile_id] = id(module)
        return own_reasons[0] if own_reasons else ""

    def _is_new(self, module: Any) -> bool:
        """Whether a module is compiled for the first time; notes it."""
        if module is None or self._modules.get(id(module)) is module:
            return False
        with contextlib.suppress(TypeError):  # an object without weak references
            self._modules[id(module)] = module
        return True

    def _after_fork(self) -> None:
        # Another thread, which does not exist here, may have held the lock.
        self._lock = threading.RLock()

    def _flush(self) -> None:
        with self._lock:
            self._reports.flush()
        graphs = self._utils.counters["stats"]["unique_graphs"]
        if graphs and not self._has_seen:
            self._has_seen = True
            reason = f"it made {graphs} graphs, but reported none of their compilations"
            if not self._utils.config.log_compilation_metrics:
                reason = "torch._dynamo.config.log_compilation_metrics is switched off"
            could_not_attach("torch_compile", "torch", *RECORDED, reason=reason)

    def _report_breaks(self, program: str) -> None:
        """Reports the graph breaks since the last compilation."""
        if len(self._breaks) < self._breaks_read:  # torch._dynamo.reset() clears them
            self._breaks_read = 0
        new, self._breaks_read = self._breaks[self._breaks_read :], len(self._breaks)
        for graph_break in new:
            self._num_breaks += 1
            if self._num_breaks > BREAKS_MAX:
                return
            stack = list(graph_break.user_stack)
            line, reason = _line_in(stack), str(graph_break.reason).strip()
            is_users = bool(stack) and owner_of(stack[-1].filename) == "user"
            process_sink.emit(
                GraphBroken(
                    t=time.time(),
                    runtime="torch_compile",
                    program=program,
                    reason=reason.partition("\n")[0][:REASON_CHARS_MAX],
                    user_frame=line,
                    line_reason=None if line is not None else NO_USER_CODE,
                    in_library=not is_users or _OPTIMIZER.search(reason) is not None,
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


def _line_in(stack: Sequence[Any]) -> CodeFrame | None:
    """The innermost line of the user's code in a stack of `traceback.FrameSummary`."""
    for call in reversed(stack):
        if owner_of(call.filename) == "user":
            return user_code(call.filename, call.lineno or 0, call.name)
    return None


def _plain_name(name: str, values: Mapping[str, Any] | None) -> str:
    """Name of a function as the user knows it: that of a module, and of the code behind a graph break."""
    resumed = _RESUMED.match(name)
    if resumed:
        return f"{resumed.group(1)} from line {resumed.group(2)}"
    module = _module_of(name, values)
    return name if module is None else getattr(module, "__name__", type(module).__name__)


def _module_of(name: str, values: Mapping[str, Any] | None) -> Any:
    """The module, or function, that torch calls through its function `inner`; None if another one is compiled."""
    function = (values or {}).get("fn") if name == "inner" else None
    return getattr(function, "__self__", function)


def _seconds(metrics: Any) -> float | None:
    """Time of a compilation."""
    if metrics.start_time_us is not None and metrics.end_time_us is not None:
        return float(max(0, metrics.end_time_us - metrics.start_time_us)) / 1e6
    return None if metrics.duration_us is None else float(metrics.duration_us) / 1e6


def _limit() -> int | None:
    """The maximum number of programs of a function."""
    config: Any = sys.modules.get("torch._dynamo.config")
    limit = getattr(config, "recompile_limit", None) or getattr(config, "cache_size_limit", None)
    return limit if isinstance(limit, int) else None


def _reasons_at(frame: FrameType | None) -> list[str]:
    """The guards that failed, of one earlier program each, from the calls of torch on the stack; newest first."""
    for values in _values_at(frame):
        reasons = values.get("reasons")
        if isinstance(reasons, list):
            return [reason for reason in reasons if isinstance(reason, str)]
    return []


def _call_at(frame: FrameType | None) -> tuple[CodeType | None, dict[str, Any] | None]:
    """The function that is compiled and the local variables of its call, from the calls of torch on the stack."""
    code: CodeType | None = None
    for variables in _values_at(frame):
        code = code or (variables["code"] if isinstance(variables.get("code"), CodeType) else None)
        values = getattr(variables.get("frame"), "f_locals", None)
        if isinstance(values, dict):
            return code, values
    return code, None


def _values_at(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """The local variables of the calls of torch on the stack that compile a function, innermost first."""
    frames = callers(frame, _FRAMES_MAX)
    return (caller.f_locals for caller in frames if caller.f_code.co_filename.endswith("convert_frame.py"))

"""A window of a few steps in which every call of torch is hooked: reads of values and fallbacks are timed by line of

the user, or the operations that calls add to the graph are marked.

The hook is a mode of `torch.overrides`, which sees the calls of one thread and changes nothing in the traced graph.
It is put below all other modes of the thread, so that the modes of the program still end in their order. It ends when
torch.compile starts to compile a function in the thread, which would trace the hook and break the graph there.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tputui.observers.sinks import ResettableTotal
from tputui.observers.user_frames import NO_USER_FRAME, UserLine, callers, line_of, owner
from tputui.observers.xla_graph import Reason
from tputui.observers.xla_runtime import SCALAR_READS, Call, Calls, CallScopes, XlaRuntime
from tputui.telemetry.events import CodeFrame, FallbackObserved, ObservationEnded, StepPrograms, SyncObserved

UNCLAIMED_MAX = 256
SLACK_S = 0.002
"""Clocks of the runtime and of Python may differ by that much."""


class Compilation(NamedTuple):
    """A compilation of one program; times are unix times."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Time inside the compiler."""
        return self.ended - self.began

    def is_within(self, began: float, ended: float) -> bool:
        """Whether it happened between two times."""
        return began - SLACK_S <= self.began and self.ended <= ended + SLACK_S


class Compilations:
    """The compilations that no thread has claimed yet. The caller holds a lock."""

    def __init__(self, runtime: XlaRuntime) -> None:
        times = runtime.compile_times()
        self._runtime = runtime
        self._compiled = ResettableTotal(runtime.compiled())
        self._timed, self._seconds = ResettableTotal(times.total), ResettableTotal(times.seconds)
        self._num_untimed = 0
        """Those that were counted, but whose time was not yet."""
        self._unclaimed: list[Compilation] = []

    def claim_all(self) -> tuple[int, float]:
        """The number of compilations, and the seconds inside the compiler: for the only thread of a process."""
        seconds = self._read()
        count, self._num_untimed = len(self._unclaimed) + self._num_untimed, 0
        if not count:
            return 0, 0.0
        self._unclaimed.clear()
        return count, seconds

    def claim(self, is_own: Callable[[Compilation], bool]) -> list[Compilation]:
        """Removes and returns those for which `is_own` is true, oldest first."""
        self._read()
        if not self._unclaimed:
            return []
        claimed = [compilation for compilation in self._unclaimed if is_own(compilation)]
        self._unclaimed = [compilation for compilation in self._unclaimed if compilation not in claimed]
        return claimed

    def _read(self) -> float:
        """Reads the counters; returns the seconds of all that are unclaimed."""
        before_s = sum(compilation.seconds for compilation in self._unclaimed)
        self._num_untimed += int(self._compiled.read(self._runtime.compiled()))
        if self._num_untimed <= 0:
            return before_s
        times = self._runtime.compile_times()
        added = min(int(self._timed.read(times.total)), len(times.samples), self._num_untimed)
        self._num_untimed = max(0, self._num_untimed - added)
        newest = times.samples[len(times.samples) - added :]
        self._unclaimed += [Compilation(ended - seconds, ended) for ended, seconds in newest]
        del self._unclaimed[:-UNCLAIMED_MAX]
        return before_s + self._seconds.read(times.seconds)


STEPS = 5
"""Steps of a window."""
WINDOW_MAX_S = 60.0
"""The hook does nothing any more after this time."""
LINES_MAX = 200
"""Lines of the user of which a window reports reads; later ones are counted without their line."""
LINES_NAMED = 3
COMPILED_MAX = 32
"""Newest compilations among which that of a call is sought."""
TOO_MANY_LINES = f"more than {LINES_MAX} lines read values"
OTHER_THREAD = "the values were read in another thread, or by code that calls no function of torch"
_READS = {
    "item": ".item()",
    "__bool__": "if tensor",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "index()",
    "__format__": "format()",
    "tolist": ".tolist()",
    "cpu": ".cpu()",
    "numpy": ".numpy()",
    "__array__": "np.asarray()",
    "to": '.to("cpu")',
    "__repr__": "print()",
}
"""How calls that read a value are written in code, by the name of the function of torch."""
_COPIES = frozenset({"tolist", "cpu", "numpy", "__array__", "to", "__repr__"})
"""Calls that the counter of scalar reads does not include."""


class _CallTotal:
    """Calls of one kind on one line."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason
        self.count = 0
        self.seconds = 0.0
        self.compiled = 0
        self.transfers = self.measured = 0
        """Transfers, and the number of calls in which they were counted."""


class SizedCall(NamedTuple):
    """A call of torch on the host whose result has a shape that depends on values, as `nonzero`."""

    operator: str
    """As `nonzero`."""
    line: UserLine
    sizes: frozenset[int]
    """Sizes in all dimensions of its result, and of later ones of the kind in the step."""


class XlaWindow:
    """One window. Belongs to the thread that opened it."""

    def __init__(
        self,
        runtime: XlaRuntime,
        reason: Reason,
        steady_step_s: float | None,
        calls: Calls,
        rank: int | None,
        scopes: CallScopes,
    ) -> None:
        self.reason = reason
        self.steps = 0
        self.is_cut_short = False
        """Whether torch.compile ended the hook."""
        self.compiled: dict[UserLine, int] = {}
        """Programs compiled by calls on a line since the observer last took them."""
        self.sized: SizedCall | None = None
        """The first call since the sync before whose result has a shape that depends on values; None if shapes had
        changed before it already."""
        self._sized_at: dict[str, UserLine] = {}
        """The line of the first call since the sync by operator, of those whose results have such shapes."""
        self.is_hooked = False
        self.was_emitted = False
        """Whether what it found was reported."""
        """Whether it was opened: not if graphs are compared after torch.compile was used."""
        self.error: Exception | None = None
        """The newest error of the hook itself."""
        self.reads = 0
        """Reads of values by the program, those of operations on the host included."""
        self.own_reads = 0
        """Those by tputui."""
        self._runtime = runtime
        self._calls = calls
        self._scopes = scopes
        self._scope: Any = None
        """The scope of the call that runs, while graphs are compared."""
        self._rank = rank
        self._steady_step_s = steady_step_s
        self._began = time.perf_counter()
        self._seconds: float | None = None
        """Wall time of the window, once it is closed."""
        self._mode: Any = None
        self._thread = threading.get_ident()
        self._reads: dict[tuple[str, CodeFrame | None], _CallTotal] = {}
        self._fallbacks: dict[tuple[str, CodeFrame | None], _CallTotal] = {}
        self._transferring: set[str] = set()
        """Functions of torch that are known to run on the host; their transfers are counted."""
        self._fallback_counts = runtime.fallbacks()

    def open(self) -> None:
        """Installs the hook in the calling thread."""
        self.is_hooked = True
        overrides: Any = sys.modules["torch.overrides"]
        window = self

        class Mode(overrides.TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return window.call(func, args, kwargs or {}, sys._getframe(1))

        self._mode = Mode()
        others = _take_modes(overrides)
        overrides._push_mode(self._mode)
        for mode in others:
            overrides._push_mode(mode)
        if (compilations := _compilations()) is not None:
            compilations.register_start_callback(self._on_compile)

    def close(self) -> None:
        """Removes the hook from the calling thread, which must be the one that opened it."""
        self._unhook()
        with contextlib.suppress(ValueError):  # torch._dynamo.reset() removes it as well.
            if (compilations := _compilations()) is not None:
                compilations.remove_start_callback(self._on_compile)

    def _on_compile(self, _: object) -> None:
        """Called by torch.compile before it reads the modes of the thread, each of which it would trace."""
        if self._mode is not None and self._thread == threading.get_ident():
            try:
                self._unhook()
                self.is_cut_short = not self.compares_graphs
            except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
                self.error = error

    def _unhook(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            self._seconds = self.seconds
            overrides: Any = sys.modules["torch.overrides"]
            for other in _take_modes(overrides):
                if other is not mode:
                    overrides._push_mode(other)

    def call(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Calls a function of torch and records what it read."""
        name = getattr(func, "__name__", "")
        if name == "__get__" or self._mode is None or self.seconds > WINDOW_MAX_S:
            return func(*args, **kwargs)
        if not self.compares_graphs:
            return self._timed(name, func, args, kwargs, frame)
        try:
            self._begin_scope(name, frame)
        except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
            self.error = error
        try:
            return self._timed(name, func, args, kwargs, frame)
        finally:
            self.end_scope()

    def _begin_scope(self, name: str, frame: FrameType) -> None:
        line = _line_at(frame)
        if line is not None and line.frame is not None:
            self._scope = self._scopes.open(Call(name.strip("_"), line.frame, owner(frame) == "user"))

    def end_scope(self) -> None:
        """Ends the scope of the call that runs: the runtime refuses to sync in one."""
        self._scope = None

    def _timed(self, name: str, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if self._calls.are_shared:
            return self._call_beside_others(name, func, args, kwargs, frame)
        runtime = self._runtime
        scalars, compiled = runtime.count(SCALAR_READS), runtime.compiled()
        transfers = self._transfers() if name in self._transferring else None
        is_copy = name in _COPIES and _is_on_xla(args)
        began = time.perf_counter()
        result = func(*args, **kwargs)
        seconds = time.perf_counter() - began
        try:
            reads = max(0, runtime.count(SCALAR_READS) - scalars)
            if is_copy and (name != "to" or not _is_on_xla((result,))):
                reads = reads or 1
            newly_compiled = max(0, runtime.compiled() - compiled)
            self._record(name, result, reads, newly_compiled, self._fallen(), seconds, transfers, frame)
        except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
            self.error = error
        return result

    def _call_beside_others(self, name: str, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """The same while other threads train, whose calls raise the same counters."""
        is_read = name in _READS and _is_on_xla(args)
        compiled = self._runtime.compiled()
        self._calls.begin(self, self._counters())
        began_t, began = time.time(), time.perf_counter()
        try:
            result = func(*args, **kwargs)
        except BaseException:
            self._calls.drop(self)
            raise
        seconds = time.perf_counter() - began
        try:
            fallen = self._calls.end(self, self._counters(), SCALAR_READS if is_read else f"aten::{name}")
            reads = fallen.pop(SCALAR_READS, 0)
            if is_read and name in _COPIES and (name != "to" or not _is_on_xla((result,))):
                reads = 1
            newly_compiled = self._compiled_between(began_t, time.time()) if self._runtime.compiled() > compiled else 0
            self._record(name, result, reads, newly_compiled, fallen, seconds, None, frame)
        except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
            self.error = error
        return result

    def _find_sized(self, result: Any, compiled: int, fallen: dict[str, int], frame: FrameType) -> None:
        """Stores a call if its result has a shape that depends on values."""
        operators = [operator for operator in fallen if self._runtime.is_sized_by_values(operator)]
        line = _line_at(frame) if operators else None
        if line is None or line.frame is None:
            return
        is_first = not self._sized_at
        for operator in operators:
            self._sized_at.setdefault(operator, line)
        tensors = result if isinstance(result, (tuple, list)) else (result,)
        sizes = frozenset(size for tensor in tensors for size in getattr(tensor, "shape", ()))
        if self.sized is not None:
            self.sized = self.sized._replace(sizes=self.sized.sizes | sizes)
        elif is_first and not compiled:
            # Its inputs were computed by a program that is known, so they have the same shapes as before.
            self.sized = SizedCall(operators[0].rpartition("::")[2].partition(".")[0], line, sizes)

    def synced(self) -> None:
        """A sync returned: what the step did before it is no cause of what follows."""
        self.sized = None
        self._sized_at.clear()

    def _counters(self) -> Counter[str]:
        return Counter({SCALAR_READS: self._runtime.count(SCALAR_READS), **self._runtime.fallbacks()})

    def _compiled_between(self, began: float, ended: float) -> int:
        """1 if a program compiled between two unix times."""
        times = self._runtime.compile_times().samples[-COMPILED_MAX:]
        return int(any(Compilation(end - seconds, end).is_within(began, ended) for end, seconds in times))

    def events(self) -> list[Any]:
        """The events of the window, when it has ended."""
        now, window_s = time.time(), self.seconds
        steps = max(1, self.steps)
        events: list[Any] = []
        # Comparing graphs waits for the device, so the times of such a window are not those of the program.
        reads, fallbacks = ({}, {}) if self.compares_graphs else (self._reads, self._fallbacks)
        for (operation, line), total in reads.items():
            events.append(
                SyncObserved(
                    t=now,
                    runtime="torch_xla",
                    operation=operation,
                    user_frame=line,
                    line_reason=total.reason,
                    count=total.count,
                    waited_s=total.seconds,
                    compiled=total.compiled,
                    steps=steps,
                    window_s=window_s,
                    rank=self._rank,
                )
            )
        for (operator, line), total in fallbacks.items():
            events.append(
                FallbackObserved(
                    t=now,
                    runtime="torch_xla",
                    operator=operator,
                    user_frame=line,
                    line_reason=total.reason,
                    count=total.count,
                    transfers=round(total.transfers / total.measured * total.count) if total.measured else None,
                    seconds=total.seconds,
                    steps=steps,
                    window_s=window_s,
                    rank=self._rank,
                )
            )
        events.append(
            ObservationEnded(
                t=now,
                runtime="torch_xla",
                why=self.reason.why,
                steps=self.steps,
                window_s=window_s,
                steady_step_s=self._steady_step_s,
                device=self._runtime.device(),
                rank=self._rank,
            )
        )
        return events

    @property
    def compares_graphs(self) -> bool:
        """Whether graphs are compared, in place of timing calls."""
        return self.reason.in_graph

    @property
    def seconds(self) -> float:
        """Wall time of the window so far, up to its end."""
        return time.perf_counter() - self._began if self._seconds is None else self._seconds

    @property
    def operators(self) -> set[str]:
        """Operations that ran on the host."""
        return {operator for operator, _ in self._fallbacks}

    @property
    def lines_found(self) -> str:
        """The lines that read values or fell back, most frequent first, as `.item() at train.py:41`."""
        totals = [*self._reads.items(), *self._fallbacks.items()]
        totals.sort(key=lambda item: -item[1].count)
        located = [(operation, frame) for (operation, frame), _ in totals if frame is not None]
        return ", ".join(
            f"{operation} at {Path(frame.file).name}:{frame.line}" for operation, frame in located[:LINES_NAMED]
        )

    def _record(
        self,
        name: str,
        result: Any,
        reads: int,
        compiled: int,
        fallen: dict[str, int],
        seconds: float,
        transfers: int | None,
        frame: FrameType,
    ) -> None:
        if not (reads or compiled or fallen):
            return
        self._find_sized(result, compiled, fallen, frame)
        line = _line_at(frame)
        if line is None:
            self.own_reads += reads
            return
        self.reads += reads
        for operator, count in fallen.items():
            self._transferring.add(name)
            # The backward pass of `x[mask]` runs nonzero again.
            of_forward = self._sized_at.get(operator) if name == "backward" else None
            total = self._total(self._fallbacks, operator, of_forward or line)
            total.count += count
            total.seconds += seconds / len(fallen)
            total.compiled += compiled
            if transfers is not None:
                total.transfers += max(0, self._transfers() - transfers)
                total.measured += count
        self.reads += len(fallen) if not reads else 0
        if reads and not fallen:
            total = self._total(self._reads, _READS.get(name, f"{name}()"), line)
            total.count += reads
            total.seconds += seconds
            total.compiled += min(compiled, reads)
        if compiled:
            line = self.sized.line if self.sized is not None else line
            self.compiled[line] = self.compiled.get(line, 0) + compiled

    def _total(
        self, totals: dict[tuple[str, CodeFrame | None], _CallTotal], operation: str, line: UserLine
    ) -> _CallTotal:
        key = operation, line.frame
        if key not in totals and len(totals) >= LINES_MAX:
            key, line = (operation, None), UserLine(None, TOO_MANY_LINES)
        return totals.setdefault(key, _CallTotal(line.reason))

    def _fallen(self) -> dict[str, int]:
        """Operations that ran on the host since the last call, with their counts."""
        before, self._fallback_counts = self._fallback_counts, self._runtime.fallbacks()
        if before == self._fallback_counts:
            return {}
        return {
            name: count - before.get(name, 0)
            for name, count in self._fallback_counts.items()
            if count > before.get(name, 0)
        }

    def _transfers(self) -> int:
        return self._runtime.metric("TransferFromDeviceTime")[0] + self._runtime.metric("TransferToDeviceTime")[0]


def _take_modes(overrides: Any) -> list[Any]:
    """Removes all modes of the calling thread; returns them, outermost first."""
    taken = [overrides._pop_mode() for _ in range(overrides._len_torch_function_stack())]
    return taken[::-1]


def _compilations() -> Any:
    """Where torch.compile announces that it compiles; None if this version of torch has no such place."""
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    return handler if hasattr(handler, "remove_start_callback") else None


def _is_on_xla(values: Any) -> bool:
    device = getattr(values[0], "device", None) if values else None
    return getattr(device, "type", None) == "xla"


def _line_at(frame: FrameType | None) -> UserLine | None:
    """The innermost line of the user; None if tputui itself called torch."""
    for caller in callers(frame):
        whose = owner(caller)
        if whose == "tputui":
            return None
        if whose == "user":
            return line_of(caller)
    return UserLine(None, NO_USER_FRAME)


WARM_UP_STEPS = 5

Gradients = Sequence[tuple[Any, int]]
"""A weak reference to the gradient of each of a few weights, and its version, which every backward pass changes."""


class _ThreadSteps(threading.local):
    def __init__(self) -> None:
        self.steps = 0
        self.syncs: Counter[Hashable] = Counter()
        """Syncs since the optimizer's last step, by the lines of the calls that led to them."""
        self.before: frozenset[Hashable] = frozenset()
        """Those of the step before."""
        self.has_loop = False
        """Whether a line synced several times in the step before; only then gradients are read, which takes time."""
        self.forward_only: Counter[Hashable] = Counter()
        """Syncs since the optimizer's last step with only a part of a forward pass since the sync before, at the same
        line."""
        self.newest: Hashable = None
        """The lines of the newest sync of the step."""
        self.gradients: Gradients = ()
        self.reads = 0
        """Scalars that were read before it."""
        self.has_backward = False
        """Whether a backward pass was seen since the optimizer's last step."""


class StepSyncs:
    """A step here is what lies between two steps of an optimizer. Every thread makes all steps, so those of the thread
    with the most count, and the programs of all. The caller holds a lock."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._thread = _ThreadSteps()
        self._steps = self._executes = self._expected = self._reads = 0

    def synced(self, lines: Hashable, read_gradients: Callable[[], Gradients], *, is_grad_enabled: bool) -> None:
        """A sync ran a program; `lines` of the calls that led to it."""
        thread = self._thread
        thread.syncs[lines] += 1
        if not thread.has_loop:
            return
        reads, gradients = self._runtime.count(SCALAR_READS), read_gradients()
        is_same = _is_same(gradients, thread.gradients)
        thread.has_backward |= not is_same
        # A value that was read between the two needs a sync; that is a finding of its own.
        if is_grad_enabled and is_same and thread.newest == lines and thread.reads == reads:
            thread.forward_only[lines] += 1
        thread.newest, thread.gradients, thread.reads = lines, gradients, reads

    def optimizer_stepped(self, read_gradients: Callable[[], Gradients]) -> None:
        """An optimizer changed the weights."""
        thread = self._thread
        if not thread.syncs:
            return
        syncs, thread.syncs = thread.syncs, Counter()
        before, thread.before = thread.before, frozenset(syncs)
        forward_only, thread.forward_only = thread.forward_only, Counter()
        had_loop, thread.has_loop = thread.has_loop, max(syncs.values()) > 1
        gradients = read_gradients() if had_loop or thread.has_loop else ()
        has_backward = thread.has_backward or not _is_same(gradients, thread.gradients)
        thread.has_backward, thread.newest, thread.gradients = False, None, gradients
        thread.steps += 1
        self._steps = max(self._steps, thread.steps)
        if self._steps <= WARM_UP_STEPS:
            self._reads = self._runtime.count(SCALAR_READS)
        if thread.steps <= WARM_UP_STEPS:
            return
        self._executes += syncs.total()
        if thread.before != before:
            self._expected += syncs.total()  # such as an evaluation after some of the steps
        elif not thread.has_loop:
            self._expected += 1
        else:
            # A line that syncs several times is a loop of its own. It needs one program per backward pass, so a part
            # of a forward pass needs none, and neither does the first part.
            extra = forward_only.total() + len(forward_only) if had_loop and has_backward else 0
            self._expected += syncs.total() - extra

    def read(self) -> StepPrograms | None:
        """The totals; None before the first step after warm-up."""
        if self._steps <= WARM_UP_STEPS:
            return None
        return StepPrograms(
            steps=self._steps - WARM_UP_STEPS,
            executes=self._executes,
            expected_executes=self._expected,
            scalar_reads=max(0, self._runtime.count(SCALAR_READS) - self._reads),
        )


def _is_same(left: Gradients, right: Gradients) -> bool:
    """Whether no backward pass ran between two readings. There is one weak reference to each living tensor."""
    return len(left) == len(right) and all(
        reference is other and version == newer
        for (reference, version), (other, newer) in zip(left, right, strict=True)
    )

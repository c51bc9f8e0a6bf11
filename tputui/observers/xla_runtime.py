"""The counters of torch_xla, read through `sys.modules`. A counter takes 0.4 us, a metric up to 80 us.

The runtime records the innermost call of Python code as the line of an operation, which is in torch for `x ** y` and
most functions. It also records in which scope of the profiler an operation was made: each call gets one of its own.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Hashable
from itertools import count
from typing import Any, NamedTuple

from tputui.observers.sinks import ResettableTotal
from tputui.telemetry.events import CodeFrame, StepPrograms, XlaMetricsRead

SCALAR_READS = "aten::_local_scalar_dense"
"""Counter of `.item()`, `float()` and `if tensor`, which the runtime lists among the fallbacks although it is none."""
BEGUN = "UncachedCompile"
"""Counter of graphs that are not in the compiler's cache, which rises before each is compiled. A program that only
gathers a sharded tensor is compiled without it."""
NANOSECONDS = 1e-9


class CompileTimes(NamedTuple):
    """Compilations so far."""

    total: int
    seconds: float
    samples: list[tuple[float, float]]
    """Unix time of the end, and seconds, of the newest ones, oldest first."""


class XlaRuntime:
    """torch_xla in this process. Raises `KeyError` or `AttributeError` if it is not imported or has another layout."""

    def __init__(self) -> None:
        self.native: Any = sys.modules["torch_xla"]._XLAC
        self._counter: Any = self.native._xla_counter_value
        self._metric: Any = self.native._xla_metric_data
        self._fallback_names: Any = self.native._get_executed_fallback_ops

    def count(self, name: str) -> int:
        """A counter, which does not exist before its first use or after a reset."""
        return self._counter(name) or 0

    def metric(self, name: str) -> tuple[int, float]:
        """Count and sum of a metric, which does not exist before its first use."""
        data = self._metric(name)
        return (int(data[0]), float(data[1])) if data else (0, 0.0)

    def compiled(self) -> int:
        """Programs compiled: rises after each compilation, also of a program that only gathers a sharded tensor."""
        return self.count("CreateCompileHandles")

    def compile_times(self) -> CompileTimes:
        """All compilations, and the times of the newest ones."""
        data = self._metric("CompileTime") or (0, 0.0, ())
        return CompileTimes(int(data[0]), data[1] * NANOSECONDS, [(t, ns * NANOSECONDS) for t, ns in data[2]])

    def read_s(self) -> float:
        """Seconds in transfers from the device, including the wait for the tensors."""
        return self.metric("TransferFromDeviceTime")[1] * NANOSECONDS

    def graphs(self) -> int:
        """Graphs run so far, compiled or found in the cache."""
        return self.count("CachedCompile") + self.count(BEGUN)

    def has_run(self) -> bool:
        """Whether anything was compiled or run on a device."""
        return bool(self.compiled() or self.graphs())

    def reads(self) -> int:
        """Transfers from the device."""
        return self.metric("TransferFromDeviceTime")[0]

    def graph_size(self) -> int:
        """Number of operations of the newest graph; 0 if none ran."""
        data = self._metric("TensorsGraphSize")
        return int(data[2][-1][1]) if data and data[2] else 0

    def program_text(self, tensors: list[Any]) -> str:
        """The program that would compute tensors, as HLO. Traces nothing and compiles nothing.

        Waits for the device: the runtime reads the buffers of its inputs, and crashes while a step in flight sets them.
        """
        self.native._xla_wait_device_ops([])
        return str(self.native._get_xla_tensors_hlo(tensors))

    def record_lines(self, on: bool) -> bool:
        """Whether the lines of operations were recorded until now; records them from now on, or not."""
        before = bool(self.native._get_ir_debug())
        self.native._set_ir_debug(on)
        return before

    def is_sized_by_values(self, operator: str) -> bool:
        """Whether the shape of the result of an operator such as `aten::nonzero` depends on values."""
        torch: Any = sys.modules["torch"]
        namespace, _, name = operator.partition("::")
        packet: Any = getattr(getattr(torch.ops, namespace), name.partition(".")[0], None)
        overloads = packet.overloads() if packet is not None else ()
        return any(torch.Tag.dynamic_output_shape in getattr(packet, overload).tags for overload in overloads)

    def open_scope(self, name: str) -> Any:
        """Marks the operations that the calling thread adds to the graph, if lines are recorded, as long as the result
        is referenced. A sync in a scope raises an error. Takes 5 us."""
        return self.native.profiler.scope_pusher(name)

    def rank(self) -> int | None:
        """Rank of the calling thread among all devices of the program; None if there is one, or no rank is known."""
        module: Any = sys.modules.get("torch_xla.runtime")
        try:
            return int(module.global_ordinal()) if module.world_size() > 1 else None
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return None

    def own_device(self) -> str:
        """Name of the device of the calling thread, such as `xla:0`."""
        return str(self.native._xla_get_default_device())

    def device(self) -> str:
        """Type of the devices, such as `TPU` or `CPU`; empty if the runtime does not say it."""
        module: Any = sys.modules.get("torch_xla.runtime")
        return str(getattr(module, "device_type", str)() or "")

    def fallbacks(self) -> dict[str, int]:
        """Operations that ran on the host CPU because they have no lowering, with their counts."""
        return {name: self.count(name) for name in self._fallback_names() if name != SCALAR_READS}


class Calls:
    """Finds out which call made a counter rise.

    A read of a value and an operation on the host wait for the device, so of several calls that run when the counter
    rises, the last one to end is the cause.
    """

    def __init__(self) -> None:
        self.num_threads = 1
        """Threads that train."""
        self.num_hooked = 0
        """Threads whose calls are observed."""
        self._lock = threading.RLock()
        self._running: dict[Hashable, Counter[str]] = {}
        """The calls that run, each with what was not claimed at its start."""
        self._claimed: Counter[str] = Counter()

    @property
    def are_shared(self) -> bool:
        """Whether several threads train."""
        return self.num_threads > 1

    def begin(self, caller: Hashable, counters: Counter[str]) -> None:
        """A call begins."""
        with self._lock:
            self._running[caller] = counters - self._claimed

    def drop(self, caller: Hashable) -> None:
        """A call raised an exception."""
        with self._lock:
            self._running.pop(caller, None)

    def end(self, caller: Hashable, counters: Counter[str], sure: str) -> Counter[str]:
        """A call ended; returns by how much it made each counter rise. `sure`: a counter that it certainly makes rise
        by one, if it rose; others are only claimed while all threads are observed."""
        with self._lock:
            now = counters - self._claimed
            before = self._running.pop(caller, now)
            others = list(self._running.values())
            claimed = now - before
            for name in list(claimed):
                if name == sure:
                    claimed[name] = 1
                elif self.num_hooked < self.num_threads or any(other[name] < now[name] for other in others):
                    del claimed[name]
            for name, count in claimed.items():
                self._claimed[name] += count
                for other in others:
                    # Of what rose before the other call began, it knows that it was not claimed.
                    other[name] -= max(0, min(count, other[name] - before[name]))
            return claimed


class MetricTotals:
    """Totals of the counters that a run reports since the start of the process, also if any code in it resets them. Not
    thread-safe."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._totals: dict[str, ResettableTotal] = {}
        self.compiles = 0
        """Compilations until the newest reading."""
        self.compile_s = 0.0
        """Seconds inside the compiler until then."""

    def read_compiles(self) -> None:
        """Reads the compilations so far."""
        count, time_ns = self._runtime.metric("CompileTime")
        self.compiles = int(self.total("compiles", count))
        self.compile_s = self.total("compile_s", time_ns * NANOSECONDS)

    def read(self, recompiles: int, steps: StepPrograms | None) -> XlaMetricsRead:
        """The event, with the number of compilations after warm-up and what the steps after it ran."""
        runtime, total = self._runtime, self.total
        self.read_compiles()
        executes = [runtime.metric(name) for name in ("ExecuteTime", "ExecuteReplicatedTime")]
        fallbacks = {
            name.removeprefix("aten::"): int(total(name, count)) for name, count in runtime.fallbacks().items()
        }
        return XlaMetricsRead(
            t=time.time(),
            compiles=self.compiles,
            compile_s=self.compile_s,
            recompiles=recompiles,
            executes=int(total("executes", sum(count for count, _ in executes))),
            execute_s=total("execute_s", sum(time_ns for _, time_ns in executes) * NANOSECONDS),
            transfers_to_device=int(total("to", runtime.metric("TransferToDeviceTime")[0])),
            transfers_from_device=int(total("from", runtime.reads())),
            bytes_to_device=int(total("bytes to", runtime.metric("OutboundData")[1])),
            bytes_from_device=int(total("bytes from", runtime.metric("InboundData")[1])),
            fallbacks=fallbacks,
            scalar_reads=int(total("scalar reads", runtime.count(SCALAR_READS))),
            steps=steps,
        )

    def total(self, name: str, now: float) -> float:
        """The total of a counter that has a value now."""
        counter = self._totals.setdefault(name, ResettableTotal())
        counter.read(now)
        return counter.value


CALLS_MAX = 10_000
"""Most calls that are distinguished at a time."""
_SCOPE = re.compile(r"\btputui_(\d+)")


class Call(NamedTuple):
    """A call of torch."""

    function: str
    """The function of torch, as `layer_norm`; empty if not recorded."""
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
        self._scope_numbers: dict[Call, int] = {}
        self._calls: dict[int, Call] = {}

    def open(self, call: Call) -> Any:
        """Marks what the calling thread adds to the graph, as long as the result is referenced; None if there are too
        many different calls. No sync may run meanwhile."""
        number = self._scope_numbers.get(call)
        if number is None:
            if len(self._scope_numbers) >= CALLS_MAX:
                return None
            number = self._scope_numbers[call] = next(self._numbers)
            self._calls[number] = call
        return self._runtime.open_scope(f"tputui_{number}")

    def call_of(self, scopes: str) -> Call | None:
        """The call that an operation comes from, by the names of the scopes in which it was made."""
        match = _SCOPE.search(scopes)
        return self._calls.get(int(match.group(1)[:9])) if match is not None else None

    def forget(self) -> None:
        """Frees the calls."""
        self._scope_numbers.clear()
        self._calls.clear()

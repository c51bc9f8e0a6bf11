"""The counters of torch_xla, read through `sys.modules`. A counter takes 0.4 us, a metric up to 80 us."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

SCALAR_READS = "aten::_local_scalar_dense"
"""Counter of `.item()`, `float()` and `if tensor`, which the runtime lists among the fallbacks although it is none."""
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

    def compile_s(self) -> float:
        """Seconds inside the compiler."""
        return self.metric("CompileTime")[1] * NANOSECONDS

    def graphs(self) -> int:
        """Graphs run so far, compiled or found in the cache."""
        return self.count("CachedCompile") + self.count("UncachedCompile")

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
        return any(torch.Tag.dynamic_output_shape in getattr(packet, one).tags for one in overloads)

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

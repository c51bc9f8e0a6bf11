"""Totals of torch_xla's counters since a process began to be observed, as an event."""

from __future__ import annotations

import time

from tputui.observers.totals import ResettableTotal
from tputui.observers.xla_runtime import NANOSECONDS, SCALAR_READS, XlaRuntime
from tputui.telemetry.events import StepPrograms, XlaMetricsRead


class MetricTotals:
    """Reads all counters that a run reports. Not thread-safe."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._totals: dict[str, ResettableTotal] = {}

    def read(self, recompiles: int, steps: StepPrograms | None) -> XlaMetricsRead:
        """The event, with the number of compilations after warm-up and what the steps after it ran."""
        runtime, total = self._runtime, self._total
        executes = [runtime.metric(name) for name in ("ExecuteTime", "ExecuteReplicatedTime")]
        fallbacks = {
            name.removeprefix("aten::"): int(total(name, count)) for name, count in runtime.fallbacks().items()
        }
        return XlaMetricsRead(
            t=time.time(),
            compiles=int(total("compiles", runtime.metric("CompileTime")[0])),
            compile_s=total("compile_s", runtime.compile_s()),
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

    def _total(self, name: str, now: float) -> float:
        counter = self._totals.setdefault(name, ResettableTotal())
        counter.read(now)
        return counter.value

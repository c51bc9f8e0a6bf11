"""Published peak of a TPU core, and how much of it a run uses. Pure.

A matrix unit multiplies bfloat16. XLA's default precision rounds float32 operands to bfloat16, so the same peak holds
for both, and only bfloat16 has a published one. Other precisions (`high`, `highest`) take 3 and 6 passes.
"""

from __future__ import annotations

import math

from tputui.state.chart_data import ThroughputView
from tputui.state.snapshot import FlopsView
from tputui.telemetry.events import FlopsCounted, TopologyDeclared

TERA = 1e12
PEAK_FLOPS_PER_CORE = {
    "TPU v2": 180 * TERA / 8,
    "TPU v3": 123 * TERA / 2,
    "TPU v4": 275 * TERA,
    "TPU v5e": 197 * TERA,
    "TPU v5p": 459 * TERA,
    "TPU v6e": 918 * TERA,
    "TPU v7x": 2307 * TERA / 2,
}
"""bfloat16 operations per second of a core as the runtime counts cores, by kind of chip.

From docs.cloud.google.com/tpu/docs (pages v3, v4, v5e, v5p, v6e, tpu7x), which state the peak of a chip. The runtime
has two cores per chip on v2, v3 and v7x; the two TensorCores of v4 and v5p are one. v2: 180 teraflops for the 8 cores
of a v2-8, as announced with Cloud TPU.
"""


def flops_view(
    counted: FlopsCounted | None, topology: TopologyDeclared | None, throughput: ThroughputView | None
) -> FlopsView | None:
    """The utilisation of the cores; None if the run does not report the operations of a step."""
    if counted is None:
        return None
    flops, why_no_flops = counted.flops_per_step, counted.reason or "the operations of a step are not known"
    if flops is None or not math.isfinite(flops) or flops <= 0:
        return FlopsView(flops_per_step=None, peak_flops_per_s=None, mfu=None, reason=why_no_flops)
    peak, why_no_peak = peak_of(topology)
    mfu, reason = None, why_no_peak
    if peak is not None:
        step_s = throughput.step_p50_s if throughput is not None else 0.0
        mfu = flops / (step_s * peak) if step_s > 0 else None
        if mfu is None or not math.isfinite(mfu):
            mfu, reason = None, "no report of the step time yet"
    return FlopsView(flops_per_step=flops, peak_flops_per_s=peak, mfu=mfu, reason=reason)


def peak_of(topology: TopologyDeclared | None) -> tuple[float | None, str | None]:
    """The peak of all cores in operations per second, or why it is not known."""
    if topology is None:
        return None, "the device is not known yet"
    if topology.chip is None:
        if topology.device.upper() == "TPU":
            return None, "the kind of TPU is not known"
        if topology.device == "unknown":
            return None, "the device is not known"
        return None, f"no published peak for a {topology.device} device"
    per_core = PEAK_FLOPS_PER_CORE.get(topology.chip)
    if per_core is None or topology.num_cores <= 0:
        return None, f"no published peak for {topology.chip}"
    return per_core * topology.num_cores, None

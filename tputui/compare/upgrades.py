"""Packages of which two runs used different versions, joined to what got slower. Not a proof: other things may differ,
too, which the comparison lists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tputui.compare.verdict import PaceVerdict
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.state.snapshot import Snapshot

NAMED = frozenset(
    {"accelerate", "equinox", "flax", "grain", "jax", "jaxlib", "keras", "libtpu", "lightning", "numpy", "optax"}
    | {"orbax-checkpoint", "tensorflow", "torch", "torch-tpu", "torch-xla", "torch_xla", "torchvision", "transformers"}
)
"""Packages that what is measured here may depend on."""
SLOWER_FROM = 1.2
"""Ratio from which a time is named ..."""
SECONDS_MIN = 1.0
"""... if it is so many seconds more, since the noise of a single one is not known."""
PACKAGES_MAX = 4


def upgrade(
    pace: PaceVerdict,
    run: Snapshot,
    base: Snapshot,
    code: Mapping[str, Any] | None,
    base_code: Mapping[str, Any] | None,
) -> str | None:
    """`B: jax 0.10.1 -> 0.10.2: trace time x 1.6`; None if no package differs, or nothing is slower. The codes are
    the records of both, None for a run without one."""
    changed = list(_changed(code, base_code))
    step_ratio = 1 / pace.ratio if pace.ratio and pace.stands_out else None
    slower = [f"{name} x {ratio:.1f}" for name, ratio in _slower(run, base, step_ratio)]
    if not changed or not slower:
        return None
    further = f" and {len(changed) - PACKAGES_MAX} more" if len(changed) > PACKAGES_MAX else ""
    return f"{pace.label}: {', '.join(changed[:PACKAGES_MAX])}{further}: {', '.join(slower)}"


def _changed(code: Mapping[str, Any] | None, base: Mapping[str, Any] | None) -> Iterator[str]:
    packages, before = ((one or {}).get("packages") or {} for one in (code, base))
    for name in sorted(NAMED & packages.keys() & before.keys()):
        if packages[name] != before[name]:
            yield f"{name} {before[name]} -> {packages[name]}"


def _slower(run: Snapshot, base: Snapshot, step_ratio: float | None) -> Iterator[tuple[str, float]]:
    if step_ratio is not None and step_ratio >= SLOWER_FROM:
        yield "step time", step_ratio
    for name, of in (("trace time", _trace_s), ("compile time", _compile_s)):
        (seconds, number), (before_s, before) = of(run), of(base)
        if number and before and before_s > 0:
            each = before_s / before
            if seconds / number >= SLOWER_FROM * each and seconds - each * number >= SECONDS_MIN:
                yield name, seconds / number / each


def _trace_s(run: Snapshot) -> tuple[float, int]:
    """Seconds of tracing, and the steps that were traced; 0 if they are not known."""
    steps = DiagnosedRun.of(run).steps
    seconds = run.time_spent.sections_s.get("trace", 0.0) if run.time_spent is not None else 0.0
    return (seconds, steps) if steps >= STEPS_MIN else (0.0, 0)


def _compile_s(run: Snapshot) -> tuple[float, int]:
    """Seconds of tracing and compiling the first programs, and the number of these; those of a cache do not count."""
    groups = [one for one in run.evidence.compiles if one.warm_up]
    return math.fsum(one.seconds - one.cached_s for one in groups), sum(one.count - one.num_cached for one in groups)

"""Rules about shapes and types that fill a TPU badly. Without a TPU they are hints: nothing is lost there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.facts import Facts
from tputui.diagnosis.verdict import Verdict
from tputui.state.evidence_groups import Line
from tputui.telemetry.events import MatmulObserved

ROWS = 8
"""A TPU stores the second-last dimension of an array in tiles of 8 (the layout T(8,128) of its programs) ..."""
COLUMNS = 128
"""... and the last one in tiles of 128, the width of its matrix unit before v6e."""
WASTE_SHARE = 0.30
"""Share of padded multiplications from which it is a finding: XProf's bound for data shuffling."""
FLOPS_MIN = 1e9
"""Multiplications of a program on one core from which shapes matter: less takes 0.1 ms on the slowest TPU."""


class _Waste(NamedTuple):
    matmul: MatmulObserved
    flops: float
    padded: float


def batch_multiple(facts: Facts) -> Iterator[Verdict]:
    """A batch per core that does not fill the rows of a TPU's tiles."""
    plan = facts.snapshot.plan
    if plan is None or plan.batch_per_core <= 0 or plan.batch_per_core % ROWS == 0:
        return
    full = -(-plan.batch_per_core // ROWS) * ROWS
    yield facts.verdict(
        "batch_multiple",
        f"{fmt.counted(plan.batch_per_core, 'example')} per core are padded to {full} on a TPU",
        status="hint",
        evidence=[f"a TPU processes {ROWS} rows at a time"],
        fix=f"use {full} examples per core; they take the same time",
        change=facts.change("data.batch_per_core", full),
    )


def feature_multiple(facts: Facts) -> Iterator[Verdict]:
    """Matrix multiplications that are mostly padding."""
    wastes = [_waste(matmul) for program in facts.evidence.programs for matmul in program.matmuls or ()]
    flops, padded = sum(one.flops for one in wastes), sum(one.padded for one in wastes)
    if flops < FLOPS_MIN or 1 - flops / padded < WASTE_SHARE:
        return
    worst = max(wastes, key=lambda one: one.padded - one.flops)
    matmul = worst.matmul
    sizes = f"{matmul.dtype}[{matmul.m},{matmul.k}] x [{matmul.k},{matmul.n}]"
    to = f"[{_up(matmul.m, ROWS)},{_up(matmul.k, COLUMNS)}] x [{_up(matmul.k, COLUMNS)},{_up(matmul.n, COLUMNS)}]"
    yield facts.verdict(
        "feature_multiple",
        f"{(1 - flops / padded) * 100:.0f} % of the matrix multiplications are padding on a TPU",
        line=Line.of(matmul.user_frame, None),
        status="found" if facts.is_on_tpu else "hint",
        evidence=[f"{sizes} is padded to {to}, {fmt.count(matmul.count)} times in a program"],
        fix=f"use features that are multiples of {COLUMNS}, and rows that are multiples of {ROWS}",
    )


def padding_share(facts: Facts) -> float | None:
    """Share of the matrix multiplications that is padding on a TPU; None if none were observed."""
    wastes = [_waste(matmul) for program in facts.evidence.programs for matmul in program.matmuls or ()]
    padded = sum(one.padded for one in wastes)
    return 1 - sum(one.flops for one in wastes) / padded if padded else None


def _waste(matmul: MatmulObserved) -> _Waste:
    times = 2.0 * max(0, matmul.batch) * max(0, matmul.count)
    m, k, n = (max(0, size) for size in (matmul.m, matmul.k, matmul.n))
    padded = float(_up(m, ROWS)) * _up(k, COLUMNS) * _up(n, COLUMNS)
    return _Waste(matmul, times * m * k * n, times * padded)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def precision(facts: Facts) -> Iterator[Verdict]:
    """Training in float32, although the TPU multiplies bfloat16."""
    plan = facts.snapshot.plan
    is_float32 = plan is not None and plan.precision == "fp32"
    matmuls = [matmul for program in facts.evidence.programs for matmul in program.matmuls or ()]
    flops = {matmul.dtype: 0.0 for matmul in matmuls}
    for matmul in matmuls:
        flops[matmul.dtype] += _waste(matmul).flops
    total = sum(flops.values())
    share = flops.get("f32", 0.0) / total if total else None
    if share is not None and share < 0.5:
        return
    if not (is_float32 and facts.is_on_tpu) and total < FLOPS_MIN:
        return
    evidence = [f"{share * 100:.0f} % of the matrix multiplications are float32"] if share is not None else []
    yield facts.verdict(
        "precision",
        "training in float32 moves twice the bytes of bfloat16",
        status="hint",
        evidence=evidence or ["the plan of the run"],
        fix='try bfloat16: device.precision = "bf16", or torch.autocast("xla", dtype=torch.bfloat16)',
        change=facts.change("device.precision", "bf16") if is_float32 else None,
    )

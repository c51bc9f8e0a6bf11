"""Phrases that the screen, `show`, `check` and the lines of `--no-ui` share: recompiles, executions, damage."""

from __future__ import annotations

from tputui import formatting as fmt
from tputui.state.snapshot import DamageRegion, XlaView
from tputui.telemetry.journal import Damage

SCALAR_READS = ".item(), float(), if tensor"
"""Ways in which the code of a task reads a scalar from the device."""


def recompiles(xla: XlaView) -> str:
    """`0 after warm-up` if that is known; else what is known."""
    if xla.recompiles or xla.is_never_recompiled:
        return f"{fmt.count(xla.recompiles)} after warm-up"
    return "0 at syncs, others not counted" if xla.steps is None else "0, warm-up not over"


def executes_a_step(xla: XlaView) -> str:
    """`2.0 a step where 1 is expected`; empty if no step was counted."""
    executes, expected = xla.executes_a_step, xla.expected_a_step
    if executes is None or expected is None:
        return ""
    beside = f" where {expected:.3g} {'is' if expected == 1 else 'are'} expected" if xla.has_extra_executes else ""
    return f"{executes:.1f} a step{beside}"


def reads_a_step(xla: XlaView) -> str:
    """`1.0 scalars a step (.item(), float(), if tensor)`; empty if no step was counted."""
    reads = xla.reads_a_step
    if reads is None:
        return ""
    if reads <= 0:
        return "0 a step"
    return f"{reads:.1f} scalars a step ({SCALAR_READS})" if reads >= 0.1 else f"{reads:.1g} scalars a step"


def damage(region: Damage | DamageRegion) -> str:
    """Damage in a journal: `worker-0.jsonl, bytes 120 to 371: its checksum does not match (1 event lost)`."""
    where = f", bytes {region.start} to {region.end}" if region.end > region.start else ""
    lost = "unknown number of events" if region.lost_records is None else fmt.counted(region.lost_records, "event")
    return f"{region.journal}{where}: {region.reason} ({lost} lost)"

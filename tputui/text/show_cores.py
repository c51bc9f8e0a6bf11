"""The cores on the page of `tputui show`."""

from __future__ import annotations

import math
from typing import Any

from tputui import formatting as fmt
from tputui.state.snapshot import Snapshot
from tputui.text import phrases
from tputui.text.phrases import row


def lines(snapshot: Snapshot) -> list[str]:
    """The cores; then the one that is slower than the others, or why that is not known."""
    found = _losses(snapshot)
    if (slow := snapshot.slow_core) is not None:
        steps = f"{fmt.counted(slow.num_steps, 'step')} since step {slow.first_step:,}"
        found.append(
            row(
                "slow core",
                f"{phrases.core_name(snapshot, slow.core)}: {fmt.slower(slow.share)} than the others for {steps}",
            )
        )
    if snapshot.compute_reason is not None:
        found.append(row("core times", snapshot.compute_reason))
    return found


def _losses(snapshot: Snapshot) -> list[str]:
    """One line per core, or the minimum and maximum loss if there are more than 16 cores."""
    if len(snapshot.cores) <= 16:
        return [
            row(
                f"core {core.core}",
                core.host,
                f"loss {fmt.number(core.loss)}",
                f"step {core.step}",
                f"time {fmt.duration(core.compute_s)}" if core.compute_s is not None else "",
                core.condition,
            )
            for core in snapshot.cores
        ]
    finite = sorted((core for core in snapshot.cores if core.loss is not None and math.isfinite(core.loss)), key=_loss)
    if not finite:
        return [row("cores", f"{len(snapshot.cores)}, none with a finite loss")]
    low, high = finite[0], finite[-1]
    ends = (f"{fmt.number(one.loss)} on {phrases.core_name(snapshot, one.core)}" for one in (low, high))
    spread = " to ".join(ends)
    return [row("train loss", spread, f"{len(finite)} of {len(snapshot.cores)} cores are finite")]


def _loss(core: Any) -> float:
    loss: float = core.loss
    return loss

"""The wall times of the newest steps of a process, one by one, as it reported them: decoded only when a rule asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec

from tputui.state.evidence_groups import Seconds, is_duration
from tputui.state.state_struct import Count, Record
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks

STEPS_KEPT = 4_096
"""Newest steps: eight times the longest period that is looked for."""
_BLOCK_CHARS_MAX = 1 << 15


class TimedSteps(Record, frozen=True):
    """The steps of a report."""

    last: Count
    num: Count
    block: Annotated[str, msgspec.Meta(max_length=_BLOCK_CHARS_MAX)]
    waited_s: Seconds
    """Time of waiting for batches; 0 if it is not measured."""
    num_full: Count
    """Garbage collections of all generations at once."""
    collected_s: Seconds | None
    """Time of the garbage collections of any generation; None if it is not measured."""


def timed(event: ev.ProgressReported) -> TimedSteps | None:
    """The steps of a report; None if they are not timed, or make no sense."""
    seconds = (event.waited_s, *event.collections_s)
    if not 0 < event.timed_steps <= event.step or len(event.steps_s) > _BLOCK_CHARS_MAX:
        return None
    if not all(map(is_duration, seconds)) or any(count < 0 for count in event.collections):
        return None
    num_full = event.collections[2] if len(event.collections) > 2 else 0
    collected_s = min(math.fsum(event.collections_s), ev.T_MAX) if event.collections_s else None
    return TimedSteps(event.step, event.timed_steps, event.steps_s, event.waited_s or 0.0, num_full, collected_s)


def with_newest(reports: list[TimedSteps], event: ev.ProgressReported) -> list[TimedSteps]:
    """The reports with a further one, as far back as they are stored; only its own if steps are missing between."""
    if (newest := timed(event)) is None:
        return []
    if reports and reports[-1].last != newest.last - newest.num:
        return [newest]
    kept = [*reports, newest]
    while sum(one.num for one in kept[1:]) >= STEPS_KEPT:
        del kept[0]
    return kept


def times_of(reports: Sequence[TimedSteps]) -> list[float]:
    """Wall time of each step, in order; NaN where it is not known."""
    times: list[float] = []
    for one in reports:
        try:
            times += float_blocks.unpack(one.block, one.num).tolist()
        except float_blocks.BlockError:
            times += [math.nan] * one.num
    return times

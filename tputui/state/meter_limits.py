"""Limits the meters and durations of an event before the reducer stores them. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tputui.telemetry import events as ev
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import class_of, first_of

MeterT = TypeVar("MeterT", ev.MeterReading, float)

BOUNDED = frozenset({ev.MetersReported, ev.EpochEnded})
"""Events whose size is limited before they are stored."""
METERS_MAX = 256
"""Per report; thousands of meters would block every view."""
SECONDS_MAX = 1e9
"""Longest section of an epoch that is believed: 30 years."""


def limited(event: ev.Event) -> tuple[ev.Event, str | None]:
    """The event without invalid durations and with at most `METERS_MAX` meters, and a warning if some were left out."""
    if isinstance(event, ev.MetersReported) and len(event.meters) > METERS_MAX:
        return msgspec.structs.replace(event, meters=_few(event.meters, event.split)), _excess(len(event.meters))
    if not isinstance(event, ev.EpochEnded):
        return event, None
    if not all(map(_is_length, (*event.sections_s.values(), *event.trace_s.values()))):
        sections_s = {name: s for name, s in event.sections_s.items() if _is_length(s)}
        trace_s = {name: s for name, s in event.trace_s.items() if _is_length(s)}
        event = msgspec.structs.replace(event, sections_s=sections_s, trace_s=trace_s)
    most = max(len(event.train), len(event.valid), len(event.scores))
    if most <= METERS_MAX:
        return event, None
    few = msgspec.structs.replace(
        event,
        train=_few(event.train, "train"),
        valid=_few(event.valid, "valid"),
        scores=_few(event.scores, "valid"),
    )
    return few, _excess(most)


def _few(readings: dict[str, MeterT], split: Split) -> dict[str, MeterT]:
    """The meters that are shown: all, or `METERS_MAX` with the losses among them."""
    names = first_of(list(readings), METERS_MAX, lambda name: class_of(name, split))
    return readings if len(names) == len(readings) else {name: readings[name] for name in names}


def _excess(num_meters: int) -> str:
    return f"{num_meters:,} meters are reported at once; {METERS_MAX} are shown, losses first"


def _is_length(seconds: float) -> bool:
    """Whether a number is a plausible duration in seconds; NaN is not."""
    return -SECONDS_MAX <= seconds <= SECONDS_MAX

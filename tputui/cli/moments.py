"""A moment of a run as a person writes it: `--at 01:12:30`, `90s`, `step:1200`, `epoch:3`, `2025-10-09 10:01:10`.

Must not read journals itself: `Session` does.
"""

from __future__ import annotations

import argparse
import datetime
import math
import re
from pathlib import Path
from typing import Literal, NamedTuple

from tputui import formatting as fmt
from tputui.cli.console import CommandError
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.telemetry import events as ev

FORMS = "01:12:30 or 90s since the start, step:1200, epoch:3, a time of the day as T14:03:07, 2025-10-09T14:03:07, end"
"""What may be written."""

_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([dhms])", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]\d(?:\.\d+)?)", re.ASCII)
_NUMBERED = re.compile(r"(step|epoch):([\d,_]+)", re.ASCII)


class Moment(NamedTuple):
    """A moment, as it was written."""

    text: str
    kind: Literal["since", "step", "epoch", "clock", "day", "end"]
    value: float
    """Seconds since the start, a step, an epoch, unix time, or seconds since midnight of the viewer's day."""


def moment(text: str) -> Moment:
    """Reads a moment; for `type=` of an option. Raises `ArgumentTypeError`."""
    word = text.strip().lower()
    if word == "end":
        return Moment(text, "end", math.inf)
    if numbered := _NUMBERED.fullmatch(word):
        number = int(numbered[2].replace(",", "").replace("_", "") or 0)
        if number < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is none: steps and epochs count from 1")
        return Moment(text, "step" if numbered[1] == "step" else "epoch", number)
    if clock := _CLOCK.fullmatch(word):
        hours, minutes, seconds = clock.groups()
        return Moment(text, "since", int(hours or 0) * 3_600 + int(minutes) * 60 + float(seconds))
    if word and not _SPAN.sub("", word):
        return Moment(text, "since", sum(float(number) * _UNIT_S[unit] for number, unit in _SPAN.findall(word)))
    return _by_calendar(text.strip())


def resolved(wanted: Moment, run_dir: Path) -> float:
    """The unix time of a moment of a run. Raises `CommandError` where the run has no such moment."""
    start, end, _ = session.extent(run_dir)
    if wanted.kind == "end":
        return end
    t = _found(wanted, run_dir, start)
    if not start <= t <= end:
        where = "before its start" if t < start else "after its end"
        length = fmt.duration(end - start)
        raise CommandError(
            ExitCode.USAGE,
            f"--at {wanted.text} is {where}: the run goes from {spelled(start)} to {spelled(end)}, {length}",
        )
    return t


def spelled(t: float) -> str:
    """A unix time as the viewer's clock shows it: `2025-10-09 10:01:10`."""
    try:
        return datetime.datetime.fromtimestamp(t).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _found(wanted: Moment, run_dir: Path, start: float) -> float:
    if wanted.kind == "since":
        return start + wanted.value
    if wanted.kind == "clock":
        return wanted.value
    if wanted.kind == "day":
        midnight = datetime.datetime.fromtimestamp(start).replace(hour=0, minute=0, second=0, microsecond=0)
        t = midnight.timestamp() + wanted.value
        return t if t >= start - 1.0 else (midnight + datetime.timedelta(days=1)).timestamp() + wanted.value
    return _reached(wanted, run_dir)


def _reached(wanted: Moment, run_dir: Path) -> float:
    """When a step was told done, or an epoch begun, by the first process that told."""
    number, most, times = int(wanted.value), 0, [math.inf]
    for fact in session.read_events(run_dir):
        told = _step(fact.event) if wanted.kind == "step" else _epoch(fact.event)
        most = max(most, told)
        if told >= number and math.isfinite(fact.event.t):
            times.append(fact.event.t)
            if wanted.kind == "epoch" and told == number:
                break
    if times == [math.inf]:
        what = f"{wanted.kind}s 1 to {fmt.count(most)}" if most else f"no {wanted.kind} yet"
        raise CommandError(ExitCode.USAGE, f"--at {wanted.text}: the run has {what}")
    return min(times)


def _step(event: ev.Event) -> int:
    if isinstance(event, ev.StepsRecorded):
        return event.first + event.n - 1
    return event.step if isinstance(event, ev.ProgressReported | ev.EpochEnded) else 0


def _epoch(event: ev.Event) -> int:
    return event.epoch if isinstance(event, ev.EpochStarted) else 0


def _by_calendar(text: str) -> Moment:
    try:
        if text[:1] in ("T", "t"):
            of_day = datetime.time.fromisoformat(text[1:])
            return Moment(
                text, "day", of_day.hour * 3_600 + of_day.minute * 60 + of_day.second + of_day.microsecond / 1e6
            )
        return Moment(text, "clock", datetime.datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is no moment of a run; write {FORMS}") from None

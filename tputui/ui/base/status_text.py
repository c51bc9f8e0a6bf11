"""Texts and signs that several panels share: conditions, phases, placeholders, receipts of requests.

A condition has a word and a sign besides its colour, so that no meaning rests on colour alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tputui import formatting as fmt
from tputui.state.run_condition import ENDED, RunCondition
from tputui.telemetry import events as ev
from tputui.telemetry.events import Phase, RequestKind
from tputui.ui.render.lines import Sign, clean

if TYPE_CHECKING:
    from tputui.state.snapshot import RequestView, SkippedView, Snapshot

CONDITIONS: dict[RunCondition, Sign] = {
    "starting": Sign("\u25cc", "info", "STARTING"),
    "running": Sign("\u25cf", "good", "RUNNING"),
    "stalled": Sign("\u25b2", "warn", "STALLED"),
    "done": Sign("\u2714", "good", "DONE"),
    "stopped": Sign("\u25a0", "info", "STOPPED"),
    "failed": Sign("\u2716", "bad", "FAILED"),
    "lost": Sign("?", "bad", "LOST"),
}


def sign_of(condition: RunCondition, num_non_finite: int) -> Sign:
    """The sign of the condition of a run; a warning instead of good once it has NaN or infinite values."""
    sign = CONDITIONS[condition]
    return sign._replace(mark="\u25b2", tone="warn") if num_non_finite and sign.tone == "good" else sign


REQUEST_NAMES: dict[RequestKind, str] = {
    "checkpoint": "checkpoint",
    "stop": "stop",
    "stop_after_epoch": "stop after the epoch",
    "stop_now": "stop at once",
    "stacks": "stacks",
    "trace": "profile",
}
_APPLIED: dict[RequestKind, str] = {
    "checkpoint": "checkpoint saved at step",
    "stop": "stopped at step",
    "stop_after_epoch": "stopped at step",
    "stop_now": "stopped at step",
    "stacks": "stacks taken at step",
    "trace": "profile written at step",
}
"""The result of a request, before the step."""


def seconds(value: float) -> str:
    """A duration that is updated continuously, in whole seconds so that it does not flicker."""
    return "< 1 s" if value < 1 else fmt.duration(float(int(value)) if value < 60 else value).replace(".0 s", " s")


def age(value: float) -> str:
    """An age in whole seconds, from a minute on in minutes: a run without news is drawn once a minute then."""
    return "< 1 s" if value < 1 else fmt.age(value)


def hidden_columns(number: int) -> str:
    """The note of a table that has no room for some columns: `+17 columns (enter)`."""
    return f"+{fmt.counted(number, 'column')} (enter)"


def clock(seconds: float) -> str:
    """A time in a run: `1:02:07`, `02:07`."""
    whole = int(seconds)
    minutes = f"{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else minutes


def phase_in_short(phase: Phase | None, phase_s: float) -> str:
    """The phase in one word, with its age from 1 s; empty if the run does not report it."""
    if phase in (None, "unknown"):
        return ""
    return phase if phase_s < 1 else f"{phase} {age(phase_s)}"


def phase_with_age(phase: Phase | None, phase_s: float) -> str:
    """`executing`, or `compiling 94 s` with its age from 1 s; empty if the run does not report it."""
    if phase is None or phase == "unknown":
        return ""
    text = "imports, building data and model" if phase == "starting" else fmt.PHASES[phase]
    return text if phase_s < 1 else f"{text} {age(phase_s)}"


def nothing_yet(snapshot: Snapshot, what: str, *, verb: str = "reported") -> str:
    """The text of an empty panel. What a run does before its first step is in the checklist of the loss panel."""
    if snapshot.phase == "unknown" and snapshot.condition in ENDED:
        return f"no {what}: the command {verb} none"
    if snapshot.phase == "unknown":
        return f"no {what} yet: the command has {verb} none"
    if snapshot.condition in ENDED:
        return f"no {what}; the run has ended"
    return f"no {what} yet"


def receipt(request: RequestView, checkpoints: list[ev.CheckpointSaved]) -> str:
    """The state of a request: `checkpoint: seen while evaluating`, `checkpoint saved at step 88, 353 KiB, 50 ms, PATH`.

    The path is last, because a narrow terminal cuts the end.
    """
    if request.state == "applied":
        applied = [fmt.count(request.applied_step), *([clean(request.why)] if request.why else [])]
        return f"{_APPLIED[request.kind]} {', '.join([*applied, *_saved(request, checkpoints)])}"
    parts = []
    if request.seen_phase is not None:
        parts.append(fmt.seen_while(request.seen_phase))
    if request.state == "requested":
        parts.append("requested; no answer from the run yet")
    elif request.state == "refused":
        parts.append(f"refused: {clean(request.why or 'no reason given')}")
    return f"{REQUEST_NAMES[request.kind]}: {' -> '.join(parts)}"


def _saved(request: RequestView, checkpoints: list[ev.CheckpointSaved]) -> list[str]:
    if request.path is None:
        return []
    path = clean(request.path)
    for checkpoint in reversed(checkpoints):
        if checkpoint.path == request.path:
            return [fmt.size(checkpoint.bytes), fmt.duration(checkpoint.seconds), path]
    return [path]


def left_out(skipped: SkippedView) -> str:
    """`3 of at most 10 examples left out`."""
    return f"{fmt.count(skipped.count)} of at most {fmt.count(skipped.limit)} examples left out"


def time_of_day(t: float) -> str:
    """A unix time in local time; a run from an untrusted source may contain an invalid one."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(t))
    except (OverflowError, ValueError, OSError):
        return fmt.UNKNOWN

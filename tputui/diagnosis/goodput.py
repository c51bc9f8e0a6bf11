"""Goodput: how much of the wall time of a run, with the runs that it continues, went into training that was kept. Pure.

Runs of one family follow each other: each resumes from a checkpoint of the one before. Work after that checkpoint is
lost, and the time from a run that failed or was lost to the next one is downtime. Time after a run that was done, or
stopped on request, does not count: nobody wanted to train. The parts partition the wall time: their sum is it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal, NamedTuple

import msgspec

from tputui.diagnosis.diagnosed_run import DiagnosedRun, is_trained_by_engine
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot, hides_steps
from tputui.state.time_spent import Measured, TimeView, partition

Part = Literal[
    "steps", "evaluation", "init", "compile", "data", "checkpoint", "lost", "stall", "downtime", "other"
]  # fmt: skip
PARTS: Mapping[Part, str] = {
    "steps": "training steps that were kept",
    "evaluation": "evaluation",
    "init": "start: imports, data, model, restore",
    "compile": "compiling",
    "data": "waiting for data",
    "checkpoint": "saving checkpoints",
    "lost": "work after the checkpoint from which training resumed",
    "stall": "no progress",
    "downtime": "after a failure until the next run, and restarts of the training processes",
    "other": "everything else",
}
"""What the time went into, by part."""
PRODUCTIVE: frozenset[Part] = frozenset({"steps", "evaluation"})

_PART_OF: Mapping[str, Part] = {
    "data": "data",
    "trace": "steps",
    "compile": "compile",
    "execute": "steps",
    "wait": "steps",
    "report": "steps",
    "evaluate": "evaluation",
    "save": "checkpoint",
    "stall": "stall",
    "lost": "lost",
    "restart": "downtime",
}


class TimeOfRun(NamedTuple):
    """The times of one run."""

    run: str
    began: float
    """Unix time of its first event."""
    until: float
    """Unix time of its end, of its newest event if it is lost, or the present."""
    time: TimeView | None
    """Where the time of training went; None if it never began."""
    steps: int
    """Newest step that was done."""
    is_over: bool
    """Whether it ended or is lost; otherwise none of its work is lost so far."""
    kept_whole: bool
    """Whether it ended with its state saved or done, so that nothing is lost unless a later run resumes earlier."""
    resumed_from: str | None = None
    """Path of the checkpoint of the run before that it resumed."""
    ended_on_purpose: bool = False
    """Whether it was done, or stopped on request, so that no run was missing afterwards."""
    restarts: int = 0
    """How often its training processes were restarted."""
    lost_steps: int = 0
    """Steps that were trained again after these restarts."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """The wall time of a family of runs, by part."""

    runs: list[str]
    """Names of the runs, oldest first."""
    wall_s: float
    """From the first event of the first run to the end of the last one, or to the present. The time from a run that was
    done, or stopped on request, to the next one does not count."""
    parts_s: dict[str, float]
    """Seconds by part; their sum is `wall_s`. Empty if they are not known."""
    share: float | None
    """Share of the wall time that went into steps that were kept, and evaluation; null if it is not known."""
    reason: str | None = None
    """Why it is not known; null if it is."""
    lost_steps: int
    """Steps that were reported, and lost."""
    restarts: int
    """Number of times that training was resumed, by a new run or by new processes of the same run."""


def unknown_reason(snapshot: Snapshot) -> str | None:
    """Why the parts of a run's time are not known; None if they are."""
    if hides_steps(snapshot):
        return "the number of steps is not known"
    if snapshot.time_spent is not None:
        return None
    if snapshot.epoch or snapshot.steps:
        return "the run does not report what its time goes into"
    if snapshot.condition not in ENDED:
        return "training has not begun"
    # A run of the engine that trained nothing spent all of its time on its start; a script may have trained unseen.
    return None if is_trained_by_engine(snapshot.config) else "the command reported no steps"


def unknown_goodput(snapshot: Snapshot, reason: str) -> Goodput:
    """The goodput of a run of which only the wall time is known."""
    runs, wall_s = [snapshot.run], DiagnosedRun.of(snapshot).wall_s
    return Goodput(runs=runs, wall_s=wall_s, parts_s={}, share=None, reason=reason, lost_steps=0, restarts=0)


def goodput_of(snapshot: Snapshot) -> Goodput:
    """The goodput of a run by itself; without parts and with a reason if they are not known."""
    own_time = run_time(snapshot)
    if own_time is None:
        return unknown_goodput(snapshot, unknown_reason(snapshot) or "the run has no events")
    return goodput([own_time])


def run_time(snapshot: Snapshot) -> TimeOfRun | None:
    """The times of a run; None if they are not known."""
    time, began = snapshot.time_spent, snapshot.started
    is_over = snapshot.condition in ENDED
    if began is None or unknown_reason(snapshot) is not None:
        return None
    until = snapshot.now if not is_over else snapshot.ended or snapshot.newest_fact or began
    return TimeOfRun(
        run=snapshot.run,
        began=began,
        until=max(until, time.until) if time is not None else until,
        time=time,
        steps=snapshot.steps,
        is_over=is_over,
        kept_whole=snapshot.condition == "done",
        resumed_from=snapshot.details.resumed_from,
        ended_on_purpose=snapshot.condition in ("done", "stopped"),
        restarts=sum(1 for generation in snapshot.generations if generation.number),
        lost_steps=sum(generation.lost_steps for generation in snapshot.generations),
    )


def goodput(runs: Sequence[TimeOfRun]) -> Goodput:
    """The goodput of the runs of one family, in order of time, of which the last one continues earlier ones.

    Raises `ValueError` if there is none.
    """
    if not runs:
        raise ValueError("goodput needs a run")
    parts = dict.fromkeys(PARTS, 0.0)
    lost_steps, unwanted_s = sum(run.lost_steps for run in runs), 0.0
    kept_of = _kept_of(runs)
    for run, later in zip(runs, [*runs[1:], None], strict=True):
        # A run that ended after the next one had begun counts up to that moment.
        end = run.until if later is None else max(run.began, min(run.until, later.began))
        kept = kept_of[run.run]
        for part, seconds in _parts(run, end, kept).items():
            parts[part] += seconds
        if kept is not None and run.time is not None:
            lost_steps += max(0, run.steps - max(kept.step, run.time.first_step - 1))
        if later is not None and run.ended_on_purpose:
            unwanted_s += max(0.0, later.began - end)
        elif later is not None:
            parts["downtime"] += max(0.0, later.began - end)
    wall_s = max(0.0, runs[-1].until - runs[0].began - unwanted_s)
    # Rounding, and runs whose clocks disagree.
    parts["other"] += wall_s - math.fsum(parts.values())
    if min(parts.values()) < 0:
        parts = partition(parts, wall_s)
    productive_s = math.fsum(parts[part] for part in PRODUCTIVE)
    return Goodput(
        runs=[run.run for run in runs],
        wall_s=wall_s,
        parts_s=dict[str, float](parts.items()),
        share=productive_s / wall_s if wall_s > 0 else 0.0,
        lost_steps=lost_steps,
        restarts=len(runs) - 1 + sum(run.restarts for run in runs),
    )


def _parts(run: TimeOfRun, end: float, kept: Measured | None) -> dict[Part, float]:
    """Seconds of one run by part, from its first event to `end`."""
    time = run.time
    if time is None:
        return {"init": end - run.began}
    parts: dict[Part, float] = {"init": time.began - run.began}
    aside = {name: seconds for name, seconds in time.sections_s.items() if name in ("stall", "lost", "restart")}
    sections = time.sections_s if kept is None else {**kept.sections_s, **aside}
    # A script that measures no execution reports what its loop does besides its named phases, its steps, as "other".
    rest: Part = "other" if "execute" in sections else "steps"
    for name, seconds in sections.items():
        part = rest if name == "other" else _PART_OF.get(name, "other")
        parts[part] = parts.get(part, 0.0) + seconds
    if kept is not None:
        loop_s = min(time.until, end) - time.began
        parts["lost"] = parts.get("lost", 0.0) + max(0.0, loop_s - math.fsum(sections.values()))
    # From the end of training to the end of the run: other processes end, files are sealed.
    parts["other"] = parts.get("other", 0.0) + end - run.began - math.fsum(parts.values())
    return parts


_NOTHING = Measured(t=0.0, step=0, sections_s={})


def _kept_of(runs: Sequence[TimeOfRun]) -> dict[str, Measured | None]:
    """By run, the checkpoint up to which its work was kept; None if all of it was.

    Nothing is kept of a run that the last one does not continue, such as one that was killed before it had saved.
    """
    by_name, kept = {run.run: run for run in runs}, dict[str, Measured | None]()
    run = runs[-1]
    kept[run.run] = _newest_save(run) if run.is_over and not run.kept_whole else None
    while run.resumed_from is not None:
        parent = PurePath(run.resumed_from).parent.parent.name
        if parent in kept or parent not in by_name:
            break
        child, run = run, by_name[parent]
        kept[parent] = _newest_save(run, child)
    return {run.run: kept.get(run.run, _NOTHING) for run in runs}


def _newest_save(run: TimeOfRun, child: TimeOfRun | None = None) -> Measured:
    """The newest checkpoint of a run, or the one from which another run continues it."""
    saves = list(run.time.saves.values()) if run.time is not None else []
    if child is not None:
        saves = [save for save in saves if save.t <= child.began]
        if child.time is not None:
            saves = [save for save in saves if save.step == child.time.first_step - 1]
    return max(saves, key=lambda save: save.t, default=_NOTHING)

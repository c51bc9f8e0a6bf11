"""Combines what the writers said with what the viewer knows, to one `Snapshot`.

Pure: the moment, the liveness of processes, request files and damage come in as `Surroundings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tputui.model import happenings, parts
from tputui.model.liveness import Verdict, judge
from tputui.model.series import combined
from tputui.model.snapshot import DamageRegion, EpochView, Plan, RequestView, Snapshot
from tputui.model.state import RunState
from tputui.telemetry.events import ProgressReported


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer knows besides the journals."""

    now: float
    """Unix time in seconds of the moment that is looked at."""
    run: str
    """Name of the run's directory."""
    dir: str
    """The run's directory."""
    alive: Mapping[str, bool | None] = {}
    """By writer: whether its process lives; None where it cannot be known."""
    created: float | None = None
    """When the run was asked for, by its manifest."""
    config: dict[str, Any] | None = None
    """The configuration, by its manifest; None where that cannot be read."""
    requests: list[RequestView] = []
    """The request files."""
    damage: list[DamageRegion] = []
    """What of the journals cannot be read."""
    warnings: list[str] = []
    """What the viewer itself met."""


def take(state: RunState, around: Surroundings, verdict: Verdict | None = None) -> Snapshot:
    """Everything that is true of the run at the moment `around.now`.

    `verdict` is what `judge` says then, where the caller has it already.
    """
    now = around.now
    verdict = verdict or judge(state, around.alive, now, around.created)
    run_started = next((w.run_started for w in state.supervisors if w.run_started), None)
    config = around.config if around.config is not None else run_started.config if run_started else {}
    plan, epochs = parts.plan(state), parts.epochs(state)
    progress = _progress(state)
    epoch, epoch_step = _place(state, plan, epochs, progress)
    steps = max((w.steps_done for w in state.workers), default=0) or (plan.first_step - 1 if plan else 0)
    first = state.workers[0] if state.workers else None
    phase, phase_s = parts.phase_of(first, verdict, now) if first else (None, 0.0)
    bad, num_bad = happenings.non_finite(state)
    return Snapshot(
        now=now,
        run=around.run,
        dir=around.dir,
        created=around.created,
        condition=verdict.condition,
        condition_reason=verdict.reason,
        config=config,
        topology=parts.topology(state),
        plan=plan,
        phase=phase,
        phase_s=phase_s,
        newest_fact=state.newest_t,
        started=state.first_t,
        ended=verdict.ended_t,
        epoch=epoch,
        epoch_step=epoch_step,
        steps=steps,
        step_s=progress.step_s if progress else None,
        examples_per_s=progress.examples_per_s if progress else None,
        lr=progress.lr if progress else plan.lr if plan else None,
        report_steps=progress.report_steps if progress else None,
        eta_s=eta_s(state, plan, epochs, now) if verdict.condition == "running" else None,
        cores=parts.cores(state, verdict, now),
        meters=parts.meters(state, epochs),
        epochs=epochs,
        xla=parts.xla(state),
        memory=parts.memory(state),
        checkpoints=happenings.checkpoints(state),
        requests=happenings.requests(state, around.requests),
        non_finite=bad,
        num_non_finite=num_bad,
        dropped_steps=sum(w.dropped_steps for w in state.writers.values()),
        skipped=happenings.skipped(state),
        pictures=happenings.pictures(state),
        warnings=around.warnings + [text for w in state.in_order for text in w.warnings],
        failure=happenings.failure(state),
        exit_code=verdict.exit_code,
        logs=happenings.logs(state),
        loss=combined([w.series["loss"] for w in state.workers if "loss" in w.series]),
        damage=happenings.damage(state, around.damage),
        newer_format=happenings.newer_format(state),
    )


def eta_s(state: RunState, plan: Plan | None, epochs: list[EpochView], now: float) -> float | None:
    """Seconds from `now` to the end of training, at the smoothed step time and the mean cost of an epoch's end."""
    progress = _progress(state)
    pace = next((w.smooth_step_s for w in state.workers if w.smooth_step_s is not None), None)
    if plan is None or progress is None or pace is None:
        return None
    done = max(w.steps_done for w in state.workers)
    ends_left = plan.num_epochs - max((view.epoch for view in epochs), default=0)
    ends = [view.valid_s + view.sections_s.get("save", 0.0) for view in epochs]
    end_s = sum(ends) / len(ends) if ends else 0.0
    told = [w.epochs[view.epoch].t for view in epochs[-1:] for w in state.workers if view.epoch in w.epochs]
    anchor = max([progress.t, *told])
    left = max(0, plan.total_steps - done) * pace + max(0, ends_left) * end_s
    return max(0.0, left - max(0.0, now - anchor))


def _progress(state: RunState) -> ProgressReported | None:
    """The newest word of the first host that reports."""
    return next((w.progress for w in state.workers if w.progress), None)


def _place(
    state: RunState, plan: Plan | None, epochs: list[EpochView], progress: ProgressReported | None
) -> tuple[int, int]:
    """The epoch in training, or the last one, and how many of its steps are done."""
    begun = max((w.epoch_started.epoch for w in state.workers if w.epoch_started), default=0)
    ended = max((view.epoch for view in epochs), default=0)
    epoch = max(begun, ended, progress.epoch if progress else 0)
    if plan and ended == epoch and epoch:
        return epoch, plan.steps_per_epoch
    if progress and progress.epoch == epoch:
        return epoch, progress.epoch_step
    started = next((w.epoch_started for w in state.workers if w.epoch_started), None)
    if plan and started and started.epoch == epoch:
        return epoch, max(0, started.first_step - 1 - (epoch - 1) * plan.steps_per_epoch)
    return epoch, 0

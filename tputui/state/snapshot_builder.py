"""Combines what the writers said with what the viewer knows, to one `Snapshot`.

Pure: the moment, the liveness of processes, request files and damage come in as `ViewerFacts`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from tputui.state import core_series, happenings, history, outlier, process_stacks, root_cause, snapshot_parts, timeline
from tputui.state.liveness import Liveness, judge
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.series import combined
from tputui.state.snapshot import (
    CoreColumn,
    CoreView,
    DamageRegion,
    EpochView,
    OutlierView,
    Plan,
    RequestView,
    Segment,
    Snapshot,
)
from tputui.telemetry.events import ProgressReported

_COLUMNS_JUDGED = 32
"""More than an outlier needs to be named by columns alone."""


class ViewerFacts(msgspec.Struct, frozen=True, kw_only=True):
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
    troubles: list[str] = []
    """What keeps the viewer from seeing all of the run."""


def take(state: RunState, around: ViewerFacts, verdict: Liveness | None = None) -> Snapshot:
    """Everything that is true of the run at the moment `around.now`.

    `verdict` is what `judge` says then, where the caller has it already.
    """
    now = around.now
    verdict = verdict or judge(state, around.alive, now, around.created)
    run_started = next((w.run_started for w in state.supervisors if w.run_started), None)
    # What the run itself recorded comes first: of what the manifest says no record proves that the run took it.
    config = run_started.config if run_started else around.config or {}
    plan, epochs = snapshot_parts.plan(state), snapshot_parts.epochs(state)
    progress = history.newest_progress(state)
    epoch, epoch_step = _place(state, plan, epochs, progress)
    steps = max((w.steps_done for w in state.workers), default=0) or (plan.first_step - 1 if plan else 0)
    first = state.workers[0] if state.workers else None
    phase, phase_s = snapshot_parts.phase_of(first, verdict, now) if first else (None, 0.0)
    bad, num_bad = happenings.non_finite(state)
    running = verdict.condition == "running"
    requests = happenings.requests(state, around.requests)
    loss = _loss(state)
    marks, num_marks = timeline.marks(state, plan, loss, requests, verdict)
    cores = snapshot_parts.cores(state, verdict, now)
    core_columns = _core_columns(state, cores)
    return Snapshot(
        now=now,
        run=around.run,
        dir=around.dir,
        created=around.created,
        condition=verdict.condition,
        condition_reason=verdict.reason,
        config=config,
        topology=snapshot_parts.topology(state),
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
        eta_s=history.eta_s(state, plan, epochs, now) if running else None,
        cores=cores,
        meters=snapshot_parts.meters(state, epochs),
        epochs=epochs,
        xla=snapshot_parts.xla(state),
        memory=snapshot_parts.memory(state),
        checkpoints=happenings.checkpoints(state),
        requests=requests,
        non_finite=bad,
        num_non_finite=num_bad,
        dropped_steps=sum(w.dropped_steps for w in state.writers.values()),
        num_senseless=sum(w.num_senseless for w in state.writers.values()),
        skipped=happenings.skipped(state),
        pictures=happenings.pictures(state),
        warnings=[text for w in state.in_order for text in w.told.warnings],
        failure=root_cause.failure(state),
        exit_code=verdict.exit_code,
        logs=happenings.logs(state),
        loss=loss,
        damage=happenings.damage(state, around.damage),
        newer_format=happenings.newer_format(state),
        troubles=around.troubles,
        core_columns=core_columns,
        outlier=_outlier(state, core_columns),
        marks=marks,
        num_marks=num_marks,
        epoch_starts=timeline.epoch_starts(state),
        throughput=history.throughput(state, plan, epochs, now, going_on=running),
        memory_history=history.memory(state),
        meter_history=history.meters(state),
        stacks=process_stacks.stacks(state, requests),
    )


def _loss(state: RunState) -> list[Segment]:
    writers = [(writer, writer.values.series["loss"]) for writer in state.workers if "loss" in writer.values.series]
    key = tuple((writer.name, series.count) for writer, series in writers)
    # Charts go through the steps in order; a stranger's run may have recorded them in any.
    return state.remembered(
        "loss", key, lambda: sorted(combined([series for _, series in writers]), key=attrgetter("first_step"))
    )


def _core_columns(state: RunState, cores: Sequence[CoreView]) -> list[CoreColumn]:
    writers = [(w, w.values.columns.width) for w in state.workers if w.values.columns.width]
    key = tuple((w.name, w.values.columns.count) for w, _ in writers)
    found = state.remembered(
        "columns",
        key,
        lambda: sorted(
            core_series.combined([(w.values.columns, w.values.cores_of(width)) for w, width in writers]),
            key=attrgetter("first_step"),
        ),
    )
    return _up_to_newest(found, cores)


def _outlier(state: RunState, core_columns: Sequence[CoreColumn]) -> OutlierView | None:
    """The core that is off now, by the newest steps one by one, or else by the newest columns of the whole run."""
    writers = [w for w in state.workers if w.values.columns.width]
    key = tuple((w.name, w.values.columns.count) for w in writers)
    return state.remembered("outlier", key, lambda: _outlier_of(writers, core_columns[-_COLUMNS_JUDGED:]))


def _outlier_of(writers: Sequence[ProcessState], newest: Sequence[CoreColumn]) -> OutlierView | None:
    recent = core_series.rows([(w.values.recent_rows(), w.values.cores_of(w.values.columns.width)) for w in writers])
    by_step = outlier.outlier((outlier.looked_at(step, step, 1, means) for step, means in recent), now=True)
    by_column = outlier.outlier(map(outlier.look_at, newest), now=True)
    if by_step is None or by_column is None or by_step.core != by_column.core:
        return by_step or by_column
    return msgspec.structs.replace(by_step, first_step=min(by_step.first_step, by_column.first_step))


def _up_to_newest(found: list[CoreColumn], cores: Sequence[CoreView]) -> list[CoreColumn]:
    """The columns, the last of which ends with the newest step by itself where that is known and was not sampled."""
    if not found or not found[-1].is_sampled:
        return found
    last, steps = found[-1], {core.step for core in cores}
    newest = [core.loss for core in cores if core.loss is not None]
    if len(newest) != len(last.means) or len(steps) != 1 or not last.middle < (step := steps.pop()) <= last.last_step:
        return found
    means = array("f", newest)
    bad = tuple(core for core, loss in enumerate(means) if not math.isfinite(loss))
    point = CoreColumn(first_step=step, last_step=step, means=means, bad_cores=bad, num_steps=1, middle=float(step))
    return [*found[:-1], msgspec.structs.replace(last, last_step=step - 1), point]


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

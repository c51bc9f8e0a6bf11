"""Builds a `Snapshot` from the state of a run and the context of the viewer.

Pure: the current time, the liveness of processes, request files and damage are passed as `ViewerContext`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import attrgetter
from typing import Any

import msgspec

from tputui.config.script import SCRIPT
from tputui.logs.tags import Role, role_of
from tputui.state import (
    core_views,
    device_views,
    evidence,
    history,
    host_views,
    process_stacks,
    rank_meters,
    root_cause,
    timeline,
)
from tputui.state.aligned import COMBINED_MAX
from tputui.state.chart_data import TRAFFIC_RATES, LoggedView, Segment, ThroughputView
from tputui.state.liveness import Liveness, assess
from tputui.state.peak_flops import flops_view
from tputui.state.reducer import RunState
from tputui.state.run_condition import ENDED, RunCondition
from tputui.state.series import combined, piece_aligner
from tputui.state.slow_host import slow_host
from tputui.state.snapshot import (
    MemoryView,
    MeterView,
    PlanView,
    RequestView,
    RunDetails,
    Snapshot,
)
from tputui.state.xla_view import XlaView, newest_of, num_recompiles
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import (
    EpochEnded,
    HbmReading,
    MeterReading,
    ProgressReported,
    Split,
    StepPrograms,
    TopologyDeclared,
)


class ViewerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the viewer knows besides the journals."""

    now: float
    """Unix time in seconds of the moment shown."""
    run: str
    """Name of the run's directory."""
    dir: str
    """The run's directory."""
    alive: Mapping[str, bool | None] = {}
    """By writer: whether its process is alive; None if unknown."""
    created: float | None = None
    """Unix time of the launch, from the manifest."""
    config: dict[str, Any] | None = None
    """The configuration, from the manifest; None if that cannot be read."""
    details: RunDetails = RunDetails()
    """Where the run comes from, from the manifest."""
    requests: list[RequestView] = []
    """The request files."""
    damage: list[Damage] = []
    """The unreadable regions of the journals."""
    troubles: list[str] = []
    """Problems that prevent the viewer from reading all of the run."""


def build_snapshot(
    state: RunState, context: ViewerContext, liveness: Liveness | None = None, *, may_defer: bool = False
) -> Snapshot:
    """The snapshot of the run at the moment `context.now`.

    `liveness` is the result of `assess` for that moment, if the caller already has it. With `may_defer` the snapshot
    may leave work on older steps to the next ones; then it `is_behind`.
    """
    now = context.now
    state.may_defer = may_defer
    liveness = liveness or assess(state, context.alive, now, context.created)
    run_started = next((w.run_started for w in state.supervisors if w.run_started), None)
    # The configuration recorded by the run comes first: the manifest does not prove that the run used it.
    config = run_started.config if run_started else context.config or {}
    plan, epochs = plan_of(state), epochs_of(state)
    progress = history.newest_progress(state)
    epoch, epoch_step = _place(state, plan, epochs, progress)
    steps = state.steps_done or (plan.first_step - 1 if plan else 0)
    first = state.workers[0] if state.workers else None
    phase, phase_s = core_views.phase_of(first, liveness, now) if first else (None, 0.0)
    bad, num_bad = timeline.non_finite(state)
    topology, counted = topology_of(state), next((w.flops for w in state.workers if w.flops), None)
    running = liveness.condition == "running"
    requests = timeline.requests(state, context.requests)
    loss = _loss(state)
    marks, num_marks = timeline.marks(state, plan, loss, requests, liveness)
    cores = core_views.cores_of(state, liveness, now)
    core_columns = core_views.core_columns(state, cores)
    memory = memory_of(state)
    pictures = state.of_rare_events("pictures", lambda: timeline.pictures(state))
    pace = history.throughput(state, plan, epochs, now, going_on=running)
    step_s, examples_per_s = _speed(state, pace, liveness.condition)
    logged = history.logged(state)
    if _known(examples_per_s) is None:
        examples_per_s = _logged_value(logged, "speed")
    return Snapshot(
        now=now,
        run=context.run,
        dir=context.dir,
        created=context.created,
        condition=liveness.condition,
        condition_reason=liveness.reason,
        config=config,
        topology=topology,
        plan=plan,
        phase=phase,
        phase_s=phase_s,
        newest_fact=state.newest_t,
        started=state.first_t,
        ended=liveness.ended_t,
        epoch=epoch,
        epoch_step=epoch_step,
        steps=steps,
        step_s=step_s,
        examples_per_s=_known(examples_per_s),
        lr=_lr(progress, plan, logged),
        report_steps=progress.report_steps if progress else None,
        eta_s=history.eta_s(state, plan, epochs, now) if running else None,
        cores=cores,
        meters=meters_of(state, epochs),
        epochs=epochs,
        xla=xla_of(state),
        memory=memory,
        devices=device_views.devices_of(state),
        checkpoints=state.of_rare_events("checkpoints", lambda: timeline.checkpoints(state)),
        requests=requests,
        non_finite=bad,
        num_non_finite=num_bad,
        dropped_steps=sum(w.dropped_steps for w in state.processes.values()),
        num_senseless=sum(w.num_senseless for w in state.processes.values()),
        skipped=state.of_rare_events("skipped", lambda: timeline.skipped(state)),
        pictures=pictures[-1] if pictures else None,
        picture_history=pictures,
        # Several hosts may give the same one, such as that the checkpoint of the run could not be written.
        warnings=list(dict.fromkeys(text for w in state.in_order for text in w.log.warnings)),
        failure=root_cause.failure(state),
        exit_code=liveness.exit_code,
        command_exit_code=_command_exit_code(state) if SCRIPT in config else None,
        logs=timeline.logs(state),
        loss=loss,
        damage=timeline.damage(state, context.damage),
        newer_format=state.of_rare_events("newer format", lambda: timeline.newer_format(state)),
        troubles=context.troubles,
        core_columns=core_columns,
        outlier=core_views.outlier(state, core_columns),
        slow_core=core_views.slow_core(state),
        compute_reason=core_views.compute_reason(state, config),
        marks=marks,
        num_marks=num_marks,
        epoch_starts=timeline.epoch_starts(state),
        loss_named=next((w.loss_named for w in state.workers if w.loss_named and w.loss_named.name), None),
        throughput=pace,
        flops=flops_view(counted, topology, pace),
        memory_history=history.memory(state),
        device_history=device_views.history_of(state),
        xla_history=history.xla(state),
        meter_history=rank_meters.history(state),
        stacks=process_stacks.stacks(state, requests),
        details=_details(state, context.details),
        logged=logged,
        alerts=state.of_rare_events("alerts", lambda: timeline.alerts(state)),
        traces=state.of_rare_events("traces", lambda: timeline.traces(state)),
        evidence=evidence_of(state),
        time_spent=core_views.time_of(state, liveness, now),
        hosts=host_views.hosts(state, liveness, memory.hbm, now),
        slow_host=slow_host(state),
        generations=host_views.generations(state),
        is_behind=bool(state.behind),
    )


def _lr(progress: ProgressReported | None, plan: PlanView | None, logged: Sequence[LoggedView]) -> float | None:
    """The newest learning rate that was reported, or else that was logged as a metric."""
    reported = _known(progress.lr if progress else plan.lr if plan else None)
    return reported if reported is not None else _logged_value(logged, "lr")


def _logged_value(logged: Sequence[LoggedView], role: Role) -> float | None:
    """The newest value of the first metric with a meaning; None if there is none."""
    views = (view for view in logged if view.split == "train" and role_of(view.name) == role)
    return _known(next((view.value for view in views), None))


def _speed(state: RunState, pace: ThroughputView | None, condition: RunCondition) -> tuple[float | None, float | None]:
    """Seconds per step and examples per second: by the reports of the last 10 s while the run trains, over the whole
    run once it has ended."""
    if pace is not None and condition in ENDED:
        return pace.steady_step_s, pace.steady_examples_per_s
    return history.speed_now(state) or (None, None)


def _command_exit_code(state: RunState) -> int | None:
    """Exit code of the newest process of a command, on the first host."""
    exited = next((host.worker_exited for host in state.supervisors if host.worker_exited), None)
    return exited.exit_code if exited is not None else None


def _known(value: float | None) -> float | None:
    """The value; None if it is NaN, because a script did not report it."""
    return None if value is None or math.isnan(value) else value


def at_later_moment(snapshot: Snapshot, state: RunState, liveness: Liveness, now: float) -> Snapshot:
    """The snapshot at a later moment, if nothing but the time has changed since: the liveness is that of `now`.

    Only ages and the times that are left are computed again, a fraction of the work of `build_snapshot`.
    """
    plan, epochs = snapshot.plan, snapshot.epochs
    running = liveness.condition == "running"
    return msgspec.structs.replace(
        snapshot,
        now=now,
        phase_s=core_views.phase_of(state.workers[0], liveness, now)[1] if state.workers else 0.0,
        eta_s=history.eta_s(state, plan, epochs, now) if running else None,
        cores=core_views.cores_of(state, liveness, now),
        throughput=history.throughput(state, plan, epochs, now, going_on=running),
        time_spent=core_views.time_of(state, liveness, now),
        hosts=host_views.hosts(state, liveness, snapshot.memory.hbm, now),
    )


def _details(state: RunState, recorded: RunDetails) -> RunDetails:
    """The details of the manifest, completed from the journals, which also runs of older versions have.

    The command recorded by the run comes first, as for the configuration.
    """
    writers = (*state.supervisors, *state.workers)
    opened = next((w.opened for w in writers if w.opened), None)
    started = next((w.run_started for w in writers if w.run_started), None)
    if opened is None:
        return recorded
    return msgspec.structs.replace(
        recorded,
        argv=started.argv if started else recorded.argv,
        host=recorded.host or opened.host,
        versions=recorded.versions or {"tputui": opened.version},
        resumed_from=started.resumed_from if started else recorded.resumed_from,
    )


def _loss(state: RunState) -> list[Segment]:
    reporting = [(worker, worker.values.series["loss"]) for worker in state.workers if "loss" in worker.values.series]
    key = tuple((worker.name, series.version) for worker, series in reporting)
    # Charts go through the steps in order; an untrusted run may have them in any order.
    aligner = state.memoized("loss aligner", None, piece_aligner)
    names = tuple(worker.name for worker, _ in reporting)

    def combine() -> tuple[list[Segment], bool]:
        parts, most = [series for _, series in reporting], state.at_most(COMBINED_MAX, len(reporting))
        found = combined(parts, aligner=aligner, names=names, most=most)
        return sorted(found, key=attrgetter("first_step")), len(parts) > 1 and aligner.is_behind

    return state.memoized_in_parts("loss", key, combine)


def _place(
    state: RunState, plan: PlanView | None, epochs: list[EpochEnded], progress: ProgressReported | None
) -> tuple[int, int]:
    """The current or last epoch, and the number of its completed steps."""
    begun = max((w.epoch_started.epoch for w in state.workers if w.epoch_started), default=0)
    ended = max((view.epoch for view in epochs), default=0)
    epoch = max(begun, ended, progress.epoch if progress else 0)
    if plan and plan.num_epochs and ended == epoch and epoch:
        return epoch, plan.steps_per_epoch
    if progress and progress.epoch == epoch:
        return epoch, progress.epoch_step
    started = next((w.epoch_started for w in state.workers if w.epoch_started), None)
    if plan and plan.num_epochs and started and started.epoch == epoch:
        return epoch, max(0, started.first_step - 1 - (epoch - 1) * plan.steps_per_epoch)
    return epoch, 0


def topology_of(state: RunState) -> TopologyDeclared | None:
    """Strategy, device and cores, from the first host that reported them. What is printed names no device; an observer
    in the process does."""
    reported = next((worker.topology for worker in state.workers if worker.topology), None)
    if reported is not None and reported.device != "unknown":
        return reported
    observed = next((process.topology for process in state.observers if process.topology), None)
    if observed is None or reported is None:
        return observed or reported
    return msgspec.structs.replace(
        observed, cores=reported.cores, num_cores=max(observed.num_cores, reported.num_cores)
    )


def plan_of(state: RunState) -> PlanView | None:
    """Task, steps and batch sizes, from the first host that reported them."""
    plan = next((w.plan for w in state.workers if w.plan), None)
    if plan is None:
        return None
    planned = msgspec.structs.asdict(plan)
    if not plan.num_epochs:
        planned["steps_per_epoch"] = 0
    return PlanView(**planned, total_steps=plan.num_steps or max(1, plan.num_epochs) * plan.steps_per_epoch)


def meters_of(state: RunState, epochs: list[EpochEnded]) -> list[MeterView]:
    """The running epoch's training meters and the newest validation meters."""
    return [*_meters_of(state, epochs, "train"), *_meters_of(state, epochs, "valid")]


def _meters_of(state: RunState, epochs: list[EpochEnded], split: Split) -> list[MeterView]:
    reports = [w.meters[split] for w in rank_meters.ranks(state) if split in w.meters]
    newest = rank_meters.newest(reports)
    if not reports and all(w.role == "logs" for w in state.workers):
        return []  # The epochs are those of logged metrics.
    ended = next((view for view in reversed(epochs) if (view.train if split == "train" else view.valid)), None)
    epoch, readings = 0, dict[str, MeterReading]()
    if ended is not None:
        epoch, readings = ended.epoch, ended.train if split == "train" else ended.valid
    if newest is not None and newest.epoch > epoch:
        epoch, readings = newest.epoch, newest.meters
    reduced = newest.reduced if newest is not None else ""
    return [
        MeterView(
            name=name,
            split=split,
            epoch=epoch,
            reading=reading,
            reduced=reduced,
            ranks=rank_meters.of_ranks(state, split, name, epoch),
        )
        for name, reading in readings.items()
    ]


def epochs_of(state: RunState) -> list[EpochEnded]:
    """The completed epochs, in order, with the meters of all ranks of a script, and what was read from its output."""
    found: dict[int, list[EpochEnded]] = {}
    for process in rank_meters.ranks(state):
        for number, event in process.epochs.items():
            found.setdefault(number, []).append(event)
    read = {number: event for process in state.read_logs for number, event in process.epochs.items()}
    numbers = sorted(found.keys() | read.keys())
    events = [event for number in numbers for event in (*found.get(number, ()), *filter(None, [read.get(number)]))]
    return state.memoized(
        "epochs", events, lambda: [rank_meters.epoch_of(found.get(number, []), read.get(number)) for number in numbers]
    )


def xla_of(state: RunState) -> XlaView | None:
    """The runtime's counters, summed over the processes that lead their host.

    Other ranks report theirs only after a recompile. All of a run may recompile together, so the most of one counts.
    """
    counters = [newest_of(one.xla for one in journals) for journals in history.xla_journals(state)]
    if not counters:
        return None
    fallbacks: Counter[str] = Counter()
    for one in counters:
        fallbacks.update(one.fallbacks)
    steps = [one.steps for one in counters if one.steps is not None]
    late = max(sum(one.recompiles for one in counters), *(rank.xla.recompiles for rank in state.ranks if rank.xla), 0)
    return XlaView(
        t=max(one.t for one in counters),
        compiles=sum(one.compiles for one in counters),
        compile_s=sum(one.compile_s for one in counters),
        recompiles=num_recompiles(late, evidence_of(state).compiles) if late else 0,
        late_compiles=late,
        executes=sum(one.executes for one in counters),
        execute_s=sum(one.execute_s for one in counters),
        transfers_to_device=sum(one.transfers_to_device for one in counters),
        transfers_from_device=sum(one.transfers_from_device for one in counters),
        bytes_to_device=sum(one.bytes_to_device for one in counters),
        bytes_from_device=sum(one.bytes_from_device for one in counters),
        fallbacks=dict(sorted(fallbacks.items())),
        engine_reads=sum(one.engine_reads for one in counters),
        scalar_reads=sum(one.scalar_reads for one in counters),
        steps=reduce(StepPrograms.plus, steps) if len(steps) == len(counters) else None,
    )


def evidence_of(state: RunState) -> evidence.Evidence:
    """The evidence of all training processes."""
    trainers = state.trainers
    journals = [one for process in trainers for one in process]
    # Of the heartbeats only those of the first journal that has some count.
    beats = ((place, one.evidence.num_beats) for place, one in enumerate(journals) if one.evidence.num_beats)
    key = next(beats, None), state.num_groupings, [one.evidence.revision for one in journals]
    return state.memoized(
        "evidence",
        key,
        lambda: evidence.combined(evidence.of_process([one.evidence for one in process]) for process in trainers),
    )


def memory_of(state: RunState) -> MemoryView:
    """Device memory of every core that reports it; host memory summed over the hosts, CPU usage averaged over them."""
    reports = [w.memory for w in state.workers if w.memory]
    readings: list[HbmReading] = [reading for one in reports for reading in one.hbm or ()]
    from_runtime, runtime_reason = device_views.hbm_of(state)
    reported = {reading.core for reading in readings}
    readings += [reading for reading in from_runtime if reading.core not in reported]
    reason = None
    if not readings:
        if reports:
            unread = "no reason given"
        elif any(w.role == "logs" for w in state.workers):
            unread = "the logs of a command contain no device memory"
        else:
            unread = "device memory not reported yet"
        reason = runtime_reason or next((one.hbm_reason for one in reports if one.hbm_reason), unread)
    hosts = [w.host for w in state.in_order if w.host]
    return MemoryView(
        hbm=sorted(readings, key=attrgetter("core")) if readings else None,
        hbm_reason=reason,
        host_cpu_percent=sum(host.cpu_percent for host in hosts) / len(hosts) if hosts else None,
        host_used_bytes=sum(host.memory_used_bytes for host in hosts) if hosts else None,
        host_total_bytes=sum(host.memory_total_bytes for host in hosts) if hosts else None,
        predicted=next((w.predicted.core for w in state.workers if w.predicted), None),
        processes=[process for writer in state.in_order for process in writer.processes],
        **{name: _summed(getattr(host, name) for host in hosts) for name in TRAFFIC_RATES},
    )


def _summed(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

"""What a run is and how it stands, combined from what the writers said: cores, meters, counters, memory. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tputui.state.liveness import Liveness
from tputui.state.process_state import ProcessState, lasts_s
from tputui.state.reducer import RunState
from tputui.state.snapshot import (
    ENDED,
    CoreCondition,
    CoreView,
    EpochView,
    MemoryView,
    MeterView,
    Plan,
    Topology,
    XlaView,
)
from tputui.telemetry.events import HbmReading, MeterReading, Phase, Split, StepPrograms


def topology(state: RunState) -> Topology | None:
    """How the cores run one program, by the first host that told."""
    told = next((w.topology for w in state.workers if w.topology), None)
    if told is None:
        return None
    return Topology(
        strategy=told.strategy,
        device=told.device,
        device_reason=told.device_reason,
        num_cores=told.num_cores,
        num_hosts=told.num_hosts,
        device_warning=told.device_warning,
    )


def plan(state: RunState) -> Plan | None:
    """What is to be trained, by the first host that told."""
    told = next((w.plan for w in state.workers if w.plan), None)
    if told is None:
        return None
    return Plan(
        task=told.task,
        num_epochs=told.num_epochs,
        steps_per_epoch=told.steps_per_epoch,
        total_steps=told.num_epochs * told.steps_per_epoch,
        first_step=told.first_step,
        batch_per_core=told.batch_per_core,
        global_batch=told.global_batch,
        train_examples=told.train_examples,
        valid_examples=told.valid_examples,
        num_parameters=told.num_parameters,
        precision=told.precision,
        lr=told.lr,
        lr_rule=told.lr_rule,
    )


def phase_of(worker: ProcessState, verdict: Liveness, now: float) -> tuple[Phase | None, float]:
    """What a worker is doing and for how many seconds: until `now` while it lives, else until its last word."""
    beat = worker.beat
    if beat is None:
        return None, 0.0
    lives = worker.name in verdict.living and worker.training_ended is None and verdict.condition not in ENDED
    until = now if lives else worker.newest_t
    return beat.phase, lasts_s(beat, until if until is not None else beat.t)


def cores(state: RunState, verdict: Liveness, now: float) -> list[CoreView]:
    """Every core that was declared or has a value, in order."""
    ranks = {core: rank for rank in state.ranks if rank.topology for core in rank.topology.cores}
    views = [view for worker in state.workers for view in _cores_of(worker, ranks, verdict, now)]
    return sorted(views, key=lambda view: view.core)


def _cores_of(
    worker: ProcessState, ranks: Mapping[int, ProcessState], verdict: Liveness, now: float
) -> Iterable[CoreView]:
    """The cores whose losses a worker records; what a core does is told by the process that drives it."""
    record = worker.values.newest.get("loss")
    row = worker.values.newest_row()
    declared = worker.topology.cores if worker.topology else []
    columns = range(record.cores) if record else range(0)
    indices = [worker.values.core_of(column, len(columns)) for column in columns] or declared
    host = worker.opened.host if worker.opened else ""
    step, stepped = record.first + record.n - 1 if record else 0, worker.stepped
    # By process, since one may drive thousands of cores and this is told ten times a second.
    known: dict[str, tuple[CoreCondition, Phase | None, float]] = {}
    for column, core in enumerate(indices):
        drives = ranks.get(core, worker)
        if drives.name not in known:
            does = _core_condition(drives, verdict, stepped=stepped)
            known[drives.name] = (does, *phase_of(drives, verdict, now))
        condition, phase, phase_s = known[drives.name]
        yield CoreView(
            core=core,
            host=host,
            loss=row[column] if row is not None else None,
            step=step,
            condition=condition,
            phase=phase,
            phase_s=phase_s,
        )


def _core_condition(worker: ProcessState, verdict: Liveness, *, stepped: bool) -> CoreCondition:
    if verdict.condition in ENDED or worker.training_ended is not None or worker.name not in verdict.living:
        return "ended"
    if worker.name in verdict.stalled:
        return "stalled"
    return "running" if stepped else "starting"


def meters(state: RunState, epochs: list[EpochView]) -> list[MeterView]:
    """The running epoch's training meters and the newest validation meters."""
    return [*_meters_of(state, epochs, "train"), *_meters_of(state, epochs, "valid")]


def _meters_of(state: RunState, epochs: list[EpochView], split: Split) -> list[MeterView]:
    told = [w.meters[split] for w in state.workers if split in w.meters]
    newest = max(told, key=lambda report: (report.epoch, report.step), default=None)
    ended = next((view for view in reversed(epochs) if (view.train if split == "train" else view.valid)), None)
    epoch, readings = 0, dict[str, MeterReading]()
    if ended is not None:
        epoch, readings = ended.epoch, ended.train if split == "train" else ended.valid
    if newest is not None and newest.epoch > epoch:
        epoch, readings = newest.epoch, newest.meters
    reduced = newest.reduced if newest is not None else ""
    return [
        MeterView(name=name, split=split, epoch=epoch, reading=reading, reduced=reduced)
        for name, reading in readings.items()
    ]


def epochs(state: RunState) -> list[EpochView]:
    """The epochs that ended, in order, each by the first host that told."""
    found: dict[int, EpochView] = {}
    for worker in state.workers:
        for number, event in worker.epochs.items():
            if number not in found:
                found[number] = EpochView(
                    epoch=event.epoch,
                    train=event.train,
                    valid=event.valid,
                    train_s=event.train_s,
                    valid_s=event.valid_s,
                    sections_s=event.sections_s,
                    lr=event.lr,
                    best=event.best,
                    scores=event.scores,
                    trace_s=event.trace_s,
                )
    return [found[number] for number in sorted(found)]


def xla(state: RunState) -> XlaView | None:
    """The runtime's counters, summed over the processes."""
    told = [w.xla for w in state.workers if w.xla]
    if not told:
        return None
    fallbacks: Counter[str] = Counter()
    for one in told:
        fallbacks.update(one.fallbacks)
    return XlaView(
        compiles=sum(one.compiles for one in told),
        compile_s=sum(one.compile_s for one in told),
        recompiles=sum(one.recompiles for one in told),
        executes=sum(one.executes for one in told),
        execute_s=sum(one.execute_s for one in told),
        transfers_to_device=sum(one.transfers_to_device for one in told),
        transfers_from_device=sum(one.transfers_from_device for one in told),
        bytes_to_device=sum(one.bytes_to_device for one in told),
        bytes_from_device=sum(one.bytes_from_device for one in told),
        fallbacks=dict(sorted(fallbacks.items())),
        engine_reads=sum(one.engine_reads for one in told),
        scalar_reads=sum(one.scalar_reads for one in told),
        steps=_steps([one.steps for one in told if one.steps is not None]) if all(one.steps for one in told) else None,
    )


def _steps(told: list[StepPrograms]) -> StepPrograms:
    """The steps of all processes together."""
    return StepPrograms(
        steps=sum(one.steps for one in told),
        executes=sum(one.executes for one in told),
        expected_executes=sum(one.expected_executes for one in told),
        scalar_reads=sum(one.scalar_reads for one in told),
    )


def memory(state: RunState) -> MemoryView:
    """Device memory of every core that tells it; host memory summed over the hosts, CPU use their mean."""
    told = [w.memory for w in state.workers if w.memory]
    readings: list[HbmReading] = [reading for one in told for reading in one.hbm or ()]
    reason = None
    if not readings:
        unread = "the run did not say why it cannot be read" if told else "the run has not told its device memory yet"
        reason = next((one.hbm_reason for one in told if one.hbm_reason), unread)
    hosts = [w.host for w in state.in_order if w.host]
    return MemoryView(
        hbm=sorted(readings, key=lambda reading: reading.core) if readings else None,
        hbm_reason=reason,
        host_cpu_percent=sum(host.cpu_percent for host in hosts) / len(hosts) if hosts else None,
        host_used_bytes=sum(host.memory_used_bytes for host in hosts) if hosts else None,
        host_total_bytes=sum(host.memory_total_bytes for host in hosts) if hosts else None,
        predicted=next((w.predicted for w in state.workers if w.predicted), None),
        processes=[process for writer in state.in_order for process in writer.processes],
    )

"""The parts of a snapshot, each combined from what the writers said. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from tputui.model.liveness import Verdict
from tputui.model.snapshot import (
    ENDED,
    CheckpointView,
    CoreCondition,
    CoreView,
    DamageRegion,
    DamageView,
    EpochView,
    Failure,
    LogLine,
    MemoryView,
    MeterView,
    NonFinite,
    Plan,
    RequestView,
    Topology,
    XlaView,
)
from tputui.model.state import RunState
from tputui.model.writer import NON_FINITE_MAX, TOOL, Receipts, WriterState
from tputui.telemetry.events import FORMAT_VERSION, HbmReading, MeterReading, Phase, Split

LOG_LINES_SHOWN = 1_000


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


def phase_of(worker: WriterState, verdict: Verdict, now: float) -> tuple[Phase | None, float]:
    """What a worker is doing and for how many seconds: until `now` while it lives, else until its last word."""
    beat = worker.beat
    if beat is None:
        return None, 0.0
    lives = worker.name in verdict.living and worker.training_ended is None and verdict.condition not in ENDED
    until = now if lives else worker.newest_t
    return beat.phase, beat.phase_s + max(0.0, (until if until is not None else beat.t) - beat.t)


def cores(state: RunState, verdict: Verdict, now: float) -> list[CoreView]:
    """Every core that was declared or has a value, in order."""
    views = [view for worker in state.workers for view in _cores_of(worker, verdict, now)]
    return sorted(views, key=lambda view: view.core)


def _cores_of(worker: WriterState, verdict: Verdict, now: float) -> Iterable[CoreView]:
    phase, phase_s = phase_of(worker, verdict, now)
    condition = _core_condition(worker, verdict)
    record = worker.newest_steps.get("loss")
    row = worker.newest_row()
    declared = worker.topology.cores if worker.topology else []
    columns = range(record.cores) if record else range(0)
    indices = [worker.core_of(column, len(columns)) for column in columns] or declared
    host = worker.opened.host if worker.opened else ""
    step = record.first + record.n - 1 if record else 0
    for column, core in enumerate(indices):
        yield CoreView(
            core=core,
            host=host,
            loss=row[column] if row is not None else None,
            step=step,
            condition=condition,
            phase=phase,
            phase_s=phase_s,
        )


def _core_condition(worker: WriterState, verdict: Verdict) -> CoreCondition:
    if verdict.condition in ENDED or worker.training_ended is not None or worker.name not in verdict.living:
        return "ended"
    if worker.name in verdict.stalled:
        return "stalled"
    return "running" if worker.stepped else "starting"


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
        processes=[process for host in hosts for process in host.processes],
    )


def checkpoints(state: RunState) -> list[CheckpointView]:
    """What was saved, oldest first; a file that several hosts told of stands once."""
    found: dict[tuple[str, int], CheckpointView] = {}
    for writer in state.in_order:
        for event in writer.checkpoints:
            view = CheckpointView(
                t=event.t,
                path=event.path,
                step=event.step,
                epoch=event.epoch,
                bytes=event.bytes,
                seconds=event.seconds,
                reason=event.reason,
                best=event.best,
            )
            found.setdefault((event.path, event.step), view)
    return sorted(found.values(), key=lambda view: (view.step, view.t, view.path))


def requests(state: RunState, asked: Iterable[RequestView]) -> list[RequestView]:
    """Requests with the receipts of any writer, oldest first."""
    views = {view.id: view for view in asked}
    receipts: dict[str, list[Receipts]] = {}
    for writer in state.in_order:
        for request, answer in writer.receipts.items():
            receipts.setdefault(request, []).append(answer)
    for request, answers in receipts.items():
        views[request] = _with_receipts(request, views.get(request), answers)
    return sorted(views.values(), key=lambda view: (view.t, view.id))


def _with_receipts(request: str, asked: RequestView | None, answers: list[Receipts]) -> RequestView:
    seen = next((answer.seen for answer in answers if answer.seen), None)
    applied = next((answer.applied for answer in answers if answer.applied), None)
    refused = next((answer.refused for answer in answers if answer.refused), None) if applied is None else None
    first = seen or applied or refused
    assert first is not None, "receipts are made with their first answer"
    return RequestView(
        id=request,
        kind=first.kind,
        state="applied" if applied else "refused" if refused else "seen",
        t=asked.t if asked else first.t,
        by=asked.by if asked else None,
        seen_phase=seen.phase if seen else None,
        applied_step=applied.step if applied else None,
        path=applied.path if applied else None,
        why=refused.why if refused else None,
    )


def non_finite(state: RunState) -> tuple[list[NonFinite], int]:
    """The first NaN and infinite values, by step and core, and how many there are in all."""
    found = [
        NonFinite(core=_core(writer, bad.column, bad.metric), step=bad.step, metric=bad.metric, value=bad.value)
        for writer in state.in_order
        for bad in writer.non_finite
    ]
    found.sort(key=lambda bad: (bad.step, bad.core, bad.metric))
    return found[:NON_FINITE_MAX], sum(writer.num_non_finite for writer in state.writers.values())


def _core(writer: WriterState, column: int, metric: str) -> int:
    record = writer.newest_steps.get(metric)
    return writer.core_of(column, record.cores if record else 0)


def failure(state: RunState) -> Failure | None:
    """What broke training first."""
    broken = [(w.failure, w.name) for w in state.in_order if w.failure]
    if not broken:
        return None
    event, name = min(broken, key=lambda pair: pair[0].t)
    return Failure(
        writer=name,
        error=event.error,
        message=event.message,
        traceback=event.traceback,
        phase=event.phase,
        step=event.step,
    )


def logs(state: RunState) -> list[LogLine]:
    """The newest lines by time. What several hosts' workers tell alike of the tool's doings stands once."""
    lines: list[LogLine] = []
    for writer in state.in_order:
        start = max(0, len(writer.logs) - LOG_LINES_SHOWN)
        lines.extend(islice(writer.logs, start, None))
    lines.sort(key=lambda line: line.t if math.isfinite(line.t) else -math.inf)
    if len(state.workers) > 1:
        lines = _told_once(lines)
    return lines[-LOG_LINES_SHOWN:]


def _told_once(lines: list[LogLine]) -> list[LogLine]:
    said: set[str] = set()
    kept: list[LogLine] = []
    for line in lines:
        if line.source == TOOL and line.level == "info":
            if line.text in said:
                continue
            said.add(line.text)
        kept.append(line)
    return kept


def damage(state: RunState, regions: Iterable[DamageRegion]) -> DamageView:
    """What cannot be read: regions of the files, and blocks whose lines are sound and whose values are not."""
    all_regions = list(regions)
    lost = sum(region.lost_records or 0 for region in all_regions)
    for writer in state.in_order:
        for seq, why in writer.unreadable.items():
            reason = f"record {seq}: {why}"
            all_regions.append(DamageRegion(journal=writer.name, start=0, end=0, reason=reason, lost_records=0))
    return DamageView(regions=all_regions, lost_records=lost)


def newer_format(state: RunState) -> str | None:
    """Says so where the run was written by a newer version."""
    newest = max((w.opened.format for w in state.writers.values() if w.opened), default=FORMAT_VERSION)
    unknown: Counter[str] = Counter()
    for writer in state.writers.values():
        unknown.update(writer.unknown)
    parts: list[str] = []
    if newest > FORMAT_VERSION:
        parts.append(f"the run is written in format {newest}, and this tputui reads up to {FORMAT_VERSION}")
    if unknown:
        kinds = ", ".join(f"{kind} ({times})" for kind, times in sorted(unknown.items()))
        parts.append(f"it holds kinds of facts that this tputui does not know: {kinds}")
    return "; ".join(parts) + "; a newer tputui shows all of it" if parts else None

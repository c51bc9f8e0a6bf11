"""The hosts of a run as the snapshot has them, and the generations of its training processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state import core_views
from tputui.state.host_reports import ReportedFailure, Restart
from tputui.state.liveness import SUPERVISOR_TELLS_S, Liveness
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import GenerationView, HostCondition, HostView
from tputui.telemetry.events import HbmReading, ProcessSample, RunEnded, TrainingEnded

HOSTS_MAX = 4_096
"""More than any pod has; a journal that claims more hosts is not believed."""

_PEER_LOST = "PeerLost: "


def hosts(state: RunState, liveness: Liveness, hbm: Iterable[HbmReading] | None, now: float) -> list[HostView]:
    """The hosts of the run in order, also those that have written nothing."""
    reporting = state.memoized(
        "hosts", state.num_groupings, lambda: [_Known.of(*item) for item in state.by_host.items()]
    )
    furthest = state.steps_done
    shares = {reading.core: reading.used_bytes / reading.limit_bytes for reading in hbm or () if reading.limit_bytes}
    views = {host.number: _host(host, liveness, furthest, shares, now) for host in reporting}
    for index in range(num_hosts(state)):
        if index not in views:
            reason = "nothing was written by this host"
            views[index] = HostView(index=index, name="", condition="missing", reason=reason, lag_steps=furthest)
    return [views[index] for index in sorted(views)]


def num_hosts(state: RunState) -> int:
    """Number of hosts that the run should have, as its processes declared it; 0 if it has one."""
    declared = [process.topology.num_hosts for process in state.workers if process.topology]
    reports = [process.reports for process in state.in_order]
    declared += [report.awaited.num_hosts for report in reports if report.awaited is not None]
    declared += [report.joined.num_hosts for report in reports if report.joined is not None]
    most = max(declared, default=1)
    return most if 1 < most <= HOSTS_MAX else 0


def generations(state: RunState) -> list[GenerationView]:
    """The generations of the training processes, in order."""
    first = state.workers[0] if state.workers else None
    if first is None or first.first_t is None:
        return []
    began_steps = (worker.reports.began_step for worker in state.workers)
    first_step = next((step for step in began_steps if step is not None), None)
    restarts = first.reports.restarts
    views = [
        GenerationView(
            number=0, t=first.first_t, first_step=first_step, lost_steps=0, lost_s=None, reason=""
        )
    ]  # fmt: skip
    reasons = _reasons(state)
    return views + [_generation(restart, reasons.get(restart.number, "")) for restart in restarts]


def _generation(restart: Restart, reason: str) -> GenerationView:
    first, lost_s = restart.first_step, None
    if restart.resumed_t is not None and restart.kept_t is not None:
        lost_s = max(0.0, restart.resumed_t - restart.kept_t)
    return GenerationView(
        number=restart.number,
        t=restart.t,
        first_step=first,
        lost_steps=max(0, restart.last_step - first + 1) if first is not None else 0,
        lost_s=lost_s,
        reason=reason,
    )


def _reasons(state: RunState) -> Mapping[int, str]:
    """Why each generation began."""
    earliest: dict[int, tuple[int, float, str]] = {}
    # A script does not declare how many hosts it has; a directory of one host has the journals of that alone.
    has_hosts = num_hosts(state) > 0 or len(state.by_host) > 1
    for process in (*state.workers, *state.ranks, *state.supervisors):
        for restart in process.reports.restarts:
            if restart.reason:
                rank, text = _reason(process, restart.reason, restart.other_host, has_hosts)
                seen = (rank, restart.t if restart.failed_t is None else restart.failed_t, text)
                earliest[restart.number] = min(earliest.get(restart.number, seen), seen)
    for number, supervisor, failure in _before_restarts(state):
        rank, text = _reason(supervisor, failure.reason, None, has_hosts)
        seen = (rank, failure.t, text)
        earliest[number] = min(earliest.get(number, seen), seen)
    return {number: text for number, (_, _, text) in earliest.items()}


def _before_restarts(state: RunState) -> Iterator[tuple[int, ProcessState, ReportedFailure]]:
    """What the supervisors of commands, which start nothing again themselves, reported before each generation."""
    began: dict[int, float] = {}
    for worker in state.workers:
        for restart in worker.reports.restarts:
            began[restart.number] = min(restart.t, began.get(restart.number, math.inf))
    for supervisor in state.supervisors if began else ():
        if not supervisor.reports.restarts:
            for failure in supervisor.reports.failures:
                number = min((number for number, t in began.items() if t > failure.t), default=None)
                if number is not None:
                    yield number, supervisor, failure


def _reason(process: ProcessState, reason: str, other_host: str | None, has_hosts: bool) -> tuple[int, str]:
    """How close a reason is to the cause, 0 for the closest, and its text. The first failure of all hosts is what the
    supervisors of the others report; a lost peer is only what a process saw of it."""
    if other_host is not None:
        return 0, f"{other_host}: {reason}"
    if reason.startswith(_PEER_LOST):
        return 3, reason.removeprefix(_PEER_LOST)
    who = [f"host {process.host_index} ({process.opened.host})"] if has_hosts and process.opened is not None else []
    who += [process.name] if process.role == "rank" else []
    return 2 if process.role == "supervisor" else 1, f"{', '.join(who)}: {reason}" if who else reason


class _Known(NamedTuple):
    """What the heads and the topologies of the processes of a host say."""

    number: int
    """Index of the host."""
    own: Sequence[ProcessState]
    """Its processes, of which the first one knows most."""
    trains: Sequence[ProcessState]
    leader: ProcessState
    name: str
    cores: list[int]
    generation: int

    @classmethod
    def of(cls, index: int, own: Sequence[ProcessState]) -> _Known:
        trains = [process for process in own if process.role in ("worker", "logs")]
        opened = [process.opened for process in own if process.opened is not None]
        return cls(
            number=index,
            own=own,
            trains=trains,
            leader=trains[0] if trains else own[0],
            name=opened[0].host if opened else "",
            cores=sorted({core for reporting in own if reporting.topology for core in reporting.topology.cores}),
            generation=max((head.generation for head in opened), default=0),
        )


def _host(host: _Known, liveness: Liveness, furthest: int, shares: Mapping[int, float], now: float) -> HostView:
    """A host by its processes."""
    leader = host.leader
    newest_t, clock, pace, sample = None, None, None, None
    processes: list[ProcessSample] = []
    for process in host.own:
        reports = process.reports
        if process.newest_t is not None and (newest_t is None or process.newest_t > newest_t):
            newest_t = process.newest_t
        if reports.clock is not None and (clock is None or reports.clock.t > clock.t):
            clock = reports.clock
        if pace is None and reports.paces:
            pace = reports.paces[-1]
        sample = sample or process.host
        processes += process.processes
    step = min(max([process.steps_done for process in host.trains], default=0), furthest)
    condition, reason = _condition(host, liveness, newest_t, now)
    phase, phase_s = core_views.phase_of(leader, liveness, now)
    return HostView(
        index=host.number,
        name=host.name,
        condition=condition,
        reason=reason,
        cores=host.cores,
        step=step,
        lag_steps=furthest - step,
        phase=phase,
        phase_s=phase_s,
        silent_s=max(0.0, now - newest_t) if newest_t is not None and condition != "ended" else None,
        loss=_loss(host.trains),
        step_s=pace.step_s if pace else leader.progress.step_s if leader.progress else None,
        compute_s=pace.compute_s if pace else None,
        data_s=pace.data_s if pace else None,
        wait_s=pace.wait_s if pace else None,
        cpu_percent=sample.cpu_percent if sample else None,
        used_bytes=sample.memory_used_bytes if sample else None,
        total_bytes=sample.memory_total_bytes if sample else None,
        hbm_used_share=max([shares[core] for core in host.cores if core in shares], default=None),
        clock_offset_s=clock.offset_s if clock else None,
        clock_error_s=clock.error_s if clock else None,
        generation=host.generation,
        processes=processes,
    )


def _condition(host: _Known, liveness: Liveness, newest_t: float | None, now: float) -> tuple[HostCondition, str]:
    """The condition of a host, and its reason as a sentence."""
    leader, is_alive, stalled = host.leader, False, None
    ended: RunEnded | TrainingEnded | None = None
    for process in host.own:
        ended = ended or process.run_ended
        is_alive = is_alive or process.name in liveness.living
        if stalled is None and process.name in liveness.stalled:
            stalled = process.name
    ended = ended or leader.training_ended
    if ended is not None:
        return "ended", ended.reason
    if liveness.condition in ENDED or not is_alive:
        silent_s = now - newest_t if newest_t is not None else 0.0
        return "lost", f"nothing was heard of it for {fmt.age(silent_s)}, and it has no end event"
    if stalled is not None:
        return "stalled", f"{stalled} {liveness.stalled[stalled]}"
    if leader.role != "supervisor" and leader.name not in liveness.living:
        gone_s = now - (leader.newest_t if leader.newest_t is not None else now)
        condition: HostCondition = "lost" if gone_s > SUPERVISOR_TELLS_S else "stalled"
        return condition, f"{leader.name} exited {fmt.age(gone_s)} ago"
    return ("running", "") if leader.stepped and leader.beat is not None else ("starting", "no step yet")


def _loss(trains: Sequence[ProcessState]) -> float | None:
    rows = [row for process in trains if (row := process.values.newest_row())]
    values = rows[0] if len(rows) == 1 else [value for row in rows for value in row]
    if not values:
        return None
    # A finite sum is that of finite values, which is much cheaper to test than each of them.
    is_finite = math.isfinite(sum(values)) or all(map(math.isfinite, values))
    return math.fsum(values) / len(values) if is_finite else math.nan

"""The hosts of a run as the snapshot has them, and the generations of its training processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tputui import formatting as fmt
from tputui.state import core_views
from tputui.state.host_data import GenerationView, HostCondition, HostView
from tputui.state.host_reports import HostPace, Restart
from tputui.state.liveness import SUPERVISOR_TELLS_S, Liveness
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import ENDED
from tputui.telemetry.events import ClockMeasured, HbmReading

HOSTS_MAX = 4_096
"""More than any pod has; a journal that claims more hosts is not believed."""


def hosts(state: RunState, liveness: Liveness, hbm: Iterable[HbmReading] | None, now: float) -> list[HostView]:
    """The hosts of the run in order, also those that have written nothing."""
    by_host = state.by_host
    clocks = {index: clock for index, own in by_host.items() if (clock := _clock(own)) is not None}
    furthest = state.steps_done
    shares = {reading.core: reading.used_bytes / reading.limit_bytes for reading in hbm or () if reading.limit_bytes}
    found = {
        index: _host(index, own, liveness, clocks.get(index), furthest, shares, now) for index, own in by_host.items()
    }
    for index in range(num_hosts(state)):
        if index not in found:
            reason = "nothing was written by this host"
            found[index] = HostView(index=index, name="", condition="missing", reason=reason, lag_steps=furthest)
    return [found[index] for index in sorted(found)]


def num_hosts(state: RunState) -> int:
    """Number of hosts that the run should have, as its processes declared it; 0 if it has one."""
    declared = [process.topology.num_hosts for process in state.workers if process.topology]
    for process in state.in_order:
        reports = process.reports
        declared += [each.num_hosts for each in (reports.awaited, reports.joined) if each is not None]
    most = max(declared, default=1)
    return most if 1 < most <= HOSTS_MAX else 0


def generations(state: RunState) -> list[GenerationView]:
    """The generations of the training processes, in order."""
    first = state.workers[0] if state.workers else None
    if first is None or first.first_t is None:
        return []
    begun = next((worker.plan for worker in state.workers if worker.plan is not None), None)
    restarts = first.reports.restarts
    first_step = begun.first_step if begun is not None and not restarts else None
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
        reason=restart.reason or reason,
    )


def _reasons(state: RunState) -> Mapping[int, str]:
    """Why each generation began, by the process that reported it; a lost peer is what the others saw of it."""
    found: dict[int, tuple[bool, float, str]] = {}
    for process in (*state.workers, *state.ranks):
        for restart in process.reports.restarts:
            if restart.reason:
                seen = (restart.reason.startswith("PeerLost"), restart.t, f"{process.name}: {restart.reason}")
                found[restart.number] = min(found.get(restart.number, seen), seen)
    return {number: text for number, (_, _, text) in found.items()}


def _host(
    index: int,
    own: Sequence[ProcessState],
    liveness: Liveness,
    clock: ClockMeasured | None,
    furthest: int,
    shares: Mapping[int, float],
    now: float,
) -> HostView:
    """A host by its processes, of which the first one knows most."""
    trains = [process for process in own if process.role in ("worker", "logs")]
    leader = trains[0] if trains else own[0]
    cores = sorted({core for each in own if each.topology for core in each.topology.cores})
    step = min(furthest, max((process.steps_done for process in trains), default=0))
    condition, reason = _condition(leader, own, liveness, now)
    phase, phase_s = core_views.phase_of(leader, liveness, now)
    newest = [process.newest_t for process in own if process.newest_t is not None]
    pace = _pace(own)
    host = next((process.host for process in own if process.host is not None), None)
    return HostView(
        index=index,
        name=next((process.opened.host for process in own if process.opened is not None), ""),
        condition=condition,
        reason=reason,
        cores=cores,
        step=step,
        lag_steps=max(0, furthest - step),
        phase=phase,
        phase_s=phase_s,
        silent_s=max(0.0, now - max(newest)) if newest and condition != "ended" else None,
        loss=_loss(trains),
        step_s=pace.step_s if pace else leader.progress.step_s if leader.progress else None,
        compute_s=pace.compute_s if pace else None,
        data_s=pace.data_s if pace else None,
        wait_s=pace.wait_s if pace else None,
        cpu_percent=host.cpu_percent if host else None,
        used_bytes=host.memory_used_bytes if host else None,
        total_bytes=host.memory_total_bytes if host else None,
        hbm_used_share=max((shares[core] for core in cores if core in shares), default=None),
        clock_offset_s=clock.offset_s if clock else None,
        clock_error_s=clock.error_s if clock else None,
        generation=max((process.opened.generation for process in own if process.opened), default=0),
        processes=[sample for process in own for sample in process.processes],
    )


def _condition(
    leader: ProcessState, own: Sequence[ProcessState], liveness: Liveness, now: float
) -> tuple[HostCondition, str]:
    """The condition of a host, and its reason as a sentence."""
    is_over = liveness.condition in ENDED
    ended = next((process.run_ended for process in own if process.run_ended), None) or leader.training_ended
    if ended is not None:
        return "ended", ended.reason
    silent_s = now - max((process.newest_t for process in own if process.newest_t is not None), default=now)
    if is_over or not any(process.name in liveness.living for process in own):
        return "lost", f"nothing was heard of it for {fmt.age(silent_s)}, and it has no end event"
    stalled = next((process.name for process in own if process.name in liveness.stalled), None)
    if stalled is not None:
        return "stalled", f"{stalled} {liveness.stalled[stalled]}"
    if leader.role != "supervisor" and leader.name not in liveness.living:
        gone_s = now - (leader.newest_t if leader.newest_t is not None else now)
        condition: HostCondition = "lost" if gone_s > SUPERVISOR_TELLS_S else "stalled"
        return condition, f"{leader.name} exited {fmt.age(gone_s)} ago"
    return ("running", "") if leader.stepped and leader.beat is not None else ("starting", "no step yet")


def _clock(own: Sequence[ProcessState]) -> ClockMeasured | None:
    """The newest measurement of the clock of a host."""
    measured = [process.reports.clock for process in own if process.reports.clock is not None]
    return max(measured, key=lambda clock: clock.t, default=None)


def _pace(own: Sequence[ProcessState]) -> HostPace | None:
    return next((process.reports.paces[-1] for process in own if process.reports.paces), None)


def _loss(trains: Sequence[ProcessState]) -> float | None:
    rows = [row for process in trains if (row := process.values.newest_row())]
    values = [value for row in rows for value in row]
    if not values:
        return None
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan

"""The condition of a run: from its events, and from which of its processes are alive.

The time and the liveness of the processes are arguments. The first rule that applies:

1. An end event was read: its outcome. The supervisor's event counts, or else that of the training processes.
2. A process of the run is alive: running, starting or stalled.
3. The processes are on another host: they count as alive while their newest event is recent.
4. Otherwise the run is lost, since its newest event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.config.tables import StallConfig
from tputui.state.process_stacks import waiting
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.run_condition import RunCondition
from tputui.state.time_spent import SILENT_S, STEPPING, lasts_s
from tputui.telemetry.events import HeartbeatSent, Outcome

Alive = Mapping[str, bool | None]
"""Whether a process is alive, by name; None if this host cannot know."""

COMPILE_S = 60.0
"""Seconds after which a compilation may be a stall. The first one never is."""
FIRST_WORD_S = 60.0
"""Seconds without an event before the first heartbeat, while a process may be importing modules."""
FAR_SILENT_S = 60.0
"""Seconds without an event after which a process on another host counts as gone."""
AHEAD_STEPS, AHEAD_S = 4, 5.0
"""Hosts that are this many steps and seconds of training ahead of another one do not wait for it."""
SUPERVISOR_TELLS_S = 10.0
"""Seconds within which a supervisor reports the end of its training process."""

_WORST_FIRST: tuple[Outcome, ...] = ("failed", "stopped", "done")
_OUTCOME_WORDS: dict[Outcome, str] = {"done": "done", "stopped": "stopped", "failed": "training failed"}


class Liveness(NamedTuple):
    """The condition of a run."""

    condition: RunCondition
    reason: str
    """One sentence, without a full stop."""
    ended_t: float | None
    """Time of the end event."""
    exit_code: int | None
    """As the supervisor reported it."""
    stalled: Mapping[str, str]
    """Stalled processes, and why."""
    living: frozenset[str]
    """Processes that are alive, as far as is known."""


def assess(
    state: RunState,
    alive: Alive,
    now: float,
    created: float | None = None,
    known_until: Mapping[str, float] | None = None,
) -> Liveness:
    """The condition of a run at the unix time `now`.

    `created`: unix time at which it was started, if known. `known_until`: by process, the unix time after which nothing
    can be known of it, since the connection to its host is lost.
    """
    until = {name: min(now, t) for name, t in (known_until or {}).items()}
    living = frozenset(n for n, process in state.processes.items() if _lives(process, alive, until.get(n, now)))
    ended = _end(state)
    if ended is not None and not _may_restart(state, living):
        return ended._replace(living=living)
    liveness = _alive_or_lost(state, alive, living, now, created, until)
    return liveness._replace(living=living)


def _condition(condition: RunCondition, reason: str, stalled: Mapping[str, str] | None = None) -> Liveness:
    return Liveness(condition, reason, None, None, stalled or {}, frozenset())


def _lives(process: ProcessState, alive: Alive, now: float) -> bool:
    lives = alive.get(process.name)
    if lives is not None:
        return lives
    return process.newest_t is not None and now - process.newest_t <= FAR_SILENT_S


def _end(state: RunState) -> Liveness | None:
    """The condition by the end events; None if no end event counts yet."""
    closed = [w.run_ended for w in state.supervisors if w.run_ended]
    failed = [record for record in closed if record.outcome == "failed"]
    if failed or (closed and state.supervisors[0].run_ended):
        first = state.supervisors[0].run_ended
        record = failed[0] if failed else first or closed[0]
        return Liveness(
            record.outcome,
            record.reason or _OUTCOME_WORDS[record.outcome],
            record.t,
            record.exit_code,
            {},
            frozenset(),
        )
    ends = [w.training_ended for w in state.workers]
    if not ends or any(end is None for end in ends):
        return None
    record_of = {end.outcome: end for end in reversed(ends) if end is not None}
    end = next(record_of[outcome] for outcome in _WORST_FIRST if outcome in record_of)
    ended_t = max(end.t for end in ends if end is not None)
    return Liveness(end.outcome, end.reason or _OUTCOME_WORDS[end.outcome], ended_t, None, {}, frozenset())


def _may_restart(state: RunState, living: frozenset[str]) -> bool:
    """Whether training failed, and a supervisor that is alive may still start its processes again."""
    if any(supervisor.run_ended for supervisor in state.supervisors):
        return False
    if not any(supervisor.name in living for supervisor in state.supervisors):
        return False
    if not any(worker.training_ended and worker.training_ended.outcome == "failed" for worker in state.workers):
        return False
    config = next((w.run_started.config for w in state.supervisors if w.run_started), {})
    launch = config.get("launch")
    most = launch.get("max_restarts") if isinstance(launch, dict) else None
    restarts = max((worker.opened.generation for worker in state.workers if worker.opened), default=0)
    return isinstance(most, int) and restarts < most


def _alive_or_lost(
    state: RunState,
    alive: Alive,
    living: frozenset[str],
    now: float,
    created: float | None,
    until: Mapping[str, float],
) -> Liveness:
    if not state.processes:
        return _no_events(now, created)
    if state.is_imported:
        # Its times are those of the log, so they do not show whether the process that reads it is stuck.
        if living:
            return _condition("running", "reading the log")
        return _condition("lost", "reading the log was interrupted; opening the log again continues")
    if not living:
        return _condition("lost", _lost_reason(state, alive, now))
    workers = [worker for worker in state.workers if worker.name in living and worker.training_ended is None]
    gone = [worker for worker in state.workers if worker.name not in living and worker.training_ended is None]
    if not workers:
        return _without_workers(state, gone, now)
    ranks = [rank for rank in state.ranks if rank.name in living and rank.training_ended is None]
    stepped = any(worker.stepped for worker in state.workers)
    pace = _Pace(limits(state), stepped, _median_step_s(state), max(w.longest_compile_s for w in state.workers))
    stalled = {
        process.name: why
        for process in [*workers, *ranks]
        if (why := _stall(process, pace, until.get(process.name, now)))
    }
    if gone:
        since = max(_newest_t(worker) for worker in gone)
        if now - since > SUPERVISOR_TELLS_S:
            reason = f"{_names(gone)} exited {fmt.age(now - since)} ago; the other processes wait"
            return _condition("stalled", reason, stalled)
    if stalled and _goes_on_without(state, workers, stalled, pace.step_s):
        return _going_on(state, workers, living)._replace(stalled=stalled)
    if stalled:
        if all(_has_fresh_heartbeat(state.processes[name], now) for name in stalled) and (
            who := waiting(state, living, now)
        ):
            return _condition("stalled", who, stalled)
        return _condition("stalled", _first_stall(state, stalled), stalled)
    return _going_on(state, workers, living)


def _goes_on_without(state: RunState, workers: list[ProcessState], stalled: Mapping[str, str], step_s: float) -> bool:
    """Whether all other hosts have made many more steps than those that count as stalled, so that these go on, too, and
    their events do not arrive."""
    hosts = {state.processes[name].host_index for name in stalled}
    behind = max((worker.steps_done for worker in workers if worker.host_index in hosts), default=0)
    others = [worker.steps_done for worker in workers if worker.host_index not in hosts]
    ahead = min(others, default=behind) - behind
    return ahead >= AHEAD_STEPS and ahead * step_s > AHEAD_S


def _first_stall(state: RunState, stalled: Mapping[str, str]) -> str:
    """`worker-0 has been tracing for 90 s without a step`; of several hosts `host 3 (vm-3) ..., and 29 more hosts`."""
    name, why = next(iter(stalled.items()))
    first = state.processes[name]
    has_hosts = len(state.by_host) > 1
    if has_hosts and first.opened is not None:
        name = f"host {first.host_index} ({first.opened.host})"
    units = {state.processes[stalled_name].host_index for stalled_name in stalled} if has_hosts else stalled
    num_more, unit = len(units) - 1, ("host", "hosts") if has_hosts else ("process", "processes")
    return f"{name} {why}{f', and {num_more:,} more {unit[num_more > 1]}' if num_more else ''}"


def _going_on(state: RunState, workers: list[ProcessState], living: frozenset[str]) -> Liveness:
    orphaned = [supervisor for supervisor in state.supervisors if supervisor.name not in living]
    aside = f"; its supervisor {_describe(orphaned[0])} is gone" if orphaned else ""
    beat = workers[0].beat
    doing = fmt.PHASES[beat.phase] if beat else "starting"
    reports_phase = beat is None or beat.phase != "unknown"
    if reports_phase and not any(worker.stepped for worker in state.workers):
        return _condition("starting", f"no step yet: {doing}{aside}")
    return _condition("running", f"{doing}{aside}")


def _no_events(now: float, created: float | None) -> Liveness:
    if created is not None and now - created <= FIRST_WORD_S:
        return _condition("starting", "started; no process has written anything yet")
    return _condition("lost", "no process left a readable event")


def _without_workers(state: RunState, gone: list[ProcessState], now: float) -> Liveness:
    """The condition if the supervisor is alive and no training process is."""
    if not gone:
        condition: RunCondition = "running" if state.workers else "starting"
        reason = (
            "training ended; other processes are still running" if state.workers else "the training process is starting"
        )
        if any(worker.failure for worker in state.workers):
            reason = "training failed; its processes may be started again"
        return _condition(condition, reason)
    # A worker may be silent for long before it is killed; the supervisor has time to report it from there on.
    since = max(_newest_t(process) for process in (*gone, *state.supervisors))
    if now - since <= SUPERVISOR_TELLS_S:
        return _condition("running", f"{_names(gone)} exited; waiting for the report of the supervisor")
    return _condition("lost", f"{_names(gone)} exited {fmt.age(now - since)} ago; no report from the supervisor")


def limits(state: RunState) -> StallConfig:
    """When the run counts as stalled, by the configuration that its supervisor recorded."""
    config = next((w.run_started.config for w in state.supervisors if w.run_started), {})
    table = config.get("stall")
    given = table if isinstance(table, dict) else {}
    usual = StallConfig()
    names = ("after_s", "after_steps", "compile_times")
    return replace(usual, **{name: _positive_or(given.get(name), getattr(usual, name)) for name in names})


class _Pace(NamedTuple):
    """How long steps and compilations took so far, and the limits."""

    limits: StallConfig
    stepped: bool
    """Whether any step was reported."""
    step_s: float
    compile_s: float


def _positive_or(value: object, usual: float) -> float:
    """The value if it is a positive number; run directories are untrusted input."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return value
    return usual


def _median_step_s(state: RunState) -> float:
    """Median step time in seconds, by the first worker with reports; 0 before."""
    return next((w.pace.quantile(0.5) for w in state.workers if w.pace.num_reports), 0.0)


def _has_fresh_heartbeat(process: ProcessState, now: float) -> bool:
    return process.beat is not None and now - _newest_t(process) <= SILENT_S


def _stall(worker: ProcessState, pace: _Pace, now: float) -> str | None:
    """Why a living process counts as stalled, as the rest of a sentence; None if it does not."""
    silent_s = now - _newest_t(worker)
    beat = worker.beat
    if silent_s > (FIRST_WORD_S if beat is None else SILENT_S):
        return f"is alive, but has sent nothing for {fmt.age(silent_s)}"
    if beat is not None and beat.phase == "compiling":
        return _long_compile(beat, pace, now)
    if beat is not None and beat.phase == "tracing":
        return _long_trace(beat, pace, now)
    if beat is None or beat.phase not in STEPPING or worker.moved_t is None or not pace.stepped:
        # Before the first step, reading data and running the first program may take any time.
        return None
    stuck_s = now - worker.moved_t
    if stuck_s <= max(pace.limits.after_s, pace.limits.after_steps * pace.step_s):
        return None
    return f"has been {fmt.PHASES[beat.phase]} for {fmt.whole(stuck_s)} without a step"


def _long_compile(beat: HeartbeatSent, pace: _Pace, now: float) -> str | None:
    """Why a compilation takes too long; the first one may take any time."""
    phase_s = lasts_s(beat, now)
    if not pace.compile_s or phase_s <= max(COMPILE_S, pace.limits.compile_times * pace.compile_s):
        return None
    return f"has been compiling for {fmt.whole(phase_s)}; none before took longer than {fmt.duration(pace.compile_s)}"


def _long_trace(beat: HeartbeatSent, pace: _Pace, now: float) -> str | None:
    """Why tracing takes too long. A new trace is compiled, so it may take as long as compiling; before the first step
    it may take any time."""
    phase_s = lasts_s(beat, now)
    least = pace.limits.after_s, pace.limits.after_steps * pace.step_s, pace.limits.compile_times * pace.compile_s
    if not pace.step_s or phase_s <= max(least):
        return None
    return f"has been {fmt.PHASES[beat.phase]} for {fmt.whole(phase_s)} without a step"


def _lost_reason(state: RunState, alive: Alive, now: float) -> str:
    newest = state.newest_t
    silent_s = fmt.age(now - newest) if newest is not None else "an unknown time"
    silent = [w for w in state.in_order if w.run_ended is None and w.training_ended is None] or state.in_order
    broke = next((w.failure for w in state.workers if w.failure), None)
    after = f", after {broke.error}" if broke else ""
    exited = next((w.worker_exited for w in state.supervisors if w.worker_exited and w.worker_exited.signal), None)
    if exited:
        after += f"; the training process was ended by {exited.signal}"
    if any(alive.get(process.name) is None for process in state.processes.values()):
        host = next((w.opened.host for w in state.in_order if w.opened), "another host")
        return (
            f"no end event and no heartbeat for {silent_s}{after}; its processes ran on {host}, not visible from here"
        )
    return f"no end event; {_names(silent)} gone for {silent_s}{after}"


def _names(processes: list[ProcessState]) -> str:
    shown = [_describe(process) for process in processes[:3]]
    more = len(processes) - len(shown)
    return " and ".join([*shown, f"{more} more"] if more else shown)


def _describe(process: ProcessState) -> str:
    return f"{process.name} (pid {process.opened.pid})" if process.opened else process.name


def _newest_t(process: ProcessState) -> float:
    return process.newest_t if process.newest_t is not None else -math.inf

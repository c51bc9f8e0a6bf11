"""Whether a run lives, and how it ended: told from its facts and from what the viewer's host says of its processes.

Pure: the moment and the liveness of processes are arguments. The rules, first that fits:

1. An end record was read: its outcome. The supervisor's counts, else the training process's own.
2. A process of the run lives: running, starting or stalled.
3. The processes are another host's: they count as alive while their newest fact is young.
4. Otherwise the run is lost, since its newest fact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.process_stacks import waiting
from tputui.state.process_state import SILENT_S, STEPPING, STUCK_S, STUCK_STEPS, ProcessState, lasts_s
from tputui.state.reducer import RunState
from tputui.state.snapshot import RunCondition
from tputui.telemetry.events import HeartbeatSent, Outcome

Alive = Mapping[str, bool | None]
"""By writer: whether its process lives; None where this host cannot know."""

COMPILE_TIMES = 5.0
"""A compilation that takes so many times the longest one before is a stall ..."""
COMPILE_S = 60.0
"""... once it has taken so long. The first one never is."""
FIRST_WORD_S = 60.0
"""The same before the first heartbeat, while a process may be busy importing."""
FAR_SILENT_S = 60.0
"""Of a process on another host only its facts can tell; a copied run or a dead host gives none for so long."""
SUPERVISOR_TELLS_S = 10.0
"""A living supervisor tells the end of its training process well within this."""

_WORST_FIRST: tuple[Outcome, ...] = ("failed", "stopped", "done")
_OUTCOME_WORDS: dict[Outcome, str] = {"done": "done", "stopped": "stopped", "failed": "training failed"}


class Limits(NamedTuple):
    """How long is too long, as the run was configured."""

    after_s: float = STUCK_S
    """Seconds without a step, at least."""
    after_steps: float = STUCK_STEPS
    """Times the median step."""
    compile_times: float = COMPILE_TIMES
    """Times the longest compilation before."""


class Liveness(NamedTuple):
    """What is told of a run's life."""

    condition: RunCondition
    reason: str
    """One sentence, without a full stop."""
    ended_t: float | None
    """Time of the end record."""
    exit_code: int | None
    """The supervisor's word."""
    stalled: Mapping[str, str]
    """Writers that are stalled, and why."""
    living: frozenset[str]
    """Writers whose process lives, as far as can be told."""


def assess(state: RunState, alive: Alive, now: float, created: float | None = None) -> Liveness:
    """The condition of a run at the moment `now`. `created` is when it was asked for, where that is known."""
    living = frozenset(name for name, writer in state.processes.items() if _lives(writer, alive, now))
    ended = _end(state)
    if ended is not None:
        return ended._replace(living=living)
    told = _told(state, alive, living, now, created)
    return told._replace(living=living)


def _verdict(condition: RunCondition, reason: str, stalled: Mapping[str, str] | None = None) -> Liveness:
    return Liveness(condition, reason, None, None, stalled or {}, frozenset())


def _lives(writer: ProcessState, alive: Alive, now: float) -> bool:
    known = alive.get(writer.name)
    if known is not None:
        return known
    return writer.newest_t is not None and now - writer.newest_t <= FAR_SILENT_S


def _end(state: RunState) -> Liveness | None:
    """What the end records say; None where there is none that counts yet."""
    closed = [w.run_ended for w in state.supervisors if w.run_ended]
    failed = [record for record in closed if record.outcome == "failed"]
    if failed or (closed and state.supervisors[0].run_ended):
        first = state.supervisors[0].run_ended
        record = failed[0] if failed else first or closed[0]
        return Liveness(
            record.outcome, _ending(record.outcome, record.reason), record.t, record.exit_code, {}, frozenset()
        )
    words = [w.training_ended for w in state.workers]
    if not words or any(word is None for word in words):
        return None
    record_of = {word.outcome: word for word in reversed(words) if word is not None}
    word = next(record_of[outcome] for outcome in _WORST_FIRST if outcome in record_of)
    ended_t = max(word.t for word in words if word is not None)
    return Liveness(word.outcome, _ending(word.outcome, word.reason), ended_t, None, {}, frozenset())


def _ending(outcome: Outcome, reason: str) -> str:
    return reason or _OUTCOME_WORDS[outcome]


def _told(state: RunState, alive: Alive, living: frozenset[str], now: float, created: float | None) -> Liveness:
    if not state.processes:
        return _nothing_said(now, created)
    if not living:
        return _verdict("lost", _lost_reason(state, alive, now))
    workers = [worker for worker in state.workers if worker.name in living and worker.training_ended is None]
    gone = [worker for worker in state.workers if worker.name not in living and worker.training_ended is None]
    if not workers:
        return _without_workers(state, gone, now)
    ranks = [rank for rank in state.ranks if rank.name in living and rank.training_ended is None]
    stepped = any(worker.stepped for worker in state.workers)
    pace = _Pace(limits(state), stepped, _median_step_s(state), max(w.longest_compile_s for w in state.workers))
    stalled = {writer.name: why for writer in [*workers, *ranks] if (why := _stall(writer, pace, now))}
    if gone:
        since = max(_last_sign(worker) for worker in gone)
        if now - since > SUPERVISOR_TELLS_S:
            reason = f"{_names(gone)} vanished {fmt.whole(now - since)} ago, and the others wait"
            return _verdict("stalled", reason, stalled)
    if stalled:
        if all(_beats(state.processes[name], now) for name in stalled) and (who := waiting(state, living, now)):
            return _verdict("stalled", who, stalled)
        name, why = next(iter(stalled.items()))
        more = f", and {len(stalled) - 1} more processes" if len(stalled) > 1 else ""
        return _verdict("stalled", f"{name} {why}{more}", stalled)
    return _going_on(state, workers, living)


def _going_on(state: RunState, workers: list[ProcessState], living: frozenset[str]) -> Liveness:
    orphaned = [supervisor for supervisor in state.supervisors if supervisor.name not in living]
    aside = f"; its supervisor {_process(orphaned[0])} is gone" if orphaned else ""
    beat = workers[0].beat
    doing = fmt.PHASES[beat.phase] if beat else "starting"
    if not any(worker.stepped for worker in state.workers):
        return _verdict("starting", f"no step yet: {doing}{aside}")
    return _verdict("running", f"{doing}{aside}")


def _nothing_said(now: float, created: float | None) -> Liveness:
    if created is not None and now - created <= FIRST_WORD_S:
        return _verdict("starting", "asked for; no process of it has spoken yet")
    return _verdict("lost", "no process of it left a readable word")


def _without_workers(state: RunState, gone: list[ProcessState], now: float) -> Liveness:
    """The supervisor lives and no training process does."""
    if not gone:
        condition: RunCondition = "running" if state.workers else "starting"
        what = "training ended; the others are not through yet" if state.workers else "the training process is starting"
        return _verdict(condition, what)
    # A worker may have been silent for long before it was killed; the supervisor has time to report it from there on.
    since = max(_last_sign(writer) for writer in (*gone, *state.supervisors))
    if now - since <= SUPERVISOR_TELLS_S:
        return _verdict("running", f"{_names(gone)} is gone; the supervisor is about to tell why")
    return _verdict(
        "lost", f"{_names(gone)} vanished {fmt.whole(now - since)} ago, and the supervisor tells nothing of it"
    )


def limits(state: RunState) -> Limits:
    """How long is too long, by the run's configuration as its supervisor told it."""
    told = next((w.run_started.config for w in state.supervisors if w.run_started), {})
    table = told.get("stall")
    given = table if isinstance(table, dict) else {}
    return Limits(*(_figure(given.get(name), usual) for name, usual in Limits()._asdict().items()))


class _Pace(NamedTuple):
    """What a run has taken so far, and how much more is too much."""

    limits: Limits
    stepped: bool
    """Whether a step of the run was reported."""
    step_s: float
    compile_s: float


def _figure(value: object, usual: float) -> float:
    """A stranger's configuration may hold anything."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return value
    return usual


def _median_step_s(state: RunState) -> float:
    """Median step time by the first worker that reported; 0 before."""
    return next((w.pace.quantile(0.5) for w in state.workers if w.pace.num_reports), 0.0)


def _beats(writer: ProcessState, now: float) -> bool:
    return writer.beat is not None and now - _last_sign(writer) <= SILENT_S


def _stall(worker: ProcessState, pace: _Pace, now: float) -> str | None:
    """Why a living worker counts as stalled, as the rest of a sentence."""
    silent_s = now - _last_sign(worker)
    beat = worker.beat
    if silent_s > (FIRST_WORD_S if beat is None else SILENT_S):
        return f"lives, and has said nothing for {fmt.whole(silent_s)}"
    if beat is not None and beat.phase == "compiling":
        return _long_compile(beat, pace, now)
    if beat is not None and beat.phase == "tracing":
        return _long_trace(beat, pace, now)
    if beat is None or beat.phase not in STEPPING or worker.moved_t is None or not pace.stepped:
        # Before the first step, data may be read for the first time, or the first program run, for as long as it takes.
        return None
    stuck_s = now - worker.moved_t
    if stuck_s <= max(pace.limits.after_s, pace.limits.after_steps * pace.step_s):
        return None
    return f"has been {fmt.PHASES[beat.phase]} for {fmt.whole(stuck_s)} without a step"


def _long_compile(beat: HeartbeatSent, pace: _Pace, now: float) -> str | None:
    """Why a compilation takes too long; the first one may take as long as it takes."""
    phase_s = lasts_s(beat, now)
    if not pace.compile_s or phase_s <= max(COMPILE_S, pace.limits.compile_times * pace.compile_s):
        return None
    return f"has been compiling for {fmt.whole(phase_s)}, and none before took more than {fmt.duration(pace.compile_s)}"


def _long_trace(beat: HeartbeatSent, pace: _Pace, now: float) -> str | None:
    """Why tracing takes too long. What is traced anew is compiled anew, so it may take what compiling may; that of the
    first steps may take as long as it takes."""
    phase_s = lasts_s(beat, now)
    least = pace.limits.after_s, pace.limits.after_steps * pace.step_s, pace.limits.compile_times * pace.compile_s
    if not pace.step_s or phase_s <= max(least):
        return None
    return f"has been {fmt.PHASES[beat.phase]} for {fmt.whole(phase_s)} without a step"


def _lost_reason(state: RunState, alive: Alive, now: float) -> str:
    newest = state.newest_t
    silent_s = fmt.whole(now - newest) if newest is not None else "an unknown time"
    silent = [w for w in state.in_order if w.run_ended is None and w.training_ended is None] or state.in_order
    broke = next((w.failure for w in state.workers if w.failure), None)
    after = f", after {broke.error}" if broke else ""
    exited = next((w.worker_exited for w in state.supervisors if w.worker_exited and w.worker_exited.signal), None)
    if exited:
        after += f"; the training process was ended by {exited.signal}"
    if any(alive.get(writer.name) is None for writer in state.processes.values()):
        host = next((w.opened.host for w in state.in_order if w.opened), "another host")
        return f"no end record, no word for {silent_s}{after}; its processes ran on {host}, unseen from here"
    return f"no end record: {_names(silent)} vanished {silent_s} ago{after}"


def _names(writers: list[ProcessState]) -> str:
    shown = [_process(writer) for writer in writers[:3]]
    more = len(writers) - len(shown)
    return " and ".join([*shown, f"{more} more"] if more else shown)


def _process(writer: ProcessState) -> str:
    return f"{writer.name} (pid {writer.opened.pid})" if writer.opened else writer.name


def _last_sign(writer: ProcessState) -> float:
    return writer.newest_t if writer.newest_t is not None else -math.inf

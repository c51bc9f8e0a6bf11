"""Python stacks of the processes of a run, and which process waits for which.

Calls of tputui and of libraries are folded, so that the lines of the user's code stand out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import asdict, replace

from tputui import formatting as fmt
from tputui.state import device_views
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import ProcessStacks, RequestState, RequestView, StacksView
from tputui.state.time_spent import lasts_s
from tputui.telemetry import events as ev

NAMED_THREADS_MAX = 8
_UNANSWERED: frozenset[RequestState] = frozenset({"requested", "seen"})
_FOLDED = {"tputui": "tputui", "library": "libraries"}


def stacks(state: RunState, requests: Sequence[RequestView] = ()) -> StacksView | None:
    """Answers to the newest request for stacks, of processes and of the TPU runtime; None if none was answered."""
    all_stacks = [taken for process in state.in_order for taken in process.stacks.values()]
    all_cores = [process.devices.core_states for process in state.supervisors if process.devices.core_states]
    answered = [*(taken.request for taken in all_stacks), *(read.request for read in all_cores)]
    newest = max(answered, default=None)
    if newest is None:
        return None
    read = [reading for reading in all_cores if reading.request == newest]
    answers: dict[str, ev.StacksTaken] = {}
    for taken in all_stacks:
        # The own report of a process counts more than stacks fetched by a signal.
        if taken.request == newest and (taken.process not in answers or not taken.by_signal):
            answers[taken.process] = taken
    processes = [_process(state, taken) for _, taken in sorted(answers.items())]
    again = [
        asked.t for asked in requests if asked.kind == "stacks" and asked.id > newest and asked.state in _UNANSWERED
    ]
    return StacksView(
        request=newest,
        t=max([*(view.t for view in processes), *(reading.t for reading in read)]),
        processes=processes,
        cores=[core for reading in read for core in reading.cores or []],
        cores_reason="; ".join(dict.fromkeys(reading.reason for reading in read if reading.reason)) or None,
        again_t=max(again, default=None),
    )


def page(view: StacksView) -> list[str]:
    """The stacks as lines."""
    blocks = [[*process_lines(process, own_cores(view, process))] for process in view.processes]
    blocks.append([*core_lines(view)])
    return [line for block in blocks if block for line in [*block, ""]][:-1]


def own_cores(view: StacksView, process: ProcessStacks) -> list[ev.CoreState]:
    """What the cores of a process executed; those of all cores if no other process is known."""
    if len(view.processes) == 1:
        return view.cores
    # Logs number their losses, not the cores of the process that wrote them.
    return [] if process.process.startswith("logs-") else [core for core in view.cores if core.core in process.cores]


def core_lines(view: StacksView) -> Iterator[str]:
    """Lines of the TPU cores over all processes, the ones that differ first. Cores of a single process are in its own
    lines already."""
    shown = view.cores if len(view.processes) != 1 else []
    if shown or view.cores_reason is not None:
        yield "TPU cores"
        yield from (f"  {line}" for line in device_views.state_lines(shown, operations=not view.processes))
    if view.cores_reason is not None:
        yield f"  not known: {view.cores_reason}"


def process_lines(process: ProcessStacks, cores: Sequence[ev.CoreState] = ()) -> Iterator[str]:
    """Lines of one process: its phase, what its cores execute, the stacks of its training thread and of threads in the
    user's code, other names."""
    yield headline(process)
    yield from (f"  {line}" for line in device_views.state_lines(cores))
    shown = [thread for index, thread in enumerate(process.threads) if index == 0 or _is_users(thread)]
    for thread in shown:
        yield f"  {thread.name}"
        yield from (f"    {line}" for line in folded(thread.frames))
    others = [thread.name for thread in process.threads if thread not in shown]
    if others:
        more = f" and {len(others) - NAMED_THREADS_MAX} more" if len(others) > NAMED_THREADS_MAX else ""
        yield f"  other threads: {', '.join(others[:NAMED_THREADS_MAX])}{more}"
    if process.path:
        yield f"  full stacks: {process.path}"


def headline(process: ProcessStacks) -> str:
    """`rank-3 (core 3, pid 4711): executing for 12 s at step 812, in all-reduce`."""
    where = ", ".join(part for part in (fmt.cores(process.cores), f"pid {process.pid}") if part)
    waits = f", in {process.waits_for}" if process.waits_for else ""
    held = "; it holds the interpreter, so a signal fetched this" if process.by_signal else ""
    return f"{process.process} ({where}): {_doing(process)}{waits}{held}"


def _doing(process: ProcessStacks) -> str:
    """The phase; its duration only from one second on, since phases change with nearly every step."""
    if process.phase is None:
        return "phase unknown"
    lasts = f" for {fmt.whole(process.phase_s)}" if process.phase_s >= 1 else ""
    return f"{fmt.PHASES[process.phase]}{lasts} at step {process.step:,}"


def folded(frames: list[ev.CodeFrame]) -> Iterator[str]:
    """A stack as lines: the newest call, every call in the user's code, the others as counts."""
    users = [frame for frame in frames if frame.owner == "user"]
    if users and frames[0].owner != "user":
        yield f"in your code: {call(users[0])}"
    remaining = frames
    if frames and frames[0].owner != "user":
        yield call(frames[0])
        remaining = frames[1:]
    for owner, calls in groupby(remaining, key=lambda frame: frame.owner):
        run = list(calls)
        if owner == "user":
            yield from (call(frame) for frame in run)
        else:
            yield f"... {fmt.count(len(run))} call{'s' if len(run) > 1 else ''} of {_FOLDED[owner]}"


def call(frame: ev.CodeFrame) -> str:
    """`reader.py:31 in fetch`, with the whole path."""
    return f"{frame.file}:{frame.line} in {frame.function}"


def waiting(state: RunState, living: Iterable[str], now: float) -> str:
    """Which processes wait where, minorities first: `core 5 waiting for data for 94 s, 7 others in all-reduce at step
    812`.

    Empty if fewer than two processes send heartbeats.
    """
    alive = set(living)
    training = (w for w in (*state.workers, *state.ranks) if w.name in alive and not w.training_ended)
    beating = [(process, process.beat) for process in training if process.beat]
    if len(beating) < 2:
        return ""
    groups: dict[tuple[bool, str], list[tuple[ProcessState, ev.HeartbeatSent]]] = {}
    for process, beat in beating:
        activity = f"in {beat.waits_for}" if beat.waits_for else fmt.PHASES[beat.phase]
        groups.setdefault((beat.waits_for is not None, activity), []).append((process, beat))
    # The minority holds up the others; processes in a collective only wait.
    order = sorted(groups.items(), key=lambda group: (group[0][0], len(group[1])))
    parts: list[str] = []
    for index, ((waits, activity), group) in enumerate(order):
        longest = max(lasts_s(beat, now) for _, beat in group)
        cores = [core for process, _ in group for core in driven(state, process)]
        is_rest = index > 0 and index == len(order) - 1
        who = fmt.counted(len(cores) or len(group), "other") if is_rest else fmt.cores(cores) or group[0][0].name
        lasts = "" if is_rest and waits else f" for {fmt.whole(longest)}"
        parts.append(f"{who} {activity}{lasts}")
    return f"{', '.join(parts)} at step {max(beat.step for _, beat in beating):,}"


def driven(state: RunState, process: ProcessState) -> list[int]:
    """Cores that a process drives: under `replica` the worker is the first rank, although it reports for all."""
    if process.topology is None:
        return []
    is_first_rank = process.topology.strategy == "replica" and not process.is_rank
    return process.topology.cores[:1] if is_first_rank else process.topology.cores


def _is_users(thread: ev.ThreadStack) -> bool:
    return any(frame.owner == "user" for frame in thread.frames)


def _process(state: RunState, taken: ev.StacksTaken) -> ProcessStacks:
    process = _reporting(state, taken)
    then = _then(process, taken) if process else None
    fields = asdict(taken) | {"process": process.name if process else taken.process}
    return ProcessStacks(
        **fields,
        cores=driven(state, process) if process else [],
        phase=then.phase if then else None,
        phase_s=then.phase_s if then else 0.0,
        step=then.step if then else 0,
        waits_for=then.waits_for if then else None,
    )


def _reporting(state: RunState, taken: ev.StacksTaken) -> ProcessState | None:
    """The state of the process; if its stacks were read from outside, that of the process that reports itself."""
    process = state.processes.get(taken.process)
    if process is None or process.role != "logs" or process.opened is None:
        return process
    host = process.opened.host
    own = (
        worker
        for worker in state.workers
        if worker.opened and (worker.opened.host, worker.opened.pid) == (host, taken.pid)
    )
    return next(own, process)


def _then(process: ProcessState, taken: ev.StacksTaken) -> ev.HeartbeatSent | None:
    """What the process was doing when its stacks were taken, as a heartbeat: by its receipts for the request, or else
    by its newest heartbeat before the stacks."""
    beats = [beat for beat in (process.beat_at_stacks, process.beat) if beat is not None and beat.t <= taken.t]
    beat = max(beats, key=lambda beat_then: beat_then.t, default=None)
    receipts = process.receipts.get(taken.request) if not taken.by_signal else None
    step = beat.step if beat is not None else 0
    if receipts is not None and receipts.seen is not None:
        phase, step = receipts.seen.phase, (receipts.applied or receipts.seen).step
        if beat is None or beat.phase != phase:
            return ev.HeartbeatSent(t=taken.t, phase=phase, phase_s=0.0, step=step, epoch=0)
    return replace(beat, phase_s=lasts_s(beat, taken.t), step=step) if beat is not None else None

"""The first failure of a run, and which failures only followed from it.

The screen, `--no-ui`, `show` and the report file show the same `Failure`. A process reports its own exception, the
first rank reports a rank that exited without one, and the supervisor adds what only it can know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import asdict, replace

from tputui import formatting as fmt
from tputui.state.process_stacks import call, driven
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState, command_writer
from tputui.state.snapshot import Failure
from tputui.telemetry import events as ev
from tputui.telemetry.process_end import FOLLOWING, PEER_LOST

FRAMES_TOLD = 8
FOLLOWERS_MAX = 32
"""Later ends of other processes that are listed."""
KINDS: dict[ev.FailureKind, str] = {
    "exception": "an exception",
    "import": "a module that does not import",
    "refused": "refused: the configuration, the arguments or the checkpoint cannot be used",
    "unable": "this machine cannot train",
    "memory": "out of memory",
    "non_finite": "a NaN or infinite loss, gradient or weight",
    "aborted": "ended in native code",
    "killed": "ended by a signal from outside",
    "exited": "exited without a report",
}
"""Kinds of failure in words."""
_ONE_DEVICE = (
    "threads of torch_xla.launch cannot exchange values between virtual CPU devices: set CPU_NUM_DEVICES=1 to train on "
    "one"
)
_FOLLOWED = "because another process of the program had ended before, as its own host reports"


class Death(NamedTuple):
    """The failure of one process."""

    process: str
    """Its name."""
    event: ev.FailureRaised


def first(state: RunState) -> Death | None:
    """The first failure that a process reported, of itself or of another one; None if there is none."""
    began_t = state.generation_t
    failures = [
        Death(w.failure.process or w.name, w.failure) for w in state.in_order if w.failure and w.failure.t >= began_t
    ]
    causes = [death for death in failures if death.event.error not in FOLLOWING]
    causes = causes or [death for death in failures if death.event.error != PEER_LOST] or failures
    return min(causes, key=lambda death: death.event.t, default=None)


def failure(state: RunState) -> Failure | None:
    """The first failure of the run with everything that is known of it; None if there is none."""
    death = first(state)
    reported = _reported(state, death)
    followed = death is None or death.event.error in FOLLOWING
    if reported is not None and (death is None or followed or death.process != reported.process):
        own = state.processes.get(reported.process)
        death = Death(own.name, own.failure) if own and own.failure and not followed else None
    if death is not None:
        cause = _raised(state, death)
    elif reported is not None:
        cause = _silent(reported)
    else:
        return None
    return _placed(state, _with_report(cause, reported))


def _reported(state: RunState, death: Death | None) -> ev.FailureReported | None:
    """What a supervisor reported of the first failure: that of its host if a process of it failed, else the first."""
    began_t = state.generation_t
    reports = [w.failure_reported for w in state.supervisors if w.failure_reported and w.failure_reported.t >= began_t]
    own = [report for report in reports if death is not None and report.process == death.process and report.log]
    return min(own or reports, key=lambda report: (report.error in FOLLOWING, report.t), default=None)


def block(failure: Failure) -> list[str]:
    """The failure as lines of text, for the report file, `--no-ui` and `show`."""
    moment = fmt.utc(failure.t, "%Y-%m-%d %H:%M:%S UTC", "at an unknown time")
    rows = [("first failure", place_of(failure)), ("what", what(failure)), ("", how(failure))]
    rows.append(("when", ", ".join([moment, *fmt.failure_moment(failure.step, failure.phase)])))
    rows += [("your code" if not index else "", where) for index, where in enumerate(your_code(failure))]
    rows += [("memory", failure.memory)] if failure.memory else []
    lines = [line for name, text in rows for line in _row(name, text)]
    for name, part in (
        ("traceback", failure.traceback.splitlines()),
        ("stack in native code", failure.stack.splitlines()),
        ("last lines printed before", failure.log),
        ("followed", failure.followers),
    ):
        lines += [name, *(f"    {line}" for line in part)] if part else []
    return lines


def what(failure: Failure) -> str:
    """`ValueError: the file is cut short`; further lines of the message follow."""
    return f"{failure.error}: {failure.message}" if failure.message else failure.error


def how(failure: Failure) -> str:
    """The kind of the failure in words, with a known way round; of one that follows from another, that it does."""
    if failure.error in FOLLOWING:
        return _FOLLOWED
    return f"{KINDS[failure.kind]}; {_ONE_DEVICE}" if has_lost_threads(failure) else KINDS[failure.kind]


def has_lost_threads(failure: Failure) -> bool:
    """Whether the runtime aborted a program because threads of `torch_xla.launch` did not meet."""
    if failure.kind != "aborted" and not failure.error.endswith("BrokenProcessPool"):
        return False
    text = "\n".join([failure.message, failure.traceback, failure.stack, *failure.log])
    return "torch_xla" in text and "rendezvous" in text.lower()


def your_code(failure: Failure) -> list[str]:
    """Calls in the user's code, newest first: `data/reader.py:31 in fetch`."""
    return [call(frame) for frame in failure.frames[:FRAMES_TOLD]]


def _raised(state: RunState, death: Death) -> Failure:
    event = death.event
    own = state.processes.get(death.process)
    # For a process that exited without a report, its last heartbeat is better than what its peer saw.
    beat = own.beat if own and event.process and not own.failure else None
    fields = asdict(event) | ({"phase": beat.phase, "step": beat.step} if beat else {})
    return Failure(writer=death.process, **fields)


def _silent(event: ev.FailureReported) -> Failure:
    where = f"{event.other_host}: " if event.other_host else ""
    return Failure(
        writer=event.process,
        error=event.error,
        message=f"{where}{event.message}",
        traceback="",
        phase=event.phase,
        step=event.step,
        kind=event.kind,
        t=event.t,
        pid=event.pid,
    )


def _with_report(cause: Failure, reported: ev.FailureReported | None) -> Failure:
    """Adds what the supervisor reported."""
    if reported is None:
        return cause
    return replace(
        cause, kind=reported.kind, log=reported.log, stack=reported.stack, memory=reported.memory, path=reported.path
    )


def _placed(state: RunState, cause: Failure) -> Failure:
    """Adds host, process, cores, and the failures that followed."""
    process = state.processes.get(cause.writer)
    opened = process.opened if process else None
    is_child = cause.writer.startswith("logs-") and opened is not None and cause.pid not in (None, opened.pid)
    return replace(
        cause,
        host=opened.host if opened else "",
        pid=cause.pid or (opened.pid if opened else None),
        is_child=is_child,
        cores=driven(state, process) if process and not is_child else [],
        followers=list(_followers(state, cause)),
    )


def _followers(state: RunState, cause: Failure) -> Iterator[str]:
    """Later ends of other processes, in order, as sentences."""
    later: list[tuple[float, str]] = []
    gone: set[str] = {cause.writer}
    for process in state.in_order:
        for exited in process.rank_exits:
            if exited.process in gone or exited.pid == cause.pid:
                continue
            gone.add(exited.process)
            later.append((exited.t, f"{_name(state.processes.get(exited.process), exited.process)}: {_end(exited)}"))
    for process in state.in_order:
        if process.failure and not process.failure.process and process.name not in gone:
            gone.add(process.name)
            first_line = process.failure.message.partition("\n")[0]
            later.append((process.failure.t, f"{_name(process, process.name)}: {process.failure.error}: {first_line}"))
    for supervisor in state.supervisors:
        worker = supervisor.worker_exited
        name = command_writer(state.processes, supervisor.index)
        is_own_end = name.startswith("logs-") and worker is not None and worker.pid == cause.pid
        if worker and name not in gone and not is_own_end:
            code = f"signal {worker.signal}" if worker.signal else f"exit code {worker.exit_code}"
            does = "ended the others, then itself" if name.startswith("worker-") else "the command ended"
            later.append((worker.t, f"{_name(state.processes.get(name), name)}: {does} ({code})"))
    for t, sentence in sorted(later)[:FOLLOWERS_MAX]:
        yield f"{sentence}, {fmt.duration(max(0.0, t - cause.t))} later"
    if len(later) > FOLLOWERS_MAX:
        yield f"{len(later) - FOLLOWERS_MAX:,} more ended later"


def _end(exited: ev.RankExited) -> str:
    code = f"signal {exited.signal}" if exited.signal else f"exit code {exited.exit_code}"
    if exited.ending:
        return f"was ended with the run ({code})"
    return f"went down after it ({code})"


def _name(process: ProcessState | None, name: str) -> str:
    return f"{name} (pid {process.opened.pid})" if process and process.opened else name


def place_of(failure: Failure) -> str:
    """`rank-3, core 3, tpu-vm-0, pid 4711`, as far as known."""
    # The journal about a command is not the command.
    process = "the command" if failure.writer.startswith("logs-") else failure.writer
    process = "a process of the command" if failure.is_child else process
    core = fmt.cores(failure.cores)
    pid = f"pid {failure.pid}" if failure.pid else ""
    return ", ".join(part for part in (process, core, failure.host, pid) if part)


def _row(name: str, text: str) -> Iterator[str]:
    for index, line in enumerate(text.splitlines() or [""]):
        yield f"{'' if index else name:<14} {line}".rstrip()

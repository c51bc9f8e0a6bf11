"""Events of the life of a run: its processes, requests, failures and end."""

from __future__ import annotations

from typing import Any, ClassVar

from tputui.telemetry.events.values import (
    CodeFrame,
    Event,
    FailureKind,
    Int,
    Outcome,
    Phase,
    ProcessSample,
    RequestKind,
    ThreadStack,
)


class JournalOpened(Event, frozen=True, kw_only=True, tag=True):
    """First record of every journal: who writes it, and how its lines are to be read."""

    format: Int
    """Version of the line format."""
    writer: str
    """Name of the writing process: its role and its host's index, or its own among the ranks, as in the file's name."""
    role: str
    """`worker`, `supervisor`, or `rank` for a further process that trains a part of the cores."""
    host: str
    """Host name."""
    host_id: str
    """Identity of the booted host and its process namespace; liveness by pid is judged only where it matches."""
    pid: Int
    """Process id of the writer."""
    pid_started: Int
    """Start time of the process in clock ticks since boot, so that a reused pid is told apart; 0 if unknown."""
    run: str = ""
    """Name of the run's directory; empty where the version that wrote this did not say."""
    version: str
    """Version of tputui that writes."""
    blocks: str
    """How the `block` fields below are encoded."""


class RunStarted(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor took the run over."""

    run: str
    """Name of the run: its directory's name."""
    config: dict[str, Any]
    """The whole configuration, defaults filled in."""
    argv: list[str]
    """The command as it was typed."""
    resumed_from: str | None = None
    """Checkpoint file that this run goes on from."""


class WorkerStarted(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor started the training process."""

    pid: Int
    """Process id of the worker."""
    argv: list[str]
    """Its command line."""


class WorkerExited(Event, frozen=True, kw_only=True, tag=True):
    """The training process is gone."""

    pid: Int
    """Process id it had."""
    exit_code: Int | None
    """Exit code, or null where a signal ended it."""
    signal: str | None = None
    """Name of the signal that ended it."""


class RankExited(Event, frozen=True, kw_only=True, tag=True):
    """A process that trains a part of the cores is gone before training ended well."""

    process: str
    """Its writer name, such as `rank-3`; the first one where it drove several ranks."""
    pid: Int
    """Process id it had."""
    exit_code: Int | None
    """Exit code, or null where a signal ended it."""
    signal: str | None
    """Name of the signal that ended it."""
    ending: bool
    """Whether the run was being ended already, so that it was asked or made to go."""


class HeartbeatSent(Event, frozen=True, kw_only=True, tag=True):
    """A process is alive, and this is what it is doing."""

    droppable: ClassVar[bool] = True

    phase: Phase
    """What it is doing."""
    phase_s: float
    """Seconds it has been doing that."""
    step: Int
    """Newest step dispatched to the device."""
    epoch: Int
    """Epoch in training; 0 before the first."""
    waits_for: str | None = None
    """What of the other processes it waits for, such as `all-reduce`."""


class HostSampled(Event, frozen=True, kw_only=True, tag=True):
    """Host memory and CPU, read by the supervisor."""

    droppable: ClassVar[bool] = True

    cpu_percent: float
    """CPU use of the whole host; 100 is every core busy."""
    memory_used_bytes: Int
    """Host memory that is not available to new processes."""
    memory_total_bytes: Int
    """Host memory there is."""
    processes: list[ProcessSample]
    """Processes of the run on this host."""


class LogWritten(Event, frozen=True, kw_only=True, tag=True):
    """A line that the training process printed."""

    droppable: ClassVar[bool] = True

    line: str
    """The line, without its end."""


class WarningRaised(Event, frozen=True, kw_only=True, tag=True):
    """Something the user should know; training goes on."""

    text: str
    """One sentence."""


class RequestSeen(Event, frozen=True, kw_only=True, tag=True):
    """The run has read a request."""

    request: str
    """Id of the request."""
    kind: RequestKind
    """What is asked."""
    phase: Phase
    """What the process was doing when it saw it."""
    step: Int
    """Newest step dispatched then."""


class RequestApplied(Event, frozen=True, kw_only=True, tag=True):
    """The run did what was asked."""

    request: str
    """Id of the request."""
    kind: RequestKind
    """What was asked."""
    step: Int
    """Step after which it was done."""
    path: str | None = None
    """Checkpoint written for it, relative to the run directory."""
    bytes: Int | None = None
    """Size of that file."""
    seconds: float | None = None
    """Time the save took."""


class RequestRefused(Event, frozen=True, kw_only=True, tag=True):
    """The run will not do what was asked."""

    request: str
    """Id of the request."""
    kind: RequestKind
    """What was asked."""
    why: str
    """One sentence."""


class StacksTaken(Event, frozen=True, kw_only=True, tag=True):
    """Where every thread of a process was, because somebody asked; the process went on meanwhile."""

    request: str
    """Id of the request."""
    process: str
    """Writer name of the process."""
    pid: Int
    """Its process id."""
    threads: list[ThreadStack]
    """Its threads, the one that trains first."""
    path: str | None = None
    """File with the stacks as text, relative to the run directory."""
    by_signal: bool = False
    """Whether they came from a signal handler, since the process held the interpreter and could not answer."""


class StallFound(Event, frozen=True, kw_only=True, tag=True):
    """No step, or no word, for longer than the run takes for one."""

    text: str
    """Who waits where, in one sentence."""
    step: Int
    """Newest step."""
    policy: str
    """What is done about it: `notify` or `save-stop`."""


class FailureRaised(Event, frozen=True, kw_only=True, tag=True):
    """Training broke."""

    error: str
    """Type of the exception."""
    message: str
    """Its text."""
    traceback: str
    """Python traceback, newest call last."""
    phase: Phase
    """What the process was doing."""
    step: Int
    """Newest step dispatched."""
    kind: FailureKind = "exception"
    """How it broke."""
    frames: list[CodeFrame] = []
    """The calls in the user's own code that led there, the newest first."""
    process: str | None = None
    """Writer name of the process that broke, such as `rank-3`, where another one tells of it."""
    pid: Int | None = None
    """Process id of that one."""


class FailureReported(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor told the first failure of the run: what broke first, and what only it can know of that."""

    process: str
    """Writer name of the process that broke."""
    pid: Int | None
    """Process id of it, where it is known."""
    kind: FailureKind
    """How it broke."""
    error: str
    """Type of the exception, or the name of the signal."""
    message: str
    """What happened, in words."""
    phase: Phase
    """What the process was doing, by its newest word."""
    step: Int
    """Newest step dispatched, by its newest word."""
    log: list[str]
    """The last lines that were printed before."""
    stack: str
    """The Python stack that was printed at an end in native code; empty where there is none."""
    silent: bool
    """Whether no process of training told it (FailureRaised)."""
    memory: str | None = None
    """What the kernel's counters say of memory, where a process was killed."""
    path: str | None = None
    """File with the whole report, relative to the run directory."""


class TrainingEnded(Event, frozen=True, kw_only=True, tag=True):
    """Last word of a worker."""

    outcome: Outcome
    """How it ended."""
    step: Int
    """Last step trained."""
    reason: str
    """One sentence."""


class RunEnded(Event, frozen=True, kw_only=True, tag=True):
    """Last word of the supervisor. A run is complete when this record was read, not when a file ends."""

    outcome: Outcome
    """How it ended."""
    exit_code: Int
    """What `tputui run` exits with."""
    reason: str
    """One sentence."""
    training_ended: bool | None = None
    """Whether the training process had told its end (TrainingEnded), so that a journal without it was cut; null
    where the version that wrote this did not say."""

"""Events of the life of a run: its processes, requests, failures and end."""

from __future__ import annotations

from typing import ClassVar

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
from tputui.telemetry.secrecy import CommandLine, Exact, LogLine, LogLines, Text, Values


class JournalOpened(Event, frozen=True, kw_only=True, tag=True):
    """The first event of every journal, and of every process that continues it: which process writes it, and how its
    lines are encoded."""

    format: Int
    """Version of the line format."""
    writer: Exact
    """Name of the writing process, as in the file name: its role, then the index of its host or its rank."""
    role: Exact
    """`worker`, `supervisor`, `rank` for an additional process that trains some of the cores, or `logs` for what the
    supervisor reads from the output of a command that need not report itself."""
    host: Exact
    """Host name."""
    host_id: Exact
    """Identity of the booted host and its process namespace; a pid is checked only if this matches."""
    pid: Int
    """Process id of the writer; in a journal of the role `logs` that of the command."""
    pid_started: Int
    """Start time of that process in clock ticks since boot, to detect a reused pid; 0 if unknown."""
    run: Exact = ""
    """Name of the run directory; empty in journals of older versions."""
    version: Exact
    """Version of tputui that writes the journal."""
    blocks: Exact
    """How `block` fields are encoded."""
    host_index: Int = 0
    """Index of the host of the writer; the name of a rank does not contain it."""
    generation: Int = 0
    """How often the training processes of the run had been restarted. The process of a later generation appends to the
    journal of the one before."""
    boot_t: float = 0.0
    """Unix time at which the host was booted, by the clock of the run, from which the times of events follow: it is not
    changed when the clock of the system is set. 0 if the times are those of the system."""


class RunStarted(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor started to manage the run."""

    run: Exact
    """Name of the run, which is the name of its directory."""
    config: Values
    """The whole configuration, including defaults."""
    argv: CommandLine
    """The command line of the user."""
    resumed_from: Exact | None = None
    """Checkpoint file from which this run is resumed."""


class HostsAwaited(Event, frozen=True, kw_only=True, tag=True):
    """The hosts of the run are to meet, and some are missing. Written after a minute, and each further minute."""

    num_hosts: Int
    """Number of hosts that the run has."""
    joined: list[Int]
    """Indices of the hosts that have joined."""
    missing: list[Int]
    """Indices of the hosts that have not."""
    waited_s: float
    """Seconds waited so far."""


class HostJoined(Event, frozen=True, kw_only=True, tag=True):
    """All hosts of the run have met, and the host of the writer is one of them."""

    host_index: Int
    """Index of the host."""
    num_hosts: Int
    """Number of hosts of the run."""
    waited_s: float
    """Seconds that it waited for the others."""
    address: Exact
    """Its address, as the other hosts reach it."""


class ClockMeasured(Event, frozen=True, kw_only=True, tag=True):
    """The clock of the writer's host, compared with that of the first host."""

    offset_s: float
    """Seconds that it is ahead of the clock of the first host; negative if it is behind."""
    error_s: float
    """The offset is within this many seconds of the truth."""
    reference: Exact
    """Host whose clock it was compared with."""


class WorkerStarted(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor started the training process."""

    pid: Int
    """Process id of the worker."""
    argv: CommandLine
    """Its command line."""


class WorkerExited(Event, frozen=True, kw_only=True, tag=True):
    """The training process exited."""

    pid: Int
    """Process id."""
    exit_code: Int | None
    """Exit code, or null if a signal ended it."""
    signal: Exact | None = None
    """Name of the signal that ended it."""


class RankExited(Event, frozen=True, kw_only=True, tag=True):
    """A process that trains some of the cores exited before training ended normally."""

    process: Exact
    """Its writer name, such as `rank-3`; the first one if it drove several ranks."""
    pid: Int
    """Process id."""
    exit_code: Int | None
    """Exit code, or null if a signal ended it."""
    signal: Exact | None
    """Name of the signal that ended it."""
    ending: bool
    """Whether the run was already stopping, so that the process was asked or forced to exit."""


class HeartbeatSent(Event, frozen=True, kw_only=True, tag=True):
    """A process is alive, and what it is doing."""

    droppable: ClassVar[bool] = True

    phase: Phase
    """Current phase."""
    phase_s: float
    """Seconds in that phase so far."""
    step: Int
    """Newest step dispatched to the device."""
    epoch: Int
    """Current epoch; 0 before the first."""
    waits_for: Text | None = None
    """What it waits for from other processes, such as `all-reduce`."""


class HostSampled(Event, frozen=True, kw_only=True, tag=True):
    """Memory, CPU, disks and network of the host, measured by the supervisor."""

    droppable: ClassVar[bool] = True

    cpu_percent: float
    """CPU use of the whole host; 100 is every core busy."""
    memory_used_bytes: Int
    """Host memory that is not available for new processes."""
    memory_total_bytes: Int
    """Total host memory."""
    processes: list[ProcessSample]
    """Processes of the run on this host."""
    disk_read_bytes_per_s: Int | None = None
    """Read from the disks of the host since the sample before, by all of its processes; null if the system does not
    count it."""
    disk_written_bytes_per_s: Int | None = None
    """Written to them."""
    network_received_bytes_per_s: Int | None = None
    """Received over the network interfaces of the host except loopback."""
    network_sent_bytes_per_s: Int | None = None
    """Sent over them."""


class LogWritten(Event, frozen=True, kw_only=True, tag=True):
    """A line that the training process printed."""

    droppable: ClassVar[bool] = True

    line: LogLine
    """The line, without the line break."""


class WarningRaised(Event, frozen=True, kw_only=True, tag=True):
    """Something that the user should know; training continues."""

    text: Text
    """One sentence."""


class RequestHandlingDeclared(Event, frozen=True, kw_only=True, tag=True):
    """Which requests a process of the user's command acts on by itself. The supervisor answers the others: it stops the
    command by signals. A later event replaces this one; without one the process acts on none."""

    kinds: list[RequestKind]
    """Kinds of requests."""


class RequestReceipt(Event, frozen=True, kw_only=True):
    """What a process of the run did with a request: it has seen it, then applied or refused it."""

    request: Exact
    """Id of the request."""
    kind: RequestKind
    """The requested action."""


class RequestSeen(RequestReceipt, frozen=True, kw_only=True, tag=True):
    """A process of the run has read a request."""

    phase: Phase
    """Phase of the process at that time."""
    step: Int
    """Newest step dispatched at that time."""


class RequestApplied(RequestReceipt, frozen=True, kw_only=True, tag=True):
    """A request was carried out."""

    step: Int
    """Step after which it was carried out."""
    path: Exact | None = None
    """What was written for it, relative to the run directory: a checkpoint, or the folder of a profile."""
    bytes: Int | None = None
    """Size of the checkpoint or profile."""
    seconds: float | None = None
    """Wall time of the save, or of the steps in the profile."""
    lack: Text | None = None
    """What may be missing although it was carried out, in one sentence; None if nothing is."""


class RequestRefused(RequestReceipt, frozen=True, kw_only=True, tag=True):
    """A request was refused."""

    why: Text
    """One sentence."""


class StacksTaken(Event, frozen=True, kw_only=True, tag=True):
    """The stacks of all threads of a process, taken on request while it kept running."""

    request: Exact
    """Id of the request."""
    process: Exact
    """Writer name of the process."""
    pid: Int
    """Process id."""
    threads: list[ThreadStack]
    """Its threads; the training thread is first."""
    path: Exact | None = None
    """File with the stacks as text, relative to the run directory."""
    by_signal: bool = False
    """Whether a signal handler took them, because no Python thread could answer."""


class StallFound(Event, frozen=True, kw_only=True, tag=True):
    """No step, or no event, for unusually long."""

    text: Text
    """Which processes wait and what for, in one sentence."""
    step: Int
    """Newest step dispatched."""
    policy: Exact
    """The configured action: `notify` or `save-stop`."""


class AlertRaised(Event, frozen=True, kw_only=True, tag=True):
    """A condition of `[alerts]` began to hold. The supervisor then sends the alert to its targets."""

    condition: Text
    """The condition, as the user wrote it."""
    text: Text
    """One sentence: run, condition and place in training."""
    step: Int
    """Newest step done."""
    bell: bool = False
    """Whether viewers in a terminal ring its bell and show a notification."""


class AlertDelivered(Event, frozen=True, kw_only=True, tag=True):
    """An alert was delivered to a target."""

    condition: Text
    """The condition of the alert."""
    target: Exact
    """Kind of the target: `command`, `webhook` or `apprise`. Its address is not recorded."""
    attempts: Int
    """Number of attempts that it took."""


class AlertFailed(Event, frozen=True, kw_only=True, tag=True):
    """An alert could not be delivered to a target, and is not tried again."""

    condition: Text
    """The condition of the alert."""
    target: Exact
    """Kind of the target: `command`, `webhook` or `apprise`. Its address is not recorded."""
    why: Text
    """The error of the last attempt, in one sentence."""


class FailureRaised(Event, frozen=True, kw_only=True, tag=True):
    """Training failed."""

    error: Text
    """Type of the exception."""
    message: Text
    """Message of the exception."""
    traceback: Text
    """Python traceback, newest call last."""
    phase: Phase
    """What the process was doing."""
    step: Int
    """Newest step dispatched."""
    kind: FailureKind = "exception"
    """How it failed."""
    frames: list[CodeFrame] = []
    """Calls in the user's code that led to it, newest first."""
    process: Exact | None = None
    """Writer name of the process that failed, such as `rank-3`, if another process reports it."""
    pid: Int | None = None
    """Process id of that process."""


class FailureReported(Event, frozen=True, kw_only=True, tag=True):
    """The first failure of the run, reported by the supervisor with details that only it can know."""

    process: Exact
    """Writer name of the process that failed."""
    pid: Int | None
    """Its process id, if known."""
    kind: FailureKind
    """How it failed."""
    error: Text
    """Type of the exception, or the name of the signal."""
    message: Text
    """What happened, as text."""
    phase: Phase
    """What the process was doing, by its newest event."""
    step: Int
    """Newest step dispatched, by its newest event."""
    log: LogLines
    """The last lines printed before it."""
    stack: Text
    """The Python stack printed when the process aborted in native code; otherwise empty."""
    silent: bool
    """Whether no training process reported the failure (FailureRaised)."""
    memory: Text | None = None
    """The kernel's memory counters, if a process was killed."""
    path: Exact | None = None
    """File with the full report, relative to the run directory."""
    other_host: Text | None = None
    """Host, rank and cores of a process that failed on another host than the supervisor's; else None."""


class TrainingEnded(Event, frozen=True, kw_only=True, tag=True):
    """The end of training; the last event of a worker."""

    outcome: Outcome
    """How it ended."""
    step: Int
    """Last step trained."""
    reason: Text
    """One sentence; empty if another process reports it."""


class RunEnded(Event, frozen=True, kw_only=True, tag=True):
    """The end of the run; the last event of the supervisor. A run is complete once this event was read."""

    outcome: Outcome
    """How it ended."""
    exit_code: Int
    """Exit code of `tputui run`."""
    reason: Text
    """One sentence."""
    training_ended: bool | None = None
    """Whether the training process reported its end (TrainingEnded), so that a journal without it is truncated; null in
    journals of older versions."""

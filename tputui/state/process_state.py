"""The state of one process, reduced from the events of its journal, also of one that takes the place of another.

One method per event type, chosen by the table at the end. Events that contradict themselves are counted, never raised:
a viewer must survive any journal. Everything is bounded, or grows only with rare events (checkpoints, requests,
epochs). No files and no clock here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.logs.tags import is_test
from tputui.state.chart_data import MemoryPoint, MeterPoint, XlaPoint
from tputui.state.evidence import OBSERVED, Evidence, Observed
from tputui.state.host_reports import HOST_REPORTS, REASON_CHARS_MAX, HostReports, ReportedFailure, Restart
from tputui.state.logged_series import NAMES_MAX, LoggedMetrics
from tputui.state.process_history import (
    DeviceHistory,
    PaceHistory,
    device_memory,
    has_worker,
    host_memory,
    xla_point,
)
from tputui.state.process_log import LOGGED, ProcessLog
from tputui.state.state_struct import FEW_MAX, Count, Downsampled, FewByName, StateStruct, first_of, last_of
from tputui.state.step_values import StepValues, makes_sense
from tputui.state.time_spent import SILENT_S, STEPPING, STUCK_S, STUCK_STEPS, TimeSpent
from tputui.telemetry import events as ev
from tputui.telemetry import logged_values
from tputui.telemetry.events import T_MAX, Split, run_time
from tputui.telemetry.float_blocks import BlockError
from tputui.telemetry.process_end import FOLLOWING

if TYPE_CHECKING:
    from tputui.telemetry.events import FailureReported, JournalOpened, WorkerStarted


class Receipts(StateStruct):
    """The answers of a process to one request."""

    seen: ev.RequestSeen | None = None
    applied: ev.RequestApplied | None = None
    refused: ev.RequestRefused | None = None

    def add(self, event: ev.RequestReceipt) -> None:
        """Adds an answer; a later one of the same kind replaces it."""
        if isinstance(event, ev.RequestSeen):
            self.seen = event
        elif isinstance(event, ev.RequestApplied):
            self.applied = event
        elif isinstance(event, ev.RequestRefused):
            self.refused = event


EndT = TypeVar("EndT", ev.TrainingEnded, ev.RunEnded)
MeterT = TypeVar("MeterT", ev.MeterReading, float)

SKIPPED_MAX = 1_000
UNKNOWN_KINDS_MAX = 32
RANK_EXITS_MAX = 4_096
PICTURED_EPOCHS_MAX = 200
"""Newest epochs of which pictures are known."""

_STEPPING_OR_SAVING = STEPPING | {"saving"}
_MANY_METRICS = (
    f"the script logs more than {NAMES_MAX:,} metrics; losses, validation values and the first of the others are shown"
)
_PACE_NEWEST = 0.3  # weight of the newest report in the smoothed step time

_BOUNDED = frozenset({ev.MetersReported, ev.EpochEnded})
"""Events whose size is limited before they are stored."""
METERS_MAX = 256
"""Per report; thousands of meters would block every view."""
SECONDS_MAX = 1e9
"""Longest section of an epoch that is believed: 30 years."""


class ProcessState(StateStruct):
    """Everything that the events of one process add up to."""

    name: str
    """Name of its journal: `worker-0`."""
    last_seq: Annotated[int, msgspec.Meta(ge=-1, le=ev.INT_MAX)] = -1
    first_t: float | None = None
    newest_t: float | None = None
    set_back_s: Annotated[float, msgspec.Meta(ge=0, le=T_MAX)] = 0.0
    """Seconds by which the clock of its host was set back so far; times of this state never go back."""
    opened: ev.JournalOpened | None = None
    run_started: ev.RunStarted | None = None
    worker_started: ev.WorkerStarted | None = None
    worker_exited: ev.WorkerExited | None = None
    topology: ev.TopologyDeclared | None = None
    plan: ev.TrainingPlanned | None = None
    beat: ev.HeartbeatSent | None = None
    epoch_started: ev.EpochStarted | None = None
    loss_named: ev.LossNamed | None = None
    progress: ev.ProgressReported | None = None
    smooth_step_s: float | None = None
    longest_compile_s: float = 0.0
    """Longest time spent compiling between two reports; 0 before the first."""
    moved_t: float | None = None
    """Time of the last step, or of the last event in a phase without steps."""
    steps_done: Count = 0
    meters: dict[ev.Split, ev.MetersReported] = msgspec.field(default_factory=dict)
    epochs: Annotated[dict[ev.Int, ev.EpochEnded], msgspec.Meta(max_length=FEW_MAX)] = msgspec.field(
        default_factory=dict
    )
    values: StepValues = msgspec.field(default_factory=StepValues)
    logged: LoggedMetrics = msgspec.field(default_factory=LoggedMetrics)
    epoch_starts: Downsampled[ev.EpochStarted] = msgspec.field(default_factory=Downsampled)
    pace: PaceHistory = msgspec.field(default_factory=PaceHistory)
    usage: Downsampled[MemoryPoint] = msgspec.field(default_factory=Downsampled)
    """The memory that it sampled: a worker that of its devices, a supervisor that of its host."""
    meter_history: dict[ev.Split, Downsampled[MeterPoint]] = msgspec.field(default_factory=dict)
    xla: ev.XlaMetricsRead | None = None
    xla_history: Downsampled[XlaPoint] = msgspec.field(default_factory=Downsampled)
    memory: ev.MemorySampled | None = None
    devices: DeviceHistory = msgspec.field(default_factory=DeviceHistory)
    predicted: ev.MemoryPredicted | None = None
    flops: ev.FlopsCounted | None = None
    host: ev.HostSampled | None = None
    processes: Annotated[list[ev.ProcessSample], msgspec.Meta(max_length=FEW_MAX)] = msgspec.field(default_factory=list)
    """Processes of the newest sample; after the worker has exited, of the last sample that included it."""
    log: ProcessLog = msgspec.field(default_factory=ProcessLog)
    checkpoints: FewByName[ev.CheckpointSaved] = msgspec.field(default_factory=dict)
    """Newest save by file, unless the file was removed since."""
    dropped_checkpoints: FewByName[ev.CheckpointDropped] = msgspec.field(default_factory=dict)
    """Removal by file, unless the file was saved again since."""
    receipts: FewByName[Receipts] = msgspec.field(default_factory=dict)
    dropped_steps: Count = 0
    skipped: Annotated[list[ev.ExampleSkipped], msgspec.Meta(max_length=SKIPPED_MAX)] = msgspec.field(
        default_factory=list
    )
    """Examples left out; the last one has the count of all."""
    pictures: Annotated[list[ev.PicturesKept], msgspec.Meta(max_length=PICTURED_EPOCHS_MAX)] = msgspec.field(
        default_factory=list
    )
    """Those of the newest epochs, in order of the epochs."""
    failure: ev.FailureRaised | None = None
    """The first failure."""
    failure_reported: ev.FailureReported | None = None
    rank_exits: Annotated[list[ev.RankExited], msgspec.Meta(max_length=RANK_EXITS_MAX)] = msgspec.field(
        default_factory=list
    )
    stacks: Annotated[dict[str, ev.StacksTaken], msgspec.Meta(max_length=RANK_EXITS_MAX)] = msgspec.field(
        default_factory=dict
    )
    """Newest stacks by process, as far as this process reported them."""
    beat_at_stacks: ev.HeartbeatSent | None = None
    """Heartbeat before it reported its own stacks."""
    training_ended: ev.TrainingEnded | None = None
    run_ended: ev.RunEnded | None = None
    reports: HostReports = msgspec.field(default_factory=HostReports)
    evidence: Evidence = msgspec.field(default_factory=Evidence)
    time: TimeSpent = msgspec.field(default_factory=TimeSpent)
    unknown: Annotated[dict[str, Count], msgspec.Meta(max_length=UNKNOWN_KINDS_MAX)] = msgspec.field(
        default_factory=dict
    )
    """Events by kind that this version does not know."""
    num_senseless: Count = 0
    """Events that contradict themselves."""

    def __post_init__(self) -> None:
        self.values.topology = self.topology
        self.log.name, self.log.printed_by = self.name, f"worker-{self.index}"

    @property
    def role(self) -> str:
        """`worker`, `logs`, `rank` or `supervisor`, by the head of the journal or else by its name."""
        return self.opened.role if self.opened else self.name.rpartition("-")[0]

    @property
    def is_rank(self) -> bool:
        """Whether it trains a part of the cores beside the process that reports for all."""
        return self.role == "rank"

    @property
    def index(self) -> int:
        """The number in the name of its journal: of its host, or its rank."""
        digits = self.name.rpartition("-")[2]
        return int(digits) if digits.isdecimal() and digits.isascii() else 0

    @property
    def host_index(self) -> int:
        if self.opened is not None and self.opened.host_index:
            return self.opened.host_index
        # Journals of older versions have it in their topology, or in the name of the supervisor.
        if self.topology is not None and self.topology.num_hosts > 1:
            return self.topology.host_index
        return self.index if self.role == "supervisor" else 0

    @property
    def stepped(self) -> bool:
        """Whether it has reported a step since it was started."""
        return not self.reports.is_resuming and (self.progress is not None or bool(self.values.series))

    @property
    def sort_key(self) -> tuple[int, str]:
        return self.index, self.name

    def apply(self, seq: int, event: ev.Event) -> None:
        """Applies the event with number `seq`; one that was applied before is ignored. Never raises."""
        if seq <= self.last_seq:
            return
        lost = seq - self.last_seq - 1
        self.last_seq = seq
        newest_t = self.newest_t
        if newest_t is not None and newest_t <= event.t <= T_MAX and not self.set_back_s:
            if event.t - newest_t > SILENT_S and self.beat is not None and type(event) is not ev.JournalOpened:
                self._silent(newest_t, event.t)
            self.newest_t = event.t
        else:
            event = self._in_time(event)
        if lost:
            text = f"{self.name}: {lost} events before this are missing from its journal"
            self.log.warn(event.t, text, self.steps_done)
        kind = type(event)
        handler, write = _HANDLERS.get(kind), LOGGED.get(kind)
        if handler is not None:
            if kind in _BOUNDED:
                event, excess = _limited(event)
                if excess:
                    self._warn_once(event.t, excess)
            handler(self, event)
        elif kind in _NEWEST:
            setattr(self, _NEWEST[kind], event)
        elif write is None:
            self._unknown(event)
        if write is not None:
            write(self.log, event, self.steps_done)

    def _in_time(self, event: ev.Event) -> ev.Event:
        """The event with a time that does not go back, if the host's clock did or the time is invalid."""
        t, set_back_s = run_time(event.t, self.newest_t, self.set_back_s)
        if t != event.t and not math.isnan(event.t):
            event = msgspec.structs.replace(event, t=t)
        if set_back_s > self.set_back_s:
            by = fmt.duration(set_back_s - self.set_back_s)
            text = f"{self.name}: its host's clock was set back by {by}; later times continue from before"
            self.log.warn(t, text, self.steps_done)
        self.set_back_s = set_back_s
        if math.isfinite(t):
            if self.beat is not None and self.newest_t is not None and t - self.newest_t > SILENT_S:
                self._silent(self.newest_t, t)
            self.first_t = t if self.first_t is None else min(self.first_t, t)
            self.newest_t = t if self.newest_t is None else max(self.newest_t, t)
        return event

    def _unknown(self, event: ev.Event) -> None:
        kind = event.kind if isinstance(event, ev.UnknownEvent) else type(event).__name__
        if kind in self.unknown or len(self.unknown) < UNKNOWN_KINDS_MAX:
            self.unknown[kind] = self.unknown.get(kind, 0) + 1

    def _silent(self, since: float, until: float) -> None:
        """Marks a time without events. The wait for a step begins anew, since it is the same stall."""
        text = f"{self.name}: no output for {fmt.duration(until - since)}"
        self.log.marks.add("stall", since, self.steps_done, text)
        self.time.stalled(until - max(since, self.moved_t or since))
        if self.moved_t is not None:
            self.moved_t = max(self.moved_t, until)

    def _moved(self, t: float) -> None:
        if math.isfinite(t):
            if self.moved_t is not None and t - self.moved_t > STUCK_S:
                self._mark_stuck(self.moved_t, t)
            self.moved_t = t if self.moved_t is None else max(self.moved_t, t)

    def _mark_stuck(self, since: float, until: float) -> None:
        """Marks a long time without a step, if steps were expected then."""
        # Of several hosts, only the first one reports progress.
        step_s = self.smooth_step_s or (self.reports.paces[-1].step_s if self.reports.paces else 0.0)
        if self.beat is not None and (self.stepped or self.is_rank) and until - since > STUCK_STEPS * step_s:
            text = f"{self.name}: {fmt.PHASES[self.beat.phase]} for {fmt.duration(until - since)} without a step"
            self.log.marks.add("stall", since, self.steps_done, text)
            self.time.stalled(until - since)

    def _done(self, step: int, t: float) -> None:
        if step > self.steps_done:
            self.steps_done = step
            self.reports.stepped(t)
        self._moved(t)

    def _journal_opened(self, event: ev.JournalOpened) -> None:
        """The head; a later one is that of a process that continues to read an imported log."""
        if self.opened is not None and event.generation > self.opened.generation:
            restart(self, event)
        self.opened, self.training_ended = event, None

    def _training_planned(self, event: ev.TrainingPlanned) -> None:
        self.plan = event
        self.reports.begun_at(event.first_step)
        if self.reports.awaits_plan:
            cut(self, event.first_step)

    def _topology_declared(self, event: ev.TopologyDeclared) -> None:
        if not makes_sense(event):
            self.num_senseless += 1
            return
        self.topology = event
        self.values.declare(event)

    def _heartbeat_sent(self, event: ev.HeartbeatSent) -> None:
        before, self.beat = self.beat, event
        self.evidence.add_beat(before, event)
        if before is not None and before.phase == "saving" and event.phase != "saving":
            self._saved_from(before.t - before.phase_s, event.t)
        if event.phase not in _STEPPING_OR_SAVING or before is None or event.step > before.step:
            self._moved(event.t)

    def _saved_from(self, began: float, ended: float) -> None:
        """Subtracts the time of a save from the wait for a step. A requested save must not clear a stall."""
        if self.moved_t is not None and math.isfinite(ended - began):
            self.moved_t = min(ended, self.moved_t + max(0.0, ended - began))

    def _epoch_started(self, event: ev.EpochStarted) -> None:
        self.epoch_started = event
        self.time.epoch_started(event)
        self._moved(event.t)
        if math.isfinite(event.t):
            self.epoch_starts.add(event, first_of)

    def _steps_recorded(self, event: ev.StepsRecorded) -> None:
        if not makes_sense(event):
            self.num_senseless += 1
            return
        # Scripts report no plan.
        self.reports.begun_at(event.first)
        if self.reports.awaits_plan:
            cut(self, event.first)
        self._done(event.first + event.n - 1, event.t)
        self.values.take(self.last_seq, event, self.log, self.newest_t)

    def _steps_dropped(self, event: ev.StepsDropped) -> None:
        self.dropped_steps += max(0, event.num_steps)
        self.reports.unread_steps += max(0, event.num_steps) if event.why else 0

    def _progress_reported(self, event: ev.ProgressReported) -> None:
        self.progress = event
        self.pace.add(event)
        self.evidence.add_times(event)
        self._done(event.step, event.t)
        self.time.reported(event, self.xla.execute_s if self.xla is not None else None)
        if math.isfinite(event.step_s) and event.step_s > 0:
            # The first report contains one-time work; from the second on the next few have equal weights.
            before, since = self.smooth_step_s, self.pace.num_reports - 1
            weight = max(_PACE_NEWEST, 1.0 / since) if since > 0 else 1.0
            self.smooth_step_s = event.step_s if before is None else before + weight * (event.step_s - before)

    def _warn_once(self, t: float, text: str) -> None:
        if text not in self.log.warnings:
            self.log.add_warning(text)
            self.log.warn(t, text, self.steps_done)

    def _values_logged(self, event: ev.ValuesLogged) -> None:
        if not logged_values.makes_sense(event):
            self.num_senseless += 1
            return
        if event.split == "train" or not is_test(event.name):
            self._done(event.step if event.n == 1 else event.last_step, event.t)
        try:
            if not self.logged.add(event):
                self._warn_once(event.t, _MANY_METRICS)
        except BlockError as error:
            self.values.add_unreadable(self.last_seq, f"the values of {event.name} cannot be read: {error}")

    def _meters_reported(self, event: ev.MetersReported) -> None:
        self.meters[event.split] = event
        avg = {name: reading.avg for name, reading in event.meters.items()}
        point = MeterPoint(epoch=event.epoch, split=event.split, step=event.step, avg=avg)
        self.meter_history.setdefault(event.split, Downsampled()).add(point, last_of)

    def _epoch_ended(self, event: ev.EpochEnded) -> None:
        self.epochs[event.epoch] = event
        self._done(event.step, event.t)
        self.time.epoch_ended(event)

    def _xla_metrics_read(self, event: ev.XlaMetricsRead) -> None:
        if event.compiles > (self.xla.compiles if self.xla else 0):
            # The time is that of all programs since the last report, so none of them took longer.
            took = event.compile_s - (self.xla.compile_s if self.xla else 0.0)
            if math.isfinite(took):
                self.longest_compile_s = max(self.longest_compile_s, took)
        self.log.marks.add_compiles(self.xla, event, self.steps_done)
        self.evidence.add_counters(self.xla, event)
        self.xla = event
        if (point := xla_point(event, self.steps_done)) is not None:
            self.xla_history.add(point, last_of)

    def _observed(self, event: Observed) -> None:
        epoch = self.epoch_started.epoch if self.epoch_started is not None else 0
        self.num_senseless += not self.evidence.add(event, self.steps_done, epoch)

    def _memory_sampled(self, event: ev.MemorySampled) -> None:
        self.memory = event
        if (sample := device_memory(event)) is not None:
            self.usage.add(sample, MemoryPoint.join)

    def _host_sampled(self, event: ev.HostSampled) -> None:
        self.host = event
        if (sample := host_memory(event)) is not None:
            self.usage.add(sample, MemoryPoint.join)
        if has_worker(event.processes) or not has_worker(self.processes):
            self.processes = event.processes

    def _pictures_kept(self, event: ev.PicturesKept) -> None:
        before = [pictures for pictures in self.pictures if pictures.epoch < event.epoch]
        self.pictures = [*before[1 - PICTURED_EPOCHS_MAX :], event]

    def _example_skipped(self, event: ev.ExampleSkipped) -> None:
        if len(self.skipped) == SKIPPED_MAX:
            self.skipped.pop()
        self.skipped.append(event)

    def _checkpoint_saved(self, event: ev.CheckpointSaved) -> None:
        self.checkpoints[event.path] = event
        self.time.saved(event)
        self.dropped_checkpoints.pop(event.path, None)

    def _checkpoint_dropped(self, event: ev.CheckpointDropped) -> None:
        self.checkpoints.pop(event.path, None)
        self.dropped_checkpoints[event.path] = event

    def _answered(self, event: ev.RequestReceipt) -> None:
        self.receipts.setdefault(event.request, Receipts()).add(event)

    def _failure_raised(self, event: ev.FailureRaised) -> None:
        # The journal about a command has those of every generation of its ranks.
        if self.failure is None or self.name.startswith("logs-"):
            self.failure = event

    def _stacks_taken(self, event: ev.StacksTaken) -> None:
        if event.process in self.stacks or len(self.stacks) < RANK_EXITS_MAX:
            self.stacks[event.process] = event
        if event.process == self.name:
            self.beat_at_stacks = self.beat

    def _rank_exited(self, event: ev.RankExited) -> None:
        if len(self.rank_exits) < RANK_EXITS_MAX:
            self.rank_exits.append(event)

    def _training_ended(self, event: ev.TrainingEnded) -> None:
        self.training_ended = self._timed(event)
        self._done(event.step, event.t)

    def _run_ended(self, event: ev.RunEnded) -> None:
        self.run_ended = self._timed(event)

    def _timed(self, event: EndT) -> EndT:
        """The end event, at the newest time if its own is invalid: views compute durations up to it."""
        return event if math.isfinite(event.t) else msgspec.structs.replace(event, t=self.newest_t or 0.0)


def restart(state: ProcessState, event: JournalOpened) -> None:
    """Forgets what belongs to the process that ended; its curves stay until the first step of the new one is known."""
    failure, beat = state.failure, state.beat
    # Steps are reported together; the newest ones may have been only in heartbeats.
    newest_step = max(state.steps_done, beat.step if beat is not None else 0)
    begun = Restart(event.generation, event.t, newest_step)
    if failure is not None:
        begun = replace(begun, reason=_shortened(f"{failure.error}: {failure.message}"), failed_t=failure.t)
    state.reports.restarted(begun)
    times = [beat.t] if beat is not None else []
    state.time.restarted(max([*times, state.moved_t or 0.0]))
    text = f"the training processes were restarted (restart {event.generation})"
    state.log.marks.add("restart", event.t, state.steps_done, text)
    if state.index == 0 and event.role == "worker":
        state.log.add_line(event.t, text, "warning")
    state.beat = state.progress = state.moved_t = state.failure = state.xla = None
    state.rank_exits = []
    state.xla_history.clear()


def cut(state: ProcessState, first_step: int) -> None:
    """Removes what was recorded of `first_step` and later ones, which are trained again."""
    began_t = state.first_t if state.time.began_t is None else state.time.began_t
    kept_t = state.values.time_of(first_step - 1) if first_step > 1 else began_t
    state.reports.planned(first_step, kept_t)
    state.values.cut(first_step)
    state.pace.cut(first_step)
    state.time.cut(first_step)
    state.epoch_starts.keep(lambda start: start.first_step < first_step)
    for points in state.meter_history.values():
        points.keep(lambda point: point.step < first_step)
    state.meters = {split: event for split, event in state.meters.items() if event.step < first_step}
    state.epochs = {number: event for number, event in state.epochs.items() if event.step < first_step}
    state.epoch_started, state.steps_done = None, max(first_step - 1, 0)
    # They were not in a checkpoint, so they are trained and reported again.
    state.dropped_steps -= min(state.dropped_steps, state.reports.unread_steps)
    state.reports.unread_steps = 0


def started(state: ProcessState, event: WorkerStarted) -> None:
    """A supervisor recorded that the training process of its host was started; if again, with the failure before."""
    begun, reported = state.worker_started, state.failure_reported
    if begun is not None:
        before = state.reports.restarts
        again = Restart(before[-1].number + 1 if before else 1, event.t, state.steps_done)
        if reported is not None and reported.t >= begun.t and reported.error not in FOLLOWING:
            place = _shortened(reported.other_host or "") or None
            again = replace(again, reason=_sentence(reported), failed_t=reported.t, other_host=place)
        state.reports.restarted(again)
        # Of an earlier generation, even if a supervisor that was held up reported it after this one had begun.
        state.failure_reported = None
    state.worker_started = event


def failure_reported(state: ProcessState, event: FailureReported) -> None:
    """A supervisor reported the first failure of a generation."""
    state.failure_reported = event
    if event.error not in FOLLOWING:
        state.reports.failed(ReportedFailure(event.t, _sentence(event)))


def _sentence(reported: FailureReported) -> str:
    """`SIGKILL: the kernel ...`."""
    message = _shortened(reported.message)
    return message if message.endswith(_UNREPORTED) else _shortened(f"{reported.error}: {message}")


def _shortened(text: str) -> str:
    return text.partition("\n")[0][:REASON_CHARS_MAX]


def _limited(event: ev.Event) -> tuple[ev.Event, str | None]:
    """The event without invalid durations and with at most `METERS_MAX` meters, and a warning if some were left out."""
    if isinstance(event, ev.MetersReported) and len(event.meters) > METERS_MAX:
        return msgspec.structs.replace(event, meters=_few_meters(event.meters, event.split)), _excess(len(event.meters))
    if not isinstance(event, ev.EpochEnded):
        return event, None
    if not all(map(_is_length, (*event.sections_s.values(), *event.trace_s.values()))):
        sections_s = {name: s for name, s in event.sections_s.items() if _is_length(s)}
        trace_s = {name: s for name, s in event.trace_s.items() if _is_length(s)}
        event = msgspec.structs.replace(event, sections_s=sections_s, trace_s=trace_s)
    most = max(len(event.train), len(event.valid), len(event.scores))
    if most <= METERS_MAX:
        return event, None
    few = msgspec.structs.replace(
        event,
        train=_few_meters(event.train, "train"),
        valid=_few_meters(event.valid, "valid"),
        scores=_few_meters(event.scores, "valid"),
    )
    return few, _excess(most)


def _few_meters(readings: dict[str, MeterT], split: Split) -> dict[str, MeterT]:
    """The meters that are shown: all, or `METERS_MAX` with the losses among them."""
    names = logged_values.first_of(list(readings), METERS_MAX, lambda name: logged_values.class_of(name, split))
    return readings if len(names) == len(readings) else {name: readings[name] for name in names}


def _excess(num_meters: int) -> str:
    return f"{num_meters:,} meters are reported at once; {METERS_MAX} are shown, losses first"


def _is_length(seconds: float) -> bool:
    """Whether a number is a plausible duration in seconds; NaN is not."""
    return -SECONDS_MAX <= seconds <= SECONDS_MAX


_NEWEST: dict[type[ev.Event], str] = {
    ev.RunStarted: "run_started",
    ev.WorkerExited: "worker_exited",
    ev.MemoryPredicted: "predicted",
    ev.FlopsCounted: "flops",
    ev.LossNamed: "loss_named",
}
"""Events of which only the newest is stored, and in which field."""

_HANDLERS: dict[type[ev.Event], Callable[[ProcessState, Any], None]] = {
    ev.JournalOpened: ProcessState._journal_opened,
    ev.TopologyDeclared: ProcessState._topology_declared,
    ev.TrainingPlanned: ProcessState._training_planned,
    ev.WorkerStarted: started,
    ev.FailureReported: failure_reported,
    ev.HeartbeatSent: ProcessState._heartbeat_sent,
    ev.EpochStarted: ProcessState._epoch_started,
    ev.EvaluationEnded: lambda state, event: state._moved(event.t),
    ev.EvaluationStarted: lambda state, event: state._moved(event.t),
    ev.StepsRecorded: ProcessState._steps_recorded,
    ev.ValuesLogged: ProcessState._values_logged,
    ev.StepsDropped: ProcessState._steps_dropped,
    ev.ProgressReported: ProcessState._progress_reported,
    ev.MetersReported: ProcessState._meters_reported,
    ev.EpochEnded: ProcessState._epoch_ended,
    ev.ExampleSkipped: ProcessState._example_skipped,
    ev.XlaMetricsRead: ProcessState._xla_metrics_read,
    ev.MemorySampled: ProcessState._memory_sampled,
    ev.DeviceSampled: lambda state, event: state.devices.add(event),
    ev.CoreStatesRead: lambda state, event: state.devices.add_core_states(event),
    ev.HostSampled: ProcessState._host_sampled,
    ev.PicturesKept: ProcessState._pictures_kept,
    ev.CheckpointSaved: ProcessState._checkpoint_saved,
    ev.CheckpointDropped: ProcessState._checkpoint_dropped,
    ev.RequestSeen: ProcessState._answered,
    ev.RequestApplied: ProcessState._answered,
    ev.RequestRefused: ProcessState._answered,
    ev.FailureRaised: ProcessState._failure_raised,
    ev.RankExited: ProcessState._rank_exited,
    ev.StacksTaken: ProcessState._stacks_taken,
    ev.TrainingEnded: ProcessState._training_ended,
    ev.RunEnded: ProcessState._run_ended,
    ev.RequestHandlingDeclared: lambda state, event: None,  # Only its supervisor needs it.
    **dict.fromkeys(OBSERVED, ProcessState._observed),
    **dict.fromkeys(HOST_REPORTS, lambda state, event: state.reports.take(event)),
}


_UNREPORTED = "without an error report"
"""End of messages of supervisors that contain the signal or the exit code."""

"""What one writing process has said, reduced.

One method a type of fact, chosen by the table at the end. A fact that makes no sense is counted, never raised: a
viewer must survive any journal. Everything here is bounded, or grows only with facts that are few (checkpoints,
requests, epochs). Pure: no clock, no file.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tputui import formatting as fmt
from tputui.state.chart_data import EpochStart, MeterPoint
from tputui.state.downsampled import Downsampled, first_of, last_of
from tputui.state.memory_history import MemoryHistory
from tputui.state.pace import Pace
from tputui.state.process_log import ProcessLog
from tputui.state.step_values import StepValues, makes_sense
from tputui.telemetry import events as ev
from tputui.telemetry.clock import T_MAX, run_time

MeterT = TypeVar("MeterT", ev.MeterReading, float)
EndT = TypeVar("EndT", ev.TrainingEnded, ev.RunEnded)

SKIPPED_MAX = 1_000
UNKNOWN_KINDS_MAX = 32
RANK_EXITS_MAX = 4_096
METERS_MAX = 256
"""Of one report; a run that tells thousands would keep every view from answering."""
SECONDS_MAX = 1e9
"""No section of an epoch takes longer: 30 years."""

STEPPING: frozenset[ev.Phase] = frozenset({"data", "executing", "reporting"})
"""Phases in which steps are expected to go by; any other may take as long as it takes."""
SILENT_S = 10.0
"""A heart beats at least once a second; so long without any fact is a stall."""
STUCK_S = 30.0
"""Without a step for so long, in a phase where steps are due, is a stall ..."""
STUCK_STEPS = 20.0
"""... unless steps take long: then so many of them."""
_PACE_NEWEST = 0.3
"""Weight of the newest report in the smoothed step time."""


class Receipts:
    """What the writer answered to one request."""

    def __init__(self) -> None:
        self.seen: ev.RequestSeen | None = None
        self.applied: ev.RequestApplied | None = None
        self.refused: ev.RequestRefused | None = None


class ProcessState:
    """Everything that a writer's facts so far add up to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last_seq = -1
        self.first_t: float | None = None
        self.newest_t: float | None = None
        self.set_back_s = 0.0
        """By how much the clock of its host was set back while it wrote; times here go on all the same."""
        self.opened: ev.JournalOpened | None = None
        self.run_started: ev.RunStarted | None = None
        self.worker_started: ev.WorkerStarted | None = None
        self.worker_exited: ev.WorkerExited | None = None
        self.topology: ev.TopologyDeclared | None = None
        self.plan: ev.TrainingPlanned | None = None
        self.beat: ev.HeartbeatSent | None = None
        self.epoch_started: ev.EpochStarted | None = None
        self.progress: ev.ProgressReported | None = None
        self.smooth_step_s: float | None = None
        self.longest_compile_s = 0.0
        """What compiling took at most between two reports; 0 before the first."""
        self.moved_t: float | None = None
        """When a step was last done, or a phase was on in which none is due."""
        self.steps_done = 0
        self.meters: dict[ev.Split, ev.MetersReported] = {}
        self.epochs: dict[int, ev.EpochEnded] = {}
        self.values = StepValues()
        self.epoch_starts: Downsampled[EpochStart] = Downsampled(first_of)
        self.pace = Pace()
        self.usage = MemoryHistory()
        self.meter_history: dict[ev.Split, Downsampled[MeterPoint]] = {}
        self.num_meter_reports = 0
        self.xla: ev.XlaMetricsRead | None = None
        self.memory: ev.MemorySampled | None = None
        self.predicted: ev.MemoryForecast | None = None
        self.host: ev.HostSampled | None = None
        self.processes: list[ev.ProcessSample] = []
        """Of the newest sample; once the worker is gone, of the last one that still had it."""
        self.log = ProcessLog(name, f"worker-{self.index}")
        """Lines of the log, warnings and marks."""
        self.checkpoints: dict[str, ev.CheckpointSaved] = {}
        """By file: the newest save of it, unless the file was removed since."""
        self.dropped_checkpoints: dict[str, ev.CheckpointDropped] = {}
        """By file: its removal, unless it was saved again since."""
        self.receipts: dict[str, Receipts] = {}
        self.dropped_steps = 0
        self.skipped: list[ev.ExampleSkipped] = []
        """Examples left out; the last one counts them all."""
        self.pictures: ev.PicturesKept | None = None
        self.failure: ev.FailureRaised | None = None
        """The first one."""
        self.failure_reported: ev.FailureReported | None = None
        self.rank_exits: list[ev.RankExited] = []
        self.stacks: dict[str, ev.StacksTaken] = {}
        """By process: the newest ones that this writer told."""
        self.beat_at_stacks: ev.HeartbeatSent | None = None
        """What it was doing when it told its own."""
        self.training_ended: ev.TrainingEnded | None = None
        self.run_ended: ev.RunEnded | None = None
        self.unknown: Counter[str] = Counter()
        self.num_senseless = 0
        """Facts that contradict themselves."""

    def fork(self) -> ProcessState:
        """Another one that holds the same and goes on by itself. What facts are made of is shared: it never changes."""
        other = copy.copy(self)
        for name in _COPIED:
            setattr(other, name, getattr(self, name).copy())
        for name in _FORKED:
            setattr(other, name, getattr(self, name).fork())
        other.meter_history = {split: points.fork() for split, points in self.meter_history.items()}
        other.receipts = {request: copy.copy(answer) for request, answer in self.receipts.items()}
        return other

    @property
    def role(self) -> str:
        """`worker` or `supervisor`, told by the head of the journal or else by its name."""
        return self.opened.role if self.opened else self.name.rpartition("-")[0]

    @property
    def is_rank(self) -> bool:
        """Whether it trains a part of the cores besides the process that reports for all."""
        return self.role == "rank"

    @property
    def index(self) -> int:
        """Index of the host."""
        digits = self.name.rpartition("-")[2]
        return int(digits) if digits.isdecimal() and digits.isascii() else 0

    @property
    def stepped(self) -> bool:
        """Whether it has reported a step of this run."""
        return self.progress is not None or bool(self.values.series)

    @property
    def place(self) -> tuple[int, str]:
        """Orders writers: by host, then by name."""
        return self.index, self.name

    def apply(self, seq: int, event: ev.Event) -> None:
        """Takes a fact in. A record that was read before changes nothing."""
        if seq <= self.last_seq:
            return
        lost = seq - self.last_seq - 1
        self.last_seq = seq
        newest_t = self.newest_t
        if newest_t is not None and newest_t <= event.t <= T_MAX and not self.set_back_s:
            if event.t - newest_t > SILENT_S and self.beat is not None:
                self._silent(newest_t, event.t)
            self.newest_t = event.t
        else:
            event = self._in_time(event)
        if lost:
            text = f"{self.name}: {lost} records before this are missing from its journal"
            self.log.warn(event.t, text, self.steps_done)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            if type(event) in _BOUNDED:
                event = self._bounded(event)
            handler(self, event)
        if not self.log.take(event, self.steps_done) and handler is None:
            self._unknown(event)

    def _in_time(self, event: ev.Event) -> ev.Event:
        """The event with its time in the run, where that is not simply later than the one before."""
        t, set_back_s = run_time(event.t, self.newest_t, self.set_back_s)
        if t != event.t and not math.isnan(event.t):
            event = msgspec.structs.replace(event, t=t)
        if set_back_s > self.set_back_s:
            by = fmt.duration(set_back_s - self.set_back_s)
            text = f"{self.name}: the clock of its host was set back by {by}; later times are counted on from before"
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
            self.unknown[kind] += 1

    def _silent(self, since: float, until: float) -> None:
        """Marks a time without a word; the wait for a step begins anew, since it is the same stall."""
        text = f"{self.name} said nothing for {fmt.duration(until - since)}"
        self.log.marks.add("stall", since, self.steps_done, text)
        if self.moved_t is not None:
            self.moved_t = max(self.moved_t, until)

    def _moved(self, t: float) -> None:
        if math.isfinite(t):
            if self.moved_t is not None and t - self.moved_t > STUCK_S:
                self._mark_stuck(self.moved_t, t)
            self.moved_t = t if self.moved_t is None else max(self.moved_t, t)

    def _mark_stuck(self, since: float, until: float) -> None:
        """Marks a long time without a step, if that was one in which steps were due."""
        if (
            self.beat is not None
            and (self.stepped or self.is_rank)
            and until - since > STUCK_STEPS * (self.smooth_step_s or 0.0)
        ):
            text = f"{self.name}: {fmt.PHASES[self.beat.phase]} for {fmt.duration(until - since)} without a step"
            self.log.marks.add("stall", since, self.steps_done, text)

    def _done(self, step: int, t: float) -> None:
        if step > self.steps_done:
            self.steps_done = step
        self._moved(t)

    def _journal_opened(self, event: ev.JournalOpened) -> None:
        self.opened = event

    def _run_started(self, event: ev.RunStarted) -> None:
        self.run_started = event

    def _worker_started(self, event: ev.WorkerStarted) -> None:
        self.worker_started = event

    def _worker_exited(self, event: ev.WorkerExited) -> None:
        self.worker_exited = event

    def _topology_declared(self, event: ev.TopologyDeclared) -> None:
        if not makes_sense(event):
            self.num_senseless += 1
            return
        self.topology = event
        self.values.declare(event)

    def _training_planned(self, event: ev.TrainingPlanned) -> None:
        self.plan = event

    def _heartbeat_sent(self, event: ev.HeartbeatSent) -> None:
        before, self.beat = self.beat, event
        if before is not None and before.phase == "saving" and event.phase != "saving":
            self._saved_from(before.t - before.phase_s, event.t)
        if event.phase not in STEPPING | {"saving"} or before is None or event.step > before.step:
            self._moved(event.t)

    def _saved_from(self, began: float, ended: float) -> None:
        """Leaves the time of a save out of the wait for a step. The wait itself goes on: a save on request, while no
        batch comes, must not clear a stall."""
        if self.moved_t is not None and math.isfinite(ended - began):
            self.moved_t = min(ended, self.moved_t + max(0.0, ended - began))

    def _epoch_started(self, event: ev.EpochStarted) -> None:
        self.epoch_started = event
        self._moved(event.t)
        if math.isfinite(event.t):
            self.epoch_starts.add(EpochStart(epoch=event.epoch, first_step=event.first_step, t=event.t))

    def _steps_recorded(self, event: ev.StepsRecorded) -> None:
        if not makes_sense(event):
            self.num_senseless += 1
            return
        self._done(event.first + event.n - 1, event.t)
        self.values.take(self.last_seq, event, self.log, self.newest_t)

    def _steps_dropped(self, event: ev.StepsDropped) -> None:
        self.dropped_steps += max(0, event.num_steps)

    def _progress_reported(self, event: ev.ProgressReported) -> None:
        self.progress = event
        self.pace.add(event)
        self._done(event.step, event.t)
        if math.isfinite(event.step_s) and event.step_s > 0:
            # The first report has in it what is done once; from the second on the next few count alike.
            before, since = self.smooth_step_s, self.pace.num_reports - 1
            weight = max(_PACE_NEWEST, 1.0 / since) if since > 0 else 1.0
            self.smooth_step_s = event.step_s if before is None else before + weight * (event.step_s - before)

    def _bounded(self, event: ev.Event) -> ev.Event:
        """The event with no more than views can show: lengths of time that are some, and meters that are few."""
        if isinstance(event, ev.MetersReported) and len(event.meters) > METERS_MAX:
            return msgspec.structs.replace(event, meters=self._few(event.t, event.meters))
        if not isinstance(event, ev.EpochEnded):
            return event
        if not all(map(_is_length, (*event.sections_s.values(), *event.trace_s.values()))):
            sections_s, trace_s = _lengths(event.sections_s), _lengths(event.trace_s)
            event = msgspec.structs.replace(event, sections_s=sections_s, trace_s=trace_s)
        if max(len(event.train), len(event.valid), len(event.scores)) > METERS_MAX:
            train, valid = self._few(event.t, event.train), self._few(event.t, event.valid)
            event = msgspec.structs.replace(event, train=train, valid=valid, scores=self._few(event.t, event.scores))
        return event

    def _few(self, t: float, readings: dict[str, MeterT]) -> dict[str, MeterT]:
        """The meters that are shown: all, or the first ones of a run that has thousands."""
        if len(readings) <= METERS_MAX:
            return readings
        text = f"{len(readings):,} meters are reported at once; the first {METERS_MAX} are shown"
        if text not in self.log.warnings:
            self.log.warnings.append(text)
            self.log.warn(t, text, self.steps_done)
        return dict(itertools.islice(readings.items(), METERS_MAX))

    def _meters_reported(self, event: ev.MetersReported) -> None:
        self.meters[event.split] = event
        if event.split not in self.meter_history:
            self.meter_history[event.split] = Downsampled(last_of)
        avg = {name: reading.avg for name, reading in event.meters.items()}
        self.meter_history[event.split].add(MeterPoint(epoch=event.epoch, split=event.split, step=event.step, avg=avg))
        self.num_meter_reports += 1

    def _epoch_ended(self, event: ev.EpochEnded) -> None:
        self.epochs[event.epoch] = event
        self._done(event.step, event.t)

    def _xla_metrics_read(self, event: ev.XlaMetricsRead) -> None:
        if event.compiles > (self.xla.compiles if self.xla else 0):
            # Of several programs together no more is known than that none took longer.
            took = event.compile_s - (self.xla.compile_s if self.xla else 0.0)
            self.longest_compile_s = (
                max(self.longest_compile_s, took) if math.isfinite(took) else self.longest_compile_s
            )
        self.log.marks.note_programs(self.xla, event, self.steps_done)
        self.xla = event

    def _memory_predicted(self, event: ev.MemoryPredicted) -> None:
        self.predicted = event.core

    def _memory_sampled(self, event: ev.MemorySampled) -> None:
        self.memory = event
        self.usage.add_device(event)

    def _host_sampled(self, event: ev.HostSampled) -> None:
        self.host = event
        self.usage.add_host(event)
        if _has_worker(event.processes) or not _has_worker(self.processes):
            self.processes = event.processes

    def _example_skipped(self, event: ev.ExampleSkipped) -> None:
        if len(self.skipped) == SKIPPED_MAX:
            self.skipped.pop()
        self.skipped.append(event)

    def _pictures_kept(self, event: ev.PicturesKept) -> None:
        self.pictures = event

    def _checkpoint_saved(self, event: ev.CheckpointSaved) -> None:
        self.checkpoints[event.path] = event
        self.dropped_checkpoints.pop(event.path, None)

    def _checkpoint_dropped(self, event: ev.CheckpointDropped) -> None:
        self.checkpoints.pop(event.path, None)
        self.dropped_checkpoints[event.path] = event

    def _request_seen(self, event: ev.RequestSeen) -> None:
        self._receipts(event.request).seen = event

    def _request_applied(self, event: ev.RequestApplied) -> None:
        self._receipts(event.request).applied = event

    def _request_refused(self, event: ev.RequestRefused) -> None:
        self._receipts(event.request).refused = event

    def _receipts(self, request: str) -> Receipts:
        return self.receipts.setdefault(request, Receipts())

    def _failure_raised(self, event: ev.FailureRaised) -> None:
        self.failure = self.failure or event

    def _failure_reported(self, event: ev.FailureReported) -> None:
        self.failure_reported = event

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
        """The end, at the newest time where it says none: views count lengths of time up to it."""
        return event if math.isfinite(event.t) else msgspec.structs.replace(event, t=self.newest_t or 0.0)


def _lengths(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: length for name, length in seconds.items() if _is_length(length)}


def _is_length(seconds: float) -> bool:
    """Whether a figure is a length of time that others can be added to; a NaN is none."""
    return -SECONDS_MAX <= seconds <= SECONDS_MAX


def _has_worker(processes: list[ev.ProcessSample]) -> bool:
    """Whether a training process is among them that still holds memory; one that has exited holds none."""
    return any(process.role == "worker" and process.rss_bytes > 0 for process in processes)


_BOUNDED = frozenset({ev.MetersReported, ev.EpochEnded})
"""Of which views show no more than so much."""
_COPIED = (
    "meters",
    "epochs",
    "checkpoints",
    "dropped_checkpoints",
    "skipped",
    "rank_exits",
    "stacks",
    "unknown",
)
"""What a fork needs a container of its own for."""
_FORKED = ("values", "log", "epoch_starts", "pace", "usage")
"""What a fork needs a fork of."""

_HANDLERS: dict[type[ev.Event], Callable[[ProcessState, Any], None]] = {
    ev.JournalOpened: ProcessState._journal_opened,
    ev.RunStarted: ProcessState._run_started,
    ev.WorkerStarted: ProcessState._worker_started,
    ev.WorkerExited: ProcessState._worker_exited,
    ev.TopologyDeclared: ProcessState._topology_declared,
    ev.TrainingPlanned: ProcessState._training_planned,
    ev.HeartbeatSent: ProcessState._heartbeat_sent,
    ev.EpochStarted: ProcessState._epoch_started,
    ev.StepsRecorded: ProcessState._steps_recorded,
    ev.StepsDropped: ProcessState._steps_dropped,
    ev.ProgressReported: ProcessState._progress_reported,
    ev.MetersReported: ProcessState._meters_reported,
    ev.EpochEnded: ProcessState._epoch_ended,
    ev.ExampleSkipped: ProcessState._example_skipped,
    ev.PicturesKept: ProcessState._pictures_kept,
    ev.XlaMetricsRead: ProcessState._xla_metrics_read,
    ev.MemoryPredicted: ProcessState._memory_predicted,
    ev.MemorySampled: ProcessState._memory_sampled,
    ev.HostSampled: ProcessState._host_sampled,
    ev.CheckpointSaved: ProcessState._checkpoint_saved,
    ev.CheckpointDropped: ProcessState._checkpoint_dropped,
    ev.RequestSeen: ProcessState._request_seen,
    ev.RequestApplied: ProcessState._request_applied,
    ev.RequestRefused: ProcessState._request_refused,
    ev.FailureRaised: ProcessState._failure_raised,
    ev.FailureReported: ProcessState._failure_reported,
    ev.RankExited: ProcessState._rank_exited,
    ev.StacksTaken: ProcessState._stacks_taken,
    ev.TrainingEnded: ProcessState._training_ended,
    ev.RunEnded: ProcessState._run_ended,
}


def lasts_s(beat: ev.HeartbeatSent, until: float) -> float:
    """Seconds that the phase of a beat has gone on for, at a later moment in unix time."""
    return beat.phase_s + max(0.0, until - beat.t)

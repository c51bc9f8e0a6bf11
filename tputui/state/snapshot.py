"""The state of a run at one moment, as every view shows it: the screen, the lines of `--no-ui`, and `show --json`.

Unknown values are None or empty, never a made-up number, beside the reason if it is known. Times are unix times and
durations are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tputui.state.chart_data import (
    AlertView,
    CoreColumn,
    DevicePoint,
    LoggedView,
    Mark,
    MemoryPoint,
    MeterPoint,
    NonFinite,
    OutlierView,
    Segment,
    SlowCoreView,
    ThroughputView,
    XlaPoint,
)
from tputui.state.evidence import Evidence
from tputui.state.run_condition import RunCondition
from tputui.state.time_spent import TimeView
from tputui.state.xla_view import XlaView
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import Phase, ProcessSample
from tputui.telemetry.origin import Provenance

HostCondition = Literal["starting", "running", "stalled", "ended", "lost", "missing"]
"""`lost`: its processes are gone, or were silent for long, without an end event. `missing`: it has written nothing."""


class HostView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A host of the run and its newest reports."""

    index: int
    name: str
    """Host name; empty if it has written nothing."""
    condition: HostCondition
    reason: str = ""
    """The reason for the condition, as a sentence; empty if the host runs."""
    cores: list[int] = []
    """Global indices of its cores."""
    step: int = 0
    """Newest step that it has reported."""
    lag_steps: int = 0
    """Steps that it is behind the host that is furthest."""
    phase: Phase | None = None
    """None before the first heartbeat."""
    phase_s: float = 0.0
    """Seconds in that phase; up to `Snapshot.now` while the process is alive."""
    silent_s: float | None = None
    """Seconds since its newest event; None if it has written nothing, or has ended."""
    loss: float | None = None
    """Mean loss of its cores in their newest step; NaN if one is not finite."""
    step_s: float | None = None
    """Wall time of a step, by its newest report."""
    compute_s: float | None = None
    """Part of a step that the host computes, until it is ready to exchange with the others; None if not known."""
    data_s: float | None = None
    """Part of a step that the host waits for batches."""
    wait_s: float | None = None
    """Part of a step that the host waits for other hosts."""
    cpu_percent: float | None = None
    used_bytes: int | None = None
    """Host memory in use."""
    total_bytes: int | None = None
    hbm_used_share: float | None = None
    """Used share of the device memory of its fullest core."""
    clock_offset_s: float | None = None
    """Seconds that its clock is ahead of that of the first host, by which its times are corrected; None if unknown."""
    clock_error_s: float | None = None
    """The offset is within this many seconds of the truth."""
    generation: int = 0
    """How often its training process was restarted."""
    processes: list[ProcessSample] = []
    """The processes of the run on the host, as its supervisor measures them."""
    link: str | None = None
    """The connection of the viewer to the host, if it reads the journals over ssh."""


class SlowHostView(msgspec.Struct, frozen=True, kw_only=True):
    """The host for which the others have waited in most of the newest steps."""

    index: int
    name: str
    part: Literal["compute", "data", "step"]
    """The part of a step in which it takes longer: computing, or waiting for batches; `step` if they are not known."""
    share: float
    """0.25 if it takes a quarter longer than the median of the other hosts."""
    seconds: float
    """Seconds per step that it takes longer than the median host."""
    first_step: int
    """First of the newest steps that show it; it may have been slower before."""
    waiting: int
    """Number of hosts that wait for it in each step."""


class GenerationView(msgspec.Struct, frozen=True, kw_only=True):
    """The training processes between two restarts."""

    number: int
    """0 for the first; as torchrun counts restarts."""
    t: float
    """Unix time at which its first process started."""
    first_step: int | None
    """Its first step; None before its plan is known."""
    lost_steps: int
    """Steps of the generation before that were trained again, since they are not in a checkpoint."""
    lost_s: float | None
    """Seconds from the newest step that was kept to the first step of this generation: lost work and the restart
    itself. None before that step."""
    reason: str
    """Why the generation before ended; empty for the first, and if it is not known."""


class HostReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a host answered to a request."""

    index: int
    state: Literal["seen", "applied", "refused"]
    step: int | None
    """Step after which it was carried out, or the newest step when it was read; None if it was refused."""
    t: float


class ProcessStacks(ev.StacksTaken, frozen=True, kw_only=True, tag=False):
    """The Python stacks of a process, and what it was doing at that time."""

    cores: list[int]
    phase: ev.Phase | None
    """By its newest heartbeat; None if unknown."""
    phase_s: float
    step: int
    """By its answer to the request, or else by its newest heartbeat at that time."""
    waits_for: str | None
    """What it waited for from other processes."""


class StacksView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest requested stacks."""

    request: str
    t: float
    """When the last of them was taken."""
    processes: list[ProcessStacks]
    cores: list[ev.CoreState] = []
    """What the cores executed then, as the TPU runtime reports it."""
    cores_reason: str | None = None
    """Why that is not known, or for which cores not; None without a TPU."""
    again_t: float | None = None
    """Time of a newer request that has no answer yet."""


class RunDetails(Provenance, frozen=True, kw_only=True):
    """Where a run comes from, and its command. None if the run did not record it."""

    argv: list[str] | None = None
    """The command line of the user."""
    cwd: str | None = None
    """Working directory of the command."""
    config_path: str | None = None
    """Configuration file, as given on the command line."""
    resumed_from: str | None = None
    """Checkpoint from which the run was resumed; also None if it was not."""


CORES_WAIT_S = 5.0
"""Seconds after the first loss in which the loss of further cores is waited for."""

RequestState = Literal["requested", "seen", "applied", "refused"]
CoreCondition = Literal["starting", "running", "stalled", "ended"]


class PlanView(ev.TrainingPlanned, frozen=True, kw_only=True, tag=False):
    """The training plan; `steps_per_epoch` is 0 if a script named only its number of steps."""

    total_steps: int
    """Steps of all epochs."""


class CoreView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A core and its newest report."""

    core: int
    host: str
    loss: float | None
    """Loss of its share of the newest step."""
    step: int
    condition: CoreCondition
    phase: ev.Phase | None
    phase_s: float
    """Seconds in that phase; up to `Snapshot.now` while the process is alive."""
    compute_s: float | None = None
    """Median time of the newest steps, at most 64, from the start of the step until the core waits for the others;
    None if not known, see `Snapshot.compute_reason`."""


class RankReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank of a script reported for a meter."""

    process: str
    rank: int
    reading: ev.MeterReading


class MeterView(msgspec.Struct, frozen=True, kw_only=True):
    """An AverageMeter; if several ranks of a script report it, their mean weighted by examples."""

    name: str
    split: ev.Split
    epoch: int
    reading: ev.MeterReading
    reduced: str
    ranks: list[RankReading] = []
    """The reading of each rank; empty if one process reports the meter for all."""


def hides_steps(snapshot: Snapshot) -> bool:
    """Whether epochs ended without a step that was reported, as if a compiled function has the loop over them."""
    return not snapshot.steps and bool(snapshot.epochs)


def best_epoch(epochs: Sequence[ev.EpochEnded]) -> ev.EpochEnded | None:
    """The best of the epochs, which are in order: the last one that was the best when it ended; None if none was."""
    return next((epoch for epoch in reversed(epochs) if epoch.best), None)


def monitored(config: Mapping[str, Any], epochs: Sequence[ev.EpochEnded] = ()) -> str:
    """Name of the validation metric by which the best epoch is chosen: by the run, or else by its configuration."""
    if epochs and epochs[-1].monitor:
        return epochs[-1].monitor
    checkpoint = config.get("checkpoint")
    return str(checkpoint.get("monitor", "loss")) if isinstance(checkpoint, Mapping) else "loss"


class MemoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of devices and hosts."""

    hbm: list[ev.HbmReading] | None
    hbm_reason: str | None
    """Why there is no reading; None if there is one."""
    host_cpu_percent: float | None
    host_used_bytes: int | None
    host_total_bytes: int | None
    processes: list[ev.ProcessSample]
    predicted: ev.MemoryForecast | None = None
    """Memory of a step on one core, predicted before the first step."""
    disk_read_bytes_per_s: int | None = None
    """As all rates, by the newest samples, over all hosts; null if no host counts it."""
    disk_written_bytes_per_s: int | None = None
    network_received_bytes_per_s: int | None = None
    network_sent_bytes_per_s: int | None = None


class FlopsView(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the arithmetic that the cores can do at most the model uses: the model FLOPs utilisation (MFU)."""

    flops_per_step: float | None
    """Floating-point operations of a training step over all cores, without recomputed ones; None if not known."""
    peak_flops_per_s: float | None
    """Published peak of all cores, in bfloat16; None if not known."""
    mfu: float | None
    """`flops_per_step` divided by the median step time and the peak; None if one of them is not known."""
    reason: str | None
    """Why there is no `mfu`."""


class DevicesView(ev.DeviceSampled, frozen=True, kw_only=True, tag=False):
    """The cores as the TPU runtime reports them, read from outside the training processes, by the newest samples of all
    hosts. Memory is in `memory`."""

    cores: list[ev.CoreSample]
    """In order; empty if nothing was read."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its answers."""

    id: str
    kind: ev.RequestKind
    state: RequestState
    t: float
    by: str | None = None
    seen_phase: ev.Phase | None = None
    applied_step: int | None = None
    path: str | None = None
    why: str | None = None
    """Why it was refused, or what may be missing although it was applied."""
    answered_t: float | None = None
    """Unix time of the answer by the clock of the run; None before. `t` is by the clock of the viewer that asked."""
    receipts: list[HostReceipt] = []
    """The answer of each host, by index, if the run has several hosts."""
    unanswered: list[int] = []
    """Indices of the hosts that have not answered, if the run has several."""


class Failure(ev.FailureRaised, frozen=True, kw_only=True, tag=False):
    """The first failure of a run, with everything that is known of it."""

    writer: str
    """The process that failed, or the journal about it."""
    host: str = ""
    is_child: bool = False
    """Whether `pid` is a process that the command had started, not the command itself."""
    cores: list[int] = []
    stack: str = ""
    """Python stack of a process that ended in native code."""
    log: list[str] = []
    memory: str | None = None
    """The kernel's memory counters, if a process was killed."""
    followers: list[str] = []
    """Later ends of other processes, as sentences."""
    path: str | None = None
    """File with the whole report, relative to the run directory."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log pane."""

    t: float
    source: str
    """`worker-0` for lines that training printed, `tputui` for lines of tputui."""
    level: Literal["info", "warning", "error"]
    text: str


class SkippedView(msgspec.Struct, frozen=True, kw_only=True):
    """The examples that were left out."""

    count: int
    limit: int
    """How many may be left out; 0 if none was."""
    examples: list[ev.ExampleSkipped]
    """The first ones; `count` counts all."""


class DamageView(msgspec.Struct, frozen=True, kw_only=True):
    """Damage in the journals."""

    regions: list[Damage]
    lost_records: int
    """Lost events, as far as known from sequence numbers."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at the unix time `now`."""

    now: float
    """Unix time: the present, or the moment shown by a replay."""
    run: str
    dir: str
    created: float | None
    condition: RunCondition
    condition_reason: str
    config: dict[str, Any]
    topology: ev.TopologyDeclared | None
    plan: PlanView | None
    phase: ev.Phase | None
    """Phase of the first worker; None before its first heartbeat."""
    phase_s: float
    newest_fact: float | None
    started: float | None
    ended: float | None
    """Time of the end event."""
    epoch: int
    epoch_step: int
    steps: int
    """Steps done, including those before a resume. In JSON null if epochs ended and the number is not known."""
    step_s: float | None
    """Seconds per step: by the reports of the last 10 s while the run trains, then over the whole run."""
    examples_per_s: float | None
    """Examples per second in the same way."""
    lr: float | None
    report_steps: int | None
    eta_s: float | None
    """Estimated seconds to the end of training; None if unknown."""
    cores: list[CoreView]
    meters: list[MeterView]
    """Meters of the running or last epoch: training first, then validation."""
    epochs: list[ev.EpochEnded]
    xla: XlaView | None
    memory: MemoryView
    checkpoints: list[ev.CheckpointSaved]
    requests: list[RequestView]
    non_finite: list[NonFinite]
    """The first ones; `num_non_finite` counts all."""
    num_non_finite: int
    dropped_steps: int
    """Steps whose values were dropped because the disk was too slow."""
    skipped: SkippedView
    pictures: ev.PicturesKept | None
    """Those of the newest epoch that has some."""
    warnings: list[str]
    """Newest warnings of the run itself."""
    failure: Failure | None
    exit_code: int | None
    logs: list[LogLine]
    """The newest ones, oldest first."""
    loss: list[Segment]
    """The loss over all cores, in order of steps; bounded in number however long the run."""
    damage: DamageView
    newer_format: str | None
    """A warning if a newer version wrote the run; else None."""
    troubles: list[str] = []
    """Why the viewer cannot see all of the run: its directory is gone, or a file cannot be read."""
    num_senseless: int = 0
    """Events left out because they contradict themselves."""
    core_columns: list[CoreColumn] = []
    """Each core's loss, in order of steps; at most 512 columns however long the run."""
    outlier: OutlierView | None = None
    """The core whose loss currently differs from the others; None if there is none."""
    slow_core: SlowCoreView | None = None
    """The core that currently computes slower than the others; None if there is none."""
    compute_reason: str | None = None
    """Why the compute time of each core is not known; None if it is, or if there is only one core."""
    marks: list[Mark] = []
    """Timeline marks in order of time. Of frequent kinds: the newest, and samples of the others."""
    num_marks: int = 0
    """Number of all marks, including those not stored."""
    loss_named: ev.LossNamed | None = None
    """What the script calls its training loss, and where that was read; None if the script reports it by itself."""
    epoch_starts: list[ev.EpochStarted] = []
    """In order of epochs; samples if there are more than 512."""
    throughput: ThroughputView | None = None
    """None before the first report."""
    picture_history: list[ev.PicturesKept] = []
    """The pictures of each epoch that has some, in order of the epochs, of many the newest."""
    memory_history: list[MemoryPoint] = []
    """In order of time; at most 512 however long the run."""
    device_history: list[DevicePoint] = []
    """Duty cycle of the first host that reports it, in order of time; at most 512 however long the run."""
    xla_history: list[XlaPoint] = []
    """In order of time; at most 512 however long the run."""
    devices: DevicesView | None = None
    """None if no TPU runtime is read."""
    flops: FlopsView | None = None
    """None if the run does not count the operations of a step."""
    stacks: StacksView | None = None
    """The newest requested stacks; None if none were requested."""
    meter_history: list[MeterPoint] = []
    """In order of time, training and validation apart; at most 512 of each. Final values are in `epochs`."""
    details: RunDetails = RunDetails()
    logged: list[LoggedView] = []
    alerts: list[AlertView] = []
    """The newest ones, oldest first."""
    traces: list[ev.TraceWritten] = []
    """The newest profiles of steps, oldest first."""
    time_spent: TimeView | None = None
    """Where the wall time of training went; None if it is not measured."""
    evidence: Evidence = msgspec.field(default_factory=Evidence)
    """What was observed of compilations, reads, fallbacks and input; `tputui.diagnosis` derives verdicts from it."""
    hosts: list[HostView] = []
    """In order; one entry for a run on one host."""
    slow_host: SlowHostView | None = None
    """The host that is slower than the others; None if there is none."""
    generations: list[GenerationView] = []
    """In order; one entry if training was not restarted."""
    command_exit_code: int | None = None
    """Exit code of the user's command; None if the run is not one, before its end, or if a signal ended it."""
    is_behind: bool = False
    """Whether curves and verdicts still lack values of a host for some older steps, which the next snapshots add."""

    @property
    def num_losses(self) -> int:
        """Values that a step has for its loss: one per core, but that of a script may be of all its devices; 0 if
        unknown."""
        topology = self.topology
        if topology is None:
            return 0
        return len(topology.cores) if topology.strategy == "script" else topology.num_cores

    @property
    def newest_loss(self) -> float | None:
        """Mean training loss of the newest step over the cores: infinite or NaN if one is; None if unknown, also until
        all cores have a value, for at most `CORES_WAIT_S` seconds, since some begin later than others."""
        losses = [core.loss for core in self.cores if core.loss is not None]
        if 0 < len(losses) < self.num_losses and self.loss and self.now - self.loss[0].t < CORES_WAIT_S:
            return None
        if losses:
            return float_blocks.mean(losses)
        return self.loss[-1].mean if self.loss else None

    @property
    def epoch_loss(self) -> float | None:
        """Mean training loss over the examples of the last epoch that ended; None if it has none."""
        reading = self.epochs[-1].train.get("loss") if self.epochs else None
        return reading.avg if reading is not None else None

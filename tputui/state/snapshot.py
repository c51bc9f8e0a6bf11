"""What is true of a run at a moment: the one value that every view draws.

The screen, the lines of `--no-ui` and `show --json` all read a `Snapshot`; `docs` and tests name its fields. Facts
that nobody told are None or empty, never a made-up number, and where a reason is known it stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from tputui.telemetry.events import (
    CodeFrame,
    FailureKind,
    HbmReading,
    MemoryForecast,
    MeterReading,
    Phase,
    PictureKept,
    ProcessSample,
    RequestKind,
    Split,
    StepPrograms,
    ThreadStack,
)

RunCondition = Literal["starting", "running", "stalled", "done", "stopped", "failed", "lost"]
"""`starting`: alive, no step yet. `stalled`: alive, and silent or without progress beyond what its phase allows.
`lost`: no end record and no living process."""

ENDED: frozenset[RunCondition] = frozenset({"done", "stopped", "failed", "lost"})

RequestState = Literal["requested", "seen", "applied", "refused"]

CoreCondition = Literal["starting", "running", "stalled", "ended"]

MarkKind = Literal[
    "epoch",
    "compile",
    "recompile",
    "checkpoint",
    "best",
    "request",
    "non_finite",
    "stall",
    "warning",
    "failure",
    "resume",
    "end",
]
"""What happened: an epoch began; programs were compiled, in warm-up or later; a checkpoint was saved; an epoch was the
best so far; a person asked, or was answered; values became NaN or infinite; no word or no step for long; something the
user should know; training broke; it goes on from a checkpoint; the run ended."""

MARK_KINDS: tuple[MarkKind, ...] = get_args(MarkKind)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a snapshot."""


class Topology(View, frozen=True, kw_only=True):
    """How the cores run one program."""

    strategy: str
    device: str
    device_reason: str | None
    num_cores: int
    num_hosts: int
    device_warning: str | None = None
    """That a TPU seems to be here and is not used, and why."""


class Plan(View, frozen=True, kw_only=True):
    """What is to be trained."""

    task: str
    num_epochs: int
    steps_per_epoch: int
    total_steps: int
    first_step: int
    batch_per_core: int
    global_batch: int
    train_examples: int
    valid_examples: int
    num_parameters: int
    precision: str
    lr: float
    lr_rule: str


class CoreView(View, frozen=True, kw_only=True):
    """A core, and the newest that it said."""

    core: int
    host: str
    loss: float | None
    """Loss of its share of the newest reported step."""
    step: int
    condition: CoreCondition
    phase: Phase | None
    """Phase of the process that drives it."""
    phase_s: float
    """Seconds in that phase, as of the snapshot's moment while the process is alive."""


class MeterView(View, frozen=True, kw_only=True):
    """An AverageMeter."""

    name: str
    split: Split
    epoch: int
    reading: MeterReading
    reduced: str


class EpochView(View, frozen=True, kw_only=True):
    """An epoch that ended."""

    epoch: int
    train: dict[str, MeterReading]
    valid: dict[str, MeterReading]
    train_s: float
    valid_s: float
    sections_s: dict[str, float]
    lr: float
    best: bool
    scores: dict[str, float]
    """Figures of the whole validation split that are no means over examples."""
    trace_s: dict[str, float]
    """What tracing was spent on, by part."""

    @property
    def compile_s(self) -> float:
        """Seconds in which programs were compiled."""
        return self.sections_s.get("compile", 0.0)

    @property
    def steady_s(self) -> float:
        """Seconds of training and validation without those."""
        return max(self.train_s + self.valid_s - self.compile_s, 0.0)

    def figure(self, name: str) -> float | None:
        """A validation meter's mean, or else a score of the validation split, by name."""
        reading = self.valid.get(name)
        return reading.avg if reading is not None else self.scores.get(name)


def best_epoch(epochs: Sequence[EpochView]) -> EpochView | None:
    """Of epochs in order: the one that was the best when it ended and was not bettered since."""
    return next((epoch for epoch in reversed(epochs) if epoch.best), None)


def monitored(config: Mapping[str, Any]) -> str:
    """Name of the validation metric by which a configuration chooses the best epoch."""
    checkpoint = config.get("checkpoint")
    return str(checkpoint.get("monitor", "loss")) if isinstance(checkpoint, Mapping) else "loss"


EXTRA_LEAST = 0.05
"""Executions a step above the expected ones that are shown as such: one in twenty steps."""


class XlaView(View, frozen=True, kw_only=True):
    """Counters of the XLA runtime, summed over the processes."""

    compiles: int
    compile_s: float
    recompiles: int
    executes: int
    execute_s: float
    transfers_to_device: int
    transfers_from_device: int
    bytes_to_device: int
    bytes_from_device: int
    fallbacks: dict[str, int]
    engine_reads: int = 0
    """Of the transfers from the device, the engine's own."""
    scalar_reads: int = 0
    """Single values that the task's code read, evaluations included."""
    steps: StepPrograms | None = None
    """The training steps after warm-up; None in recordings that do not count them. Their `recompiles` leave out what
    was compiled elsewhere than at a sync."""

    @property
    def executes_a_step(self) -> float | None:
        """Programs executed by a step after warm-up; None before there is one."""
        return self.steps.executes / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def expected_a_step(self) -> float | None:
        """Programs that the strategy makes of a step."""
        return self.steps.expected_executes / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def reads_a_step(self) -> float | None:
        """Single values that a step reads from the device."""
        return self.steps.scalar_reads / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def has_extra_executes(self) -> bool:
        """Whether steps execute more programs than the strategy makes of them."""
        executes, expected = self.executes_a_step, self.expected_a_step
        return executes is not None and expected is not None and executes - expected >= EXTRA_LEAST

    @property
    def is_never_recompiled(self) -> bool | None:
        """Whether nothing was compiled after warm-up; None where that is not known, or warm-up is not over."""
        if self.recompiles > 0:
            return False
        return True if self.steps is not None and self.steps.steps > 0 else None


class MemoryView(View, frozen=True, kw_only=True):
    """Memory of devices and hosts."""

    hbm: list[HbmReading] | None
    hbm_reason: str | None
    """Why there is no reading; None where there is one."""
    host_cpu_percent: float | None
    host_used_bytes: int | None
    host_total_bytes: int | None
    processes: list[ProcessSample]
    predicted: MemoryForecast | None = None
    """What a step was predicted to take on one core, before the first one."""


class CheckpointView(View, frozen=True, kw_only=True):
    """A checkpoint that was saved."""

    t: float
    path: str
    step: int
    epoch: int
    bytes: int
    seconds: float
    reason: str
    best: bool


class RequestView(View, frozen=True, kw_only=True):
    """A request with its receipts."""

    id: str
    kind: RequestKind
    state: RequestState
    t: float
    by: str | None
    seen_phase: Phase | None
    applied_step: int | None
    path: str | None
    why: str | None
    """Why it was refused."""


class NonFinite(View, frozen=True, kw_only=True):
    """A NaN or an infinity that a core reported."""

    core: int
    step: int
    metric: str
    value: float


class Failure(View, frozen=True, kw_only=True):
    """What broke training."""

    writer: str
    error: str
    message: str
    traceback: str
    phase: Phase
    step: int
    kind: FailureKind = "exception"
    """How it broke."""
    t: float = 0.0
    """Unix time at which it did."""
    host: str = ""
    pid: int | None = None
    cores: list[int] = []
    """The cores that the process drives."""
    frames: list[CodeFrame] = []
    """The calls in the user's own code that led there, the newest first."""
    stack: str = ""
    """The Python stack at an end in native code."""
    log: list[str] = []
    """The last lines that were printed before."""
    memory: str | None = None
    """What the kernel's counters say of memory, where a process was killed."""
    followers: list[str] = []
    """The ends of other processes that came later, a sentence each."""
    path: str | None = None
    """File with the whole report, relative to the run directory."""


class ProcessStacks(View, frozen=True, kw_only=True):
    """Where the threads of a process were."""

    t: float
    """Unix time in seconds."""
    process: str
    pid: int
    cores: list[int]
    phase: Phase | None
    """What it was doing then, by its newest word; None where that is not known."""
    phase_s: float
    step: int
    """As the receipt of the request tells it, else by its newest word then."""
    waits_for: str | None
    """What of the other processes it waited for."""
    threads: list[ThreadStack]
    """The one that trains first."""
    path: str | None
    """File with all of it, relative to the run directory."""
    by_signal: bool
    """Whether a signal fetched them, since no thread of Python could answer."""


class StacksView(View, frozen=True, kw_only=True):
    """The stacks that were asked for last."""

    request: str
    t: float
    """When the last of them were taken."""
    processes: list[ProcessStacks]
    again_t: float | None = None
    """When they were asked for once more, where nobody has answered that yet."""


class LogLine(View, frozen=True, kw_only=True):
    """A line for the log pane."""

    t: float
    source: str
    """Who says it: `worker-0` for what training printed, `tputui` for what the tool tells."""
    level: Literal["info", "warning", "error"]
    text: str


class SkippedExample(View, frozen=True, kw_only=True):
    """An example that cannot be used and was left out."""

    split: Split
    where: str
    why: str


class SkippedView(View, frozen=True, kw_only=True):
    """The examples that were left out."""

    count: int
    limit: int
    """How many may be; 0 where none was."""
    examples: list[SkippedExample]
    """The first ones; `count` counts all."""


class PicturesView(View, frozen=True, kw_only=True):
    """Pictures of a few predictions, of the newest epoch that has some."""

    epoch: int
    step: int
    pictures: list[PictureKept]
    legend: str = ""
    """What their colours mean."""


class DamageRegion(View, frozen=True, kw_only=True):
    """A region of a journal that cannot be read."""

    journal: str
    start: int
    end: int
    reason: str
    lost_records: int | None


class DamageView(View, frozen=True, kw_only=True):
    """What of the journals cannot be read."""

    regions: list[DamageRegion]
    lost_records: int
    """Records lost, as far as sequence numbers tell."""


class Segment(View, frozen=True, kw_only=True):
    """A piece of a series: consecutive steps reduced to what a chart needs. A one-step spike survives in `max`."""

    first_step: int
    last_step: int
    mean: float
    """Mean of the finite values over its steps and cores; NaN where none is finite."""
    min: float
    max: float
    num_values: int
    """Finite values in it."""
    num_bad: int
    """NaN and infinite values in it."""

    t: float = 0.0
    """Unix time at which its last step was reported; 0 where that was not told."""


class CoreColumn(View, frozen=True, kw_only=True):
    """What each core's loss was over consecutive steps. Shared between snapshots: not to be changed.

    Columns follow each other without a gap, and need not be of one width. One of a long run is made of samples of its
    steps: see `tputui.state.core_series` for which.
    """

    first_step: int
    last_step: int
    means: Sequence[float]
    """[cores] an array of float32, by global index of the core: mean of the finite values of the steps that were
    sampled; NaN where there is none, so for a core that does not tell."""
    bad_cores: tuple[int, ...]
    """Cores with a NaN or an infinity in a step that was sampled, in order."""
    num_steps: int
    """Steps that were sampled: all from the first to the last, or fewer."""
    middle: float
    """Mean of the steps that were sampled, where a curve has its point."""

    @property
    def is_sampled(self) -> bool:
        """Whether steps were passed over."""
        return self.num_steps < self.last_step - self.first_step + 1


class OutlierView(View, frozen=True, kw_only=True):
    """A core whose loss differs persistently from the others; see `tputui.state.outlier` for what that takes."""

    core: int
    by: float
    """Its greatest distance from the median core, in units of the loss; negative below."""
    first_step: int
    last_step: int
    """Steps from the first to the last in which it was off."""


class Mark(View, frozen=True, kw_only=True):
    """Something that happened at a moment."""

    t: float
    """Unix time in seconds."""
    step: int
    """Newest step done then; for an epoch its first one."""
    kind: MarkKind
    text: str
    """For a person: `saved 1.2 MiB in 0.30 s: checkpoints/last.pt`."""
    core: int | None
    """The core it befell, where it was one."""


class EpochStart(View, frozen=True, kw_only=True):
    """When an epoch began."""

    epoch: int
    first_step: int
    """Its first step in this run."""
    t: float
    """Unix time in seconds."""


class ThroughputPoint(View, frozen=True, kw_only=True):
    """How fast training went over one report, or the mean over neighbouring ones."""

    t: float
    """Unix time of the last of them."""
    step: int
    """Steps done then."""
    step_s: float
    """Mean wall time of a step in seconds, compiling left out."""
    examples_per_s: float


class ThroughputView(View, frozen=True, kw_only=True):
    """How fast training goes."""

    examples_per_s: float
    """By the newest report, over all cores."""
    steady_examples_per_s: float
    """At the median step time of the run so far, so that neither the start nor a hiccup counts."""
    step_p50_s: float
    """Median step time in seconds. Steps' own times are not recorded: it is over the reports' mean step times, each
    counted once for every step in it, and exact to 0.1 %."""
    step_p95_s: float
    """The step time in seconds that 95 % of the steps keep, in the same way over reports' means: a single slow step
    within a report does not show in it."""
    num_reports: int
    """Reports that these figures are over."""
    history: list[ThroughputPoint]
    """In order of time; at most 512 however long the run."""
    eta_epoch_s: float | None
    """Seconds to the end of the running epoch, its evaluation included; None where it cannot be told."""


class MemoryPoint(View, frozen=True, kw_only=True):
    """Memory at a moment, or the most of it over neighbouring ones."""

    t: float
    """Unix time in seconds."""
    hbm_used_bytes: int | None
    """Of the fullest core."""
    host_used_bytes: int | None
    """Over all hosts."""
    rss_bytes: int | None
    """Of the processes of the run, over all hosts."""


class MeterPoint(View, frozen=True, kw_only=True):
    """What AverageMeters showed at a step."""

    epoch: int
    split: Split
    step: int
    avg: dict[str, float]
    """Mean over the epoch's examples so far, by name of the meter."""


class Snapshot(View, frozen=True, kw_only=True):
    """Everything that is true of a run at the moment `now`."""

    now: float
    """Unix time in seconds: the present for a running run, the moment played for a replay."""
    run: str
    dir: str
    created: float | None
    condition: RunCondition
    condition_reason: str
    """One sentence for a person."""
    config: dict[str, Any]
    topology: Topology | None
    plan: Plan | None
    phase: Phase | None
    """Phase of the first worker; None before it spoke."""
    phase_s: float
    newest_fact: float | None
    """Time of the newest fact."""
    started: float | None
    """Time of the first fact."""
    ended: float | None
    """Time of the end record."""
    epoch: int
    epoch_step: int
    steps: int
    """Steps done, those before a resume included."""
    step_s: float | None
    examples_per_s: float | None
    lr: float | None
    report_steps: int | None
    eta_s: float | None
    """Seconds to the end of training at the pace of the epochs and steps so far; None where it cannot be told."""
    cores: list[CoreView]
    meters: list[MeterView]
    """Meters of the running epoch, or the last one: training first, then validation."""
    epochs: list[EpochView]
    xla: XlaView | None
    memory: MemoryView
    checkpoints: list[CheckpointView]
    requests: list[RequestView]
    non_finite: list[NonFinite]
    """The first ones; `num_non_finite` counts all."""
    num_non_finite: int
    dropped_steps: int
    """Steps whose values the disk could not take in time."""
    skipped: SkippedView
    pictures: PicturesView | None
    warnings: list[str]
    """What the run itself warned of; the newest ones."""
    failure: Failure | None
    exit_code: int | None
    logs: list[LogLine]
    """The newest ones, oldest first."""
    loss: list[Segment]
    """The loss over all cores, in order of steps; bounded in number however long the run."""
    damage: DamageView
    newer_format: str | None
    """Says so where a writer is newer than this reader, or wrote kinds of facts that it does not know."""
    troubles: list[str] = []
    """What keeps the viewer from seeing all of the run: its directory is gone, a file of it cannot be read."""
    num_senseless: int = 0
    """Records of steps that contradict themselves and were left out."""
    core_columns: list[CoreColumn] = []
    """Each core's loss, in order of steps; at most 512 columns however long the run."""
    outlier: OutlierView | None = None
    """The core whose loss differs from the others now; None where none does."""
    marks: list[Mark] = []
    """What happened, in order of time. Of a kind that happened often the newest are kept, and samples of the rest."""
    num_marks: int = 0
    """All of them, those that are not kept included."""
    epoch_starts: list[EpochStart] = []
    """In order of epochs; of more than 512, samples."""
    throughput: ThroughputView | None = None
    """None before the first report."""
    memory_history: list[MemoryPoint] = []
    """In order of time; at most 512 however long the run."""
    stacks: StacksView | None = None
    """The stacks that were asked for last; None where none were."""
    meter_history: list[MeterPoint] = []
    """In order of time, training and validation apart; at most 512 of each. An epoch's last figures are in `epochs`."""

    @property
    def newest_loss(self) -> float | None:
        """Training loss of the newest step, as the mean over the cores: what every view shows as "the loss".

        NaN if a core's is NaN or infinite; None before the first report.
        """
        losses = [core.loss for core in self.cores if core.loss is not None]
        if losses:
            return math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.nan
        return self.loss[-1].mean if self.loss else None

"""What is true of a run at a moment: the one value that every view draws.

The screen, the lines of `--no-ui` and `show --json` all read a `Snapshot`; `docs` and tests name its fields. Facts
that nobody told are None or empty, never a made-up number, and where a reason is known it stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tputui.state.chart_data import (
    CoreColumn,
    EpochStart,
    Mark,
    MemoryPoint,
    MeterPoint,
    OutlierView,
    Segment,
    ThroughputView,
)
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


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How the cores run one program."""

    strategy: str
    device: str
    device_reason: str | None
    num_cores: int
    num_hosts: int
    device_warning: str | None = None
    """That a TPU seems to be here and is not used, and why."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
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


class CoreView(msgspec.Struct, frozen=True, kw_only=True):
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


class MeterView(msgspec.Struct, frozen=True, kw_only=True):
    """An AverageMeter."""

    name: str
    split: Split
    epoch: int
    reading: MeterReading
    reduced: str


class EpochView(msgspec.Struct, frozen=True, kw_only=True):
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


class XlaView(msgspec.Struct, frozen=True, kw_only=True):
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


class MemoryView(msgspec.Struct, frozen=True, kw_only=True):
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


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was saved."""

    t: float
    path: str
    step: int
    epoch: int
    bytes: int
    seconds: float
    reason: str
    best: bool


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
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


class NonFinite(msgspec.Struct, frozen=True, kw_only=True):
    """A NaN or an infinity that a core reported."""

    core: int
    step: int
    metric: str
    value: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
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


class ProcessStacks(msgspec.Struct, frozen=True, kw_only=True):
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


class StacksView(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks that were asked for last."""

    request: str
    t: float
    """When the last of them were taken."""
    processes: list[ProcessStacks]
    again_t: float | None = None
    """When they were asked for once more, where nobody has answered that yet."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log pane."""

    t: float
    source: str
    """Who says it: `worker-0` for what training printed, `tputui` for what the tool tells."""
    level: Literal["info", "warning", "error"]
    text: str


class SkippedExample(msgspec.Struct, frozen=True, kw_only=True):
    """An example that cannot be used and was left out."""

    split: Split
    where: str
    why: str


class SkippedView(msgspec.Struct, frozen=True, kw_only=True):
    """The examples that were left out."""

    count: int
    limit: int
    """How many may be; 0 where none was."""
    examples: list[SkippedExample]
    """The first ones; `count` counts all."""


class PicturesView(msgspec.Struct, frozen=True, kw_only=True):
    """Pictures of a few predictions, of the newest epoch that has some."""

    epoch: int
    step: int
    pictures: list[PictureKept]
    legend: str = ""
    """What their colours mean."""


class DamageRegion(msgspec.Struct, frozen=True, kw_only=True):
    """A region of a journal that cannot be read."""

    journal: str
    start: int
    end: int
    reason: str
    lost_records: int | None


class DamageView(msgspec.Struct, frozen=True, kw_only=True):
    """What of the journals cannot be read."""

    regions: list[DamageRegion]
    lost_records: int
    """Records lost, as far as sequence numbers tell."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
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

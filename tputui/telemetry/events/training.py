"""Events of training: its plan, steps, epochs, measurements and checkpoints."""

from __future__ import annotations

from typing import ClassVar

from tputui.telemetry.events.values import (
    Event,
    HbmReading,
    Int,
    MemoryForecast,
    MeterReading,
    PictureKept,
    Split,
    StepPrograms,
)


class TopologyDeclared(Event, frozen=True, kw_only=True, tag=True):
    """How the cores run one program."""

    strategy: str
    """`spmd`, `single` or `replica`."""
    device: str
    """What the cores are, as the runtime names it: `CPU`, `TPU`."""
    device_reason: str | None = None
    """Why it is not a TPU, where it is not one."""
    device_warning: str | None = None
    """That a TPU seems to be here and is not used, and why; null where nothing suggests one."""
    num_cores: Int
    """Cores over all hosts."""
    num_hosts: Int
    """Hosts of the run."""
    host_index: Int
    """Which of them writes this."""
    cores: list[Int]
    """Global indices of the cores whose losses this writer records, in the order of the columns; in a rank's journal,
    which records none, of the cores that it drives."""


class TrainingPlanned(Event, frozen=True, kw_only=True, tag=True):
    """What is to be trained, before the first step."""

    task: str
    """The workload."""
    num_epochs: Int
    """Epochs to train."""
    steps_per_epoch: Int
    """Steps an epoch: a batch each, of which `optim.accumulate` make an update of the weights."""
    valid_steps: Int
    """Evaluation batches an epoch."""
    first_step: Int
    """First step of this run: 1, or the one after the checkpoint."""
    batch_per_core: Int
    """Examples a core takes each step."""
    global_batch: Int
    """Examples all cores take each step."""
    train_examples: Int
    """Examples in the training split."""
    valid_examples: Int
    """Examples in the validation split."""
    num_parameters: Int
    """Trainable parameters."""
    precision: str
    """`fp32` or `bf16`."""
    lr: float
    """Learning rate in force at the first step, after scaling."""
    lr_rule: str
    """How it follows from the configured one, in words."""


class EpochStarted(Event, frozen=True, kw_only=True, tag=True):
    """An epoch began."""

    epoch: Int
    """Its number."""
    first_step: Int
    """Its first step in this run."""


class StepsRecorded(Event, frozen=True, kw_only=True, tag=True):
    """Per-core values of every step since the last report.

    `mean`, `min` and `max` are over the finite values of the block, so a run opens without decoding blocks; the
    values themselves, exact for NaN and infinities, are in `block`.
    """

    droppable: ClassVar[bool] = True

    first: Int
    """First step of the block."""
    n: Int
    """Number of consecutive steps: rows of the block."""
    cores: Int
    """Number of cores: columns of the block."""
    mean: float
    """Mean of the finite values; NaN where none is."""
    min: float
    """Least finite value; NaN where none is."""
    max: float
    """Greatest finite value; NaN where none is."""
    bad: Int = 0
    """How many values are NaN or infinite."""
    metric: str = "loss"
    """What the values are."""
    block: str
    """The values, [steps][cores] float32, packed."""


class StepsDropped(Event, frozen=True, kw_only=True, tag=True):
    """Values of steps that no journal holds: the disk could not keep up, or training ended before they were read."""

    num_records: Int
    """Records dropped."""
    num_steps: Int
    """Steps whose values were in them."""
    why: str = ""
    """Why, in one sentence; empty if the disk could not keep up."""


class ProgressReported(Event, frozen=True, kw_only=True, tag=True):
    """How training goes, once a report."""

    droppable: ClassVar[bool] = True

    epoch: Int
    """Epoch in training."""
    epoch_step: Int
    """Steps done of this epoch."""
    step: Int
    """Steps done of the run."""
    step_s: float
    """Mean wall time of a step since the last report, compiling left out."""
    examples_per_s: float
    """Training examples a second at that pace, over all cores."""
    lr: float
    """Learning rate in force."""
    report_steps: Int
    """Steps between reports, re-derived so that a report falls due about once a second."""


class MetersReported(Event, frozen=True, kw_only=True, tag=True):
    """AverageMeters, once a report."""

    droppable: ClassVar[bool] = True

    epoch: Int
    """Epoch they belong to."""
    step: Int
    """Newest step in them."""
    split: Split
    """Which data."""
    meters: dict[str, MeterReading]
    """Reading by meter name."""
    reduced: str
    """How cores and steps were reduced, in words."""


class EpochEnded(Event, frozen=True, kw_only=True, tag=True):
    """An epoch was trained and evaluated."""

    epoch: Int
    """Its number."""
    step: Int
    """Its last step."""
    train: dict[str, MeterReading]
    """Training meters over the epoch."""
    valid: dict[str, MeterReading]
    """Validation meters after the epoch."""
    train_s: float
    """Wall time of training."""
    valid_s: float
    """Wall time of evaluation."""
    sections_s: dict[str, float]
    """Wall time by section: data, trace, compile, execute, report, evaluate, save, other. They do not overlap and
    add up to the epoch."""
    lr: float
    """Learning rate in force during the epoch."""
    best: bool
    """Whether the monitored figure is the best so far."""
    scores: dict[str, float] = {}
    """Figures of the whole validation split that are no means over examples, such as `auc`."""
    trace_s: dict[str, float] = {}
    """What `trace` was spent on: forward, loss, backward, optimizer. Host time: the device runs them as one program."""


class ExampleSkipped(Event, frozen=True, kw_only=True, tag=True):
    """An example cannot be used and is left out: in training another one takes its place."""

    split: Split
    """Which data."""
    where: str
    """File, row and column, as far as the task tells."""
    why: str
    """What is wrong with it."""
    skipped: Int
    """Examples left out so far."""
    limit: Int
    """How many may be left out; one more ends training."""


class PicturesKept(Event, frozen=True, kw_only=True, tag=True):
    """Pictures of a few predictions of a validation epoch are on disk; or, before training, of training examples."""

    epoch: Int
    """The epoch; 0 for training examples with their labels, drawn before the first step."""
    step: Int
    """Its last step."""
    pictures: list[PictureKept]
    """The pictures, those of one example together."""
    legend: str = ""
    """What their colours mean, in one sentence; empty where the task says nothing of them."""


class XlaMetricsRead(Event, frozen=True, kw_only=True, tag=True):
    """Counters of the XLA runtime, totals since the process began."""

    droppable: ClassVar[bool] = True

    compiles: Int
    """Programs compiled, anywhere in the process."""
    compile_s: float
    """Time inside the compiler."""
    recompiles: Int
    """Programs compiled after warm-up, wherever that was: at a sync, inside a trace, between the steps. Records without
    `steps` count those at a sync alone."""
    executes: Int
    """Programs executed."""
    execute_s: float
    """Time the runtime accounts to executions."""
    transfers_to_device: Int
    """Transfers host to device."""
    transfers_from_device: Int
    """Transfers device to host."""
    bytes_to_device: Int
    """Bytes host to device."""
    bytes_from_device: Int
    """Bytes device to host."""
    fallbacks: dict[str, Int]
    """Operations that ran on the host CPU for want of a lowering, with their counts."""
    engine_reads: Int = 0
    """Of the transfers device to host, those of reports, evaluations, saves and exchanges between processes."""
    scalar_reads: Int = 0
    """Single values read from the device by the task's code (`.item()`, `float()`, `if tensor`), evaluations
    included."""
    steps: StepPrograms | None = None
    """The training steps after warm-up."""


class MemoryPredicted(Event, frozen=True, kw_only=True, tag=True):
    """What a training step was predicted to take, before the first one."""

    core: MemoryForecast
    """On each core."""


class MemorySampled(Event, frozen=True, kw_only=True, tag=True):
    """Device memory of the writer's cores."""

    droppable: ClassVar[bool] = True

    hbm: list[HbmReading] | None
    """A reading a core, or null where it cannot be read."""
    hbm_reason: str | None = None
    """Why it cannot be read."""


class CheckpointSaved(Event, frozen=True, kw_only=True, tag=True):
    """A checkpoint is on disk, whole."""

    path: str
    """File, relative to the run directory."""
    step: Int
    """Last step in it."""
    epoch: Int
    """Epoch of that step."""
    bytes: Int
    """Size of the file."""
    seconds: float
    """Wall time of the save, until it was durable."""
    reason: str
    """`epoch`, `request`, `stop` or `non-finite`."""
    best: bool = False
    """Whether `best.pt` is this one."""
    sha256: str | None = None
    """Digest of the file, which was read back before it got its name; null where the version that wrote this did not
    read it back."""


class CheckpointDropped(Event, frozen=True, kw_only=True, tag=True):
    """An older checkpoint was removed, since newer ones are kept in its place."""

    path: str
    """File that is no longer there, relative to the run directory."""


class NonFiniteFound(Event, frozen=True, kw_only=True, tag=True):
    """A loss, or the gradient, began to be NaN or infinite. The values themselves are in the records of the steps."""

    text: str
    """Where it began and how, in one sentence."""
    split: Split
    """Which data."""
    metric: str
    """`loss`, or `gradient norm` where every loss was finite still."""
    step: Int
    """Step in which it began; in an evaluation the newest step before it."""
    cores: list[Int]
    """Cores on which it began; none of a gradient, which is of all of them, and where they are not told apart."""
    value: float
    """What it was on the first of them."""
    others_step: Int | None
    """First step in which the loss of another core was not finite either; null where none was up to `until_step`."""
    until_step: Int
    """Newest step that was looked at."""
    gradient_norms: list[float]
    """Norm of the gradient in the steps up to this one, oldest first; empty where it is not kept."""
    policy: str
    """What is done about it: `continue`, `stop` or `save-stop`."""

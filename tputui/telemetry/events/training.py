"""Events of training: plan, steps, epochs, measurements and checkpoints."""

from __future__ import annotations

import math
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
from tputui.telemetry.secrecy import Exact, Name, Text

COMPUTE_METRIC = "compute_s"
"""Metric of `StepsRecorded`: seconds that each core computed before it waited for the others to exchange gradients."""


class TopologyDeclared(Event, frozen=True, kw_only=True, tag=True):
    """How the cores run the program."""

    strategy: Exact
    """`spmd`, `single` or `replica`."""
    device: Exact
    """Type of the devices, as named by the runtime: `CPU`, `TPU`; `unknown` if nothing names them."""
    device_reason: Text | None = None
    """Why the device is not a TPU, if it is not."""
    device_warning: Text | None = None
    """Why a TPU that seems to be present is not used; null if none seems to be present."""
    chip: Exact | None = None
    """Kind of its TPU chips, such as `TPU v3`; null on other devices, and if it is not known."""
    num_cores: Int
    """Number of cores over all hosts."""
    num_hosts: Int
    """Number of hosts."""
    host_index: Int
    """Index of the host of the writer."""
    cores: list[Int]
    """Global indices of the cores whose losses this writer records, in the order of the columns. A rank records no
    losses; in its journal these are the cores that it drives."""


class TrainingPlanned(Event, frozen=True, kw_only=True, tag=True):
    """The training plan, written before the first step."""

    task: Name
    """Name of the task."""
    num_epochs: Int
    """Number of epochs; 0 if a script named only its number of steps."""
    steps_per_epoch: Int
    """Steps per epoch, or of the whole training if `num_epochs` is 0, one batch each; the weights are updated every
    `optim.accumulate` steps."""
    valid_steps: Int
    """Validation batches per epoch."""
    first_step: Int
    """First step of this run: 1, or the step after the checkpoint."""
    batch_per_core: Int
    """Examples per core and step."""
    global_batch: Int
    """Examples per step over all cores."""
    train_examples: Int
    """Examples in the training split; 0 if not known."""
    valid_examples: Int
    """Examples in the validation split."""
    num_parameters: Int
    """Number of trainable parameters."""
    precision: Exact
    """`fp32` or `bf16`."""
    lr: float
    """Learning rate of the first step, after scaling."""
    lr_rule: Text
    """How it is derived from the configured learning rate, as text."""
    num_steps: Int = 0
    """Steps of the whole training, if that is not `num_epochs` times `steps_per_epoch`; else 0."""
    guess_loss: float | None = None
    """Loss of a guess by the frequencies of the labels, their entropy in nats; null if the task does not know it."""


class EpochStarted(Event, frozen=True, kw_only=True, tag=True):
    """An epoch began."""

    epoch: Int
    """Number of the epoch."""
    first_step: Int
    """First step of the epoch in this run."""
    printed_bytes: Int | None = None
    """Bytes of output before it; None if unknown."""


class EvaluationStarted(Event, frozen=True, kw_only=True, tag=True):
    """A script began to evaluate. What it prints until the next one, without a step, belongs to this one."""

    epoch: Int
    """Number of the epoch; 0 if the script has none."""
    step: Int
    """Newest step."""
    printed_bytes: Int | None = None
    """Bytes of output before it; None if unknown."""


class EvaluationEnded(Event, frozen=True, kw_only=True, tag=True):
    """A script goes on after an evaluation."""

    printed_bytes: Int | None = None
    """Bytes of output before it; None if unknown."""


class LossNamed(Event, frozen=True, kw_only=True, tag=True):
    """What a script calls the training loss, and where its values come from."""

    name: Name
    """Its name in the source or in the log; empty once the script reports it by itself."""
    source: Text
    """Where they were read: file and line, such as `train.py:81`, the path of a log, or `console`."""

    @property
    def text(self) -> str:
        """Both in one line."""
        return ", ".join(filter(None, (self.name, self.source)))


class StepsRecorded(Event, frozen=True, kw_only=True, tag=True):
    """Per-core values of every step since the last report.

    `mean`, `min` and `max` cover the finite values of the block, so that a run can be opened without decoding blocks.
    `block` contains all values exactly, including NaN and infinities.
    """

    droppable: ClassVar[bool] = True

    first: Int
    """First step of the block."""
    n: Int
    """Number of consecutive steps: rows of the block."""
    cores: Int
    """Number of cores: columns of the block."""
    mean: float
    """Mean of the finite values; NaN if none is finite."""
    min: float
    """Minimum of the finite values; NaN if none is finite."""
    max: float
    """Maximum of the finite values; NaN if none is finite."""
    bad: Int = 0
    """Number of NaN and infinite values."""
    metric: Name = "loss"
    """Name of the metric: `loss`, or `compute_s`, the seconds from the start of a step until the gradients of a core
    were on its host, before it waited for the other cores. Only `replica` on CPU devices records `compute_s`."""
    block: Exact
    """The encoded values, [steps][cores] float32."""


class ValuesLogged(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Values of one metric that a script logged itself, read from its log files or its output.

    A single value is in `value`, `step`, `value_t` and `epoch`; the fields after them are omitted. Several values are
    in the blocks, exactly and in the order of the log; the summary lets a run be opened without decoding them.
    """

    droppable: ClassVar[bool] = True

    name: Name
    """Name of the metric, without its split."""
    split: Split = "train"
    """Which data."""
    tag: Name
    """Name of the metric in the log: `eval_loss`."""
    source: Exact
    """Path of the log, or `console` for values read from printed text."""
    n: Int = 1
    """Number of values."""
    step: Int
    """Step of the newest value."""
    value: float
    """The newest value."""
    value_t: float = math.nan
    """Unix time at which the newest value was logged; NaN if unknown."""
    epoch: float = math.nan
    """Epoch of the newest value as it was logged, possibly fractional; NaN if unknown."""
    first_step: Int = 0
    """Lowest step."""
    last_step: Int = 0
    """Highest step."""
    mean: float = math.nan
    """Mean of the finite values; NaN if none is finite."""
    min: float = math.nan
    """Minimum of the finite values; NaN if none is finite."""
    max: float = math.nan
    """Maximum of the finite values; NaN if none is finite."""
    bad: Int = 0
    """Number of NaN and infinite values."""
    counted: bool = False
    """Whether the log has no steps, so that `step` counts its values."""
    x: Name = ""
    """The x axis that the author chose: the tag of another metric, `epoch`, or `time`; empty for steps."""
    values: Exact = ""
    """The encoded values, [n] float64."""
    steps: Exact = ""
    """The encoded steps, [n] int64."""
    times: Exact = ""
    """The encoded unix times, [n] float64; empty if all are unknown."""
    epochs: Exact = ""
    """The encoded epochs, [n] float64; empty if all are unknown."""


class StepsDropped(Event, frozen=True, kw_only=True, tag=True):
    """Values of steps were lost: the disk could not keep up, or training ended before they were read."""

    num_records: Int
    """Number of events dropped."""
    num_steps: Int
    """Number of steps whose values they contained."""
    why: Text = ""
    """Reason, in one sentence; empty if the disk could not keep up."""


class ProgressReported(Event, frozen=True, kw_only=True, tag=True):
    """Progress of training, once per report."""

    droppable: ClassVar[bool] = True

    epoch: Int
    """Current epoch."""
    epoch_step: Int
    """Finished steps of this epoch."""
    step: Int
    """Finished steps of the run."""
    step_s: float
    """Mean wall time of a step since the last report, without compiling."""
    examples_per_s: float
    """Training examples per second at that pace, over all cores."""
    lr: float
    """Current learning rate."""
    report_steps: Int
    """Steps between reports, adjusted so that there is about one report per second."""
    sections_s: dict[Name, float] = {}
    """Wall time by section since the epoch began, as in EpochEnded; empty if it is not measured."""
    timed_steps: Int = 0
    """Number of the newest steps whose wall times are in `steps_s`: all since the last report, or none."""
    steps_s: Exact = ""
    """Their wall times, encoded as a block of float32; NaN for a step that contains anything but training, such as an
    evaluation, a save or a report."""
    waited_s: float | None = None
    """Time since the last report that the loop waited for batches; null if it is not measured."""
    collections: list[Int] = []
    """Garbage collections of Python since the last report, by generation; empty if they are not measured."""
    collections_s: list[float] = []
    """Time in them."""


class HostPaceMeasured(Event, frozen=True, kw_only=True, tag=True):
    """How long the host of the writer took for a step, if the run has several: means over the steps since the last of
    these events. Parts that cannot be measured on the host, because the exchange is inside a program, are null."""

    droppable: ClassVar[bool] = True

    step: Int
    """Newest of these steps."""
    steps: Int
    """Number of these steps."""
    step_s: float
    """Wall time of a step."""
    data_s: float | None = None
    """Part of it that the host waited for batches."""
    compute_s: float | None = None
    """Part of it until the host was ready to exchange with the others, without `data_s`."""
    wait_s: float | None = None
    """Part of it that the host waited for other hosts."""

    @property
    def first(self) -> int:
        """Oldest of these steps."""
        return self.step - self.steps + 1


class MetersReported(Event, frozen=True, kw_only=True, tag=True):
    """AverageMeters, once per report."""

    droppable: ClassVar[bool] = True

    epoch: Int
    """Epoch that they cover."""
    step: Int
    """Newest step that they include."""
    split: Split
    """Which data."""
    meters: dict[Name, MeterReading]
    """Readings by name of the meter."""
    reduced: Exact
    """How the values were reduced over cores and steps, as text."""


class EpochEnded(Event, frozen=True, kw_only=True, tag=True):
    """An epoch was trained and evaluated."""

    epoch: Int
    """Number of the epoch."""
    step: Int
    """Its last step."""
    train: dict[Name, MeterReading]
    """Training meters of the epoch."""
    valid: dict[Name, MeterReading]
    """Validation meters after the epoch."""
    train_s: float
    """Wall time of training."""
    valid_s: float
    """Wall time of evaluation."""
    sections_s: dict[Name, float]
    """Wall time by section: data, trace, compile, execute, wait, report, evaluate, save, other. Sections do not
    overlap, and their sum is the time of the epoch."""
    lr: float
    """Learning rate of the epoch; NaN if unknown, which `show --json` prints as null."""
    best: bool
    """Whether the monitored metric is the best so far."""
    scores: dict[Name, float] = {}
    """Scores of the whole validation split that are not means over examples, such as `auc`."""
    monitor: Name = ""
    """The validation metric by which `best` was chosen; empty if it is the one of the configuration."""
    trace_s: dict[Name, float] = {}
    """Parts of `trace`: forward, loss, backward, optimizer. Host time, since the device runs them as one program."""
    num_epochs: Int = 1
    """Epochs that end here together, as they were too short to be told apart; `epoch` is the first of them."""

    @property
    def numbers(self) -> str:
        """Its number, or the first and the last one: `2-38`."""
        return f"{self.epoch}-{self.epoch + self.num_epochs - 1}" if self.num_epochs > 1 else str(self.epoch)

    @property
    def compile_s(self) -> float:
        """Seconds of compiling."""
        return self.sections_s.get("compile", 0.0)

    @property
    def steady_s(self) -> float:
        """Seconds of training and validation without compiling."""
        return max(self.train_s + self.valid_s - self.compile_s, 0.0)

    def figure(self, name: str) -> float | None:
        """A validation meter's mean, or else a score of the validation split, by name."""
        reading = self.valid.get(name)
        return reading.avg if reading is not None else self.scores.get(name)


class ExampleSkipped(Event, frozen=True, kw_only=True, tag=True):
    """An example is invalid and was left out; in training another one is used instead."""

    split: Split
    """Which data."""
    where: Text
    """File, row and column, as far as the task reports them."""
    why: Text
    """What is wrong with it."""
    skipped: Int
    """Number of examples left out so far."""
    limit: Int
    """Maximum number of examples to leave out; one more ends training."""


class PicturesKept(Event, frozen=True, kw_only=True, tag=True):
    """Pictures of a few predictions of a validation epoch, or of training examples before training, were saved."""

    epoch: Int
    """The epoch; 0 for training examples with their labels, drawn before the first step."""
    step: Int
    """Last step of the epoch."""
    pictures: list[PictureKept]
    """The pictures, grouped by example."""
    legend: Text = ""
    """Meaning of their colours, in one sentence; empty if the task gives none."""


class XlaMetricsRead(Event, frozen=True, kw_only=True, tag=True):
    """Counters of the XLA runtime; totals since the process started."""

    droppable: ClassVar[bool] = True

    compiles: Int
    """Programs compiled in the process."""
    compile_s: float
    """Time inside the compiler."""
    recompiles: Int
    """Programs compiled after warm-up: at a sync, inside a trace or between steps. Events without `steps` count only
    those at a sync."""
    executes: Int
    """Programs executed."""
    execute_s: float
    """Time that the runtime attributes to executions."""
    transfers_to_device: Int
    """Transfers from host to device."""
    transfers_from_device: Int
    """Transfers from device to host."""
    bytes_to_device: Int
    """Bytes transferred from host to device."""
    bytes_from_device: Int
    """Bytes transferred from device to host."""
    fallbacks: dict[Name, Int]
    """Operations that ran on the host CPU because they have no lowering, with their counts."""
    engine_reads: Int = 0
    """Transfers from device to host for reports, evaluations, saves and exchanges between processes."""
    scalar_reads: Int = 0
    """Scalars read from the device by the task's code (`.item()`, `float()`, `if tensor`), including evaluations."""
    steps: StepPrograms | None = None
    """The training steps after warm-up."""


class MemoryPredicted(Event, frozen=True, kw_only=True, tag=True):
    """Predicted memory of a training step, written before the first one."""

    core: MemoryForecast
    """Forecast for each core."""


class FlopsCounted(Event, frozen=True, kw_only=True, tag=True):
    """The floating-point operations of a training step, counted before the first one or stated by the script."""

    flops_per_step: float | None
    """Operations of a step over all cores: matrix multiplications, convolutions and attention, forward and backward,
    without those that are computed again for lack of memory; null if they cannot be counted."""
    reason: Text | None = None
    """Why they cannot be counted."""


class MemorySampled(Event, frozen=True, kw_only=True, tag=True):
    """Device memory of the writer's cores."""

    droppable: ClassVar[bool] = True

    hbm: list[HbmReading] | None
    """One reading per core, or null if not available."""
    hbm_reason: Text | None = None
    """Why it is not available."""


class CheckpointSaved(Event, frozen=True, kw_only=True, tag=True):
    """A checkpoint was saved completely."""

    path: Exact
    """Path of the file, relative to the run directory."""
    step: Int
    """Last step that it includes."""
    epoch: Int
    """Epoch of that step."""
    bytes: Int
    """Size of the file."""
    seconds: float
    """Wall time of the save, until the file was synced to disk."""
    reason: Text
    """`epoch`, `request`, `stop` or `non-finite`."""
    best: bool = False
    """Whether `best.pt` is this checkpoint."""
    sections_s: dict[Name, float] = {}
    """Wall time by section since the epoch began, including this save, as in EpochEnded; empty if not measured."""
    sha256: Exact | None = None
    """SHA-256 of the file as read back after writing; null in journals of older versions."""


class CheckpointDropped(Event, frozen=True, kw_only=True, tag=True):
    """An older checkpoint was removed because newer ones exist."""

    path: Exact
    """Path of the removed file, relative to the run directory."""


class NonFiniteFound(Event, frozen=True, kw_only=True, tag=True):
    """A loss or the gradient became NaN or infinite. The values are in the StepsRecorded events."""

    text: Text
    """Where and how it began, in one sentence."""
    split: Split
    """Which data."""
    metric: Name
    """`loss`, or `gradient norm` if every loss was still finite."""
    step: Int
    """Step in which it began; in an evaluation, the newest step before it."""
    cores: list[Int]
    """Cores on which it began; empty for a gradient, which all cores share, and if the cores are not known."""
    value: float
    """The value on the first of these cores."""
    others_step: Int | None
    """First step in which the loss of another core was not finite either; null if there is none up to `until_step`."""
    until_step: Int
    """Newest step that was checked."""
    gradient_norms: list[float]
    """Gradient norm in the steps up to this one, oldest first; empty if it is not recorded."""
    policy: Exact
    """The configured action: `continue`, `stop` or `save-stop`."""

"""Every fact a run can record.

One frozen type a fact, named by a past participle, units in the field names. This module is pure: it knows no
file, no clock and no process, so a viewer on a laptop reads a run without torch. `docs/journal-format.md` is
generated from the docstrings below.

Conventions: `t` is the unix time in seconds at which the fact was true. Steps and epochs count from 1. `core` is
the global index of a core over all hosts, from 0. A float may be NaN or infinite; the codec keeps it so.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

FORMAT_VERSION = 2
"""Version of the journal line format. A reader reads every version up to its own and says so about newer ones."""

INT_MAX = 2**63 - 1
"""Whole numbers beyond this, either way, are no fact: they cannot be made floats, nor even always be printed."""

Int = Annotated[int, msgspec.Meta(ge=-INT_MAX, le=INT_MAX)]
"""A whole number of at most 64 bits."""

Outcome = Literal["done", "stopped", "failed"]
"""How a run ended: every epoch trained; ended on request after saving or at once; ended by an error."""

Split = Literal["train", "valid"]
"""Which share of the data a figure was computed on."""

Phase = Literal[
    "starting",
    "data",
    "tracing",
    "compiling",
    "executing",
    "reporting",
    "evaluating",
    "saving",
    "ending",
]
"""What a worker process is doing: importing and building, waiting for a batch, building the lazy graph, inside the
XLA compiler, running or waiting for the device, fetching and writing a report, evaluating, writing a checkpoint,
closing down."""

RequestKind = Literal["checkpoint", "stop", "stop_after_epoch", "stop_now", "stacks"]
"""What a person may ask of a run: save now; finish the step, save, end; the same after the running epoch; end
without saving; tell the Python stacks of every process, which goes on meanwhile."""

FrameOwner = Literal["user", "library", "tputui"]
"""Whose code a call stands in: the user's own; a package's or Python's; this tool's."""

FailureKind = Literal["exception", "import", "refused", "unable", "memory", "non_finite", "aborted", "killed", "exited"]
"""How training broke: an exception; a module of the user's that does not import; a configuration or checkpoint that
cannot be used; a machine that cannot train; memory that ran out; a loss or gradient that is no finite number, where the
configuration says to end then; an end in native code, as by an assertion there; a signal from outside; an end without a
word."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="k"):
    """A fact. `k` on the wire is the type's name."""

    droppable: ClassVar[bool] = False
    """Whether the reporter may drop (and count) this fact when the disk cannot keep up."""

    t: float
    """Unix time in seconds at which the fact was true."""


class MeterReading(msgspec.Struct, frozen=True, kw_only=True):
    """What an AverageMeter shows, reduced over all cores and weighted by examples."""

    val: float
    """Mean over the examples of the newest step."""
    avg: float
    """Mean over all examples since the epoch began."""
    sum: float
    """Sum over all examples since the epoch began."""
    count: Int
    """Number of examples since the epoch began; padding is not counted."""


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True):
    """What the operating system says of one process of the run."""

    pid: Int
    """Process id on its host."""
    role: str
    """`worker` or `supervisor`."""
    rss_bytes: Int
    """Resident memory."""
    cpu_percent: float
    """CPU use since the previous sample; 100 is one host core."""


class HbmReading(msgspec.Struct, frozen=True, kw_only=True):
    """Device memory of one core."""

    core: Int
    """Global index of the core."""
    used_bytes: Int
    """Bytes in use."""
    limit_bytes: Int
    """Bytes there are."""
    peak_bytes: Int
    """Most bytes ever in use, or 0 where the device does not tell."""


class StepPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """What the training steps after warm-up have executed and read, totals since the process began."""

    steps: Int
    """Steps counted; 0 while warm-up lasts."""
    executes: Int
    """Programs that they executed."""
    expected_executes: Int
    """Programs that the strategy makes of so many steps; what is above that is extra work or waiting."""
    scalar_reads: Int
    """Single values read from the device in them by the task's code (`.item()`, `float()`, `if tensor`)."""


class ModuleMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What one module of the network keeps for the backward pass."""

    name: str
    """Its place in the network, and its type."""
    bytes: Int
    """Bytes on one core."""


class CodeFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A call on a stack."""

    file: str
    """File of the code."""
    line: Int
    """Line in it."""
    function: str
    """Name of the function."""
    owner: FrameOwner
    """Whose code it is."""


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """Where a thread is."""

    name: str
    """Its name."""
    frames: list[CodeFrame]
    """Its calls, the newest first; of a very deep stack the newest ones."""


class MemoryForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that a training step is predicted to take on one core."""

    total_bytes: Int
    """Everything below together. Working space of the compiler and fragmentation are not in it."""
    parameters_bytes: Int
    """Parameters and buffers."""
    gradients_bytes: Int
    """Their gradients."""
    optimizer_bytes: Int
    """State of the optimizer."""
    activations_bytes: Int
    """What is kept from the forward pass for the backward pass, as far as nothing is reused or recomputed."""
    inputs_bytes: Int
    """The batch in use and those that are kept ready."""
    telemetry_bytes: Int
    """Values of the steps that were not reported yet."""
    biggest: list[ModuleMemory]
    """The modules with most activations."""
    batch_per_core: Int
    """Examples a core takes each step."""
    precision: str
    """`fp32` or `bf16`."""
    rematerialised: bool
    """Whether blocks are computed again in the backward pass, instead of kept."""
    limit_bytes: Int | None
    """What a core has; null where it is not known."""
    limit: str
    """What that figure is, or why there is none."""


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


class PictureKept(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of a prediction, or of a training example, beside the run."""

    example: str
    """Which example it shows."""
    name: str
    """What of it: `input`, `mask`, ..."""
    path: str
    """PNG file, relative to the run directory."""


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


class UnknownEvent(Event, frozen=True, kw_only=True, tag=True):
    """A sound record of a kind that this version does not know, kept as it is."""

    kind: str
    """Its type's name."""
    fields: dict[str, Any]
    """Its fields."""


EVENT_TYPES: tuple[type[Event], ...] = (
    JournalOpened,
    RunStarted,
    WorkerStarted,
    WorkerExited,
    TopologyDeclared,
    TrainingPlanned,
    HeartbeatSent,
    EpochStarted,
    StepsRecorded,
    StepsDropped,
    ProgressReported,
    MetersReported,
    EpochEnded,
    ExampleSkipped,
    PicturesKept,
    XlaMetricsRead,
    MemoryPredicted,
    MemorySampled,
    HostSampled,
    LogWritten,
    WarningRaised,
    CheckpointSaved,
    CheckpointDropped,
    RequestSeen,
    RequestApplied,
    RequestRefused,
    FailureRaised,
    RankExited,
    FailureReported,
    StacksTaken,
    StallFound,
    NonFiniteFound,
    TrainingEnded,
    RunEnded,
)
"""Every type that stands on the wire, in the order of `docs/journal-format.md`."""

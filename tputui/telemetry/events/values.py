"""The base class of events, and the values that stand in their fields."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

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


class PictureKept(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of a prediction, or of a training example, beside the run."""

    example: str
    """Which example it shows."""
    name: str
    """What of it: `input`, `mask`, ..."""
    path: str
    """PNG file, relative to the run directory."""

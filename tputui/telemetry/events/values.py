"""The base class of events, the types of their fields, and run time.

Every event contains the unix time of its host. Run time orders events and measures durations, so it must not go back:
after the host's clock was set back, times continue from the newest one before.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import msgspec

from tputui.telemetry.secrecy import Exact, Name, Text

INT_MAX = 2**63 - 1
"""Integers beyond +-INT_MAX are invalid: they cannot always be converted to floats, or even printed."""

T_MAX = 253_402_300_799.0
"""The last second of the year 9999, in unix time: later ones cannot be shown as a date."""
JITTER_S = 5.0
"""Events may be out of order by this much: several threads emit them, each with its own time."""

Int = Annotated[int, msgspec.Meta(ge=-INT_MAX, le=INT_MAX)]
"""A whole number of at most 64 bits."""

Outcome = Literal["done", "stopped", "failed"]
"""How a run ended: all epochs trained; stopped on request, with or without a save; ended by an error."""

Split = Literal["train", "valid"]
"""The part of the data that a value was computed on."""

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
    "unknown",
]
"""What a training process is doing: importing modules and building the task; waiting for a batch; building the lazy
graph; compiling; running or waiting for the device; fetching and writing a report; evaluating; writing a checkpoint;
shutting down; running a command of the user that does not report its phase."""

RequestKind = Literal["checkpoint", "stop", "stop_after_epoch", "stop_now", "stacks", "trace"]
"""What a user may request: save now; finish the step, save and stop; the same after the running epoch; stop without
saving; collect the Python stacks of every process while training continues."""

FrameOwner = Literal["user", "library", "tputui"]
"""Whose code a call is in: the user's; that of a package or of Python; tputui's."""

FailureKind = Literal["exception", "import", "refused", "unable", "memory", "non_finite", "aborted", "killed", "exited"]
"""How training failed: an exception; a user module that cannot be imported; a configuration, arguments or a checkpoint
that cannot be used; a machine that cannot train; out of memory; a NaN or infinite loss or gradient, if the
configuration stops training then; an abort in native code, such as a failed assertion; a signal from outside; an exit
without a report."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", gc=False):
    """Base class of events. In a journal line, `k` is the name of the type."""

    droppable: ClassVar[bool] = False
    """Whether the reporter may drop (and count) events of this type when the disk cannot keep up."""

    t: float
    """Unix time of the event in seconds."""


class MeterReading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The values of an AverageMeter, reduced over all cores and weighted by examples."""

    val: float
    """Mean over the examples of the newest step."""
    avg: float
    """Mean over all examples since the epoch began."""
    sum: float
    """Sum over all examples since the epoch began."""
    count: Int
    """Number of examples since the epoch began; padding is not counted."""


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Memory and CPU use of one process of the run, from the operating system."""

    pid: Int
    """Process id on its host."""
    role: Exact
    """`supervisor`; for a process of the run `rank 3` if its environment names its rank, `of rank 3` if a process with
    the same rank started it, else `worker`."""
    rss_bytes: Int
    """Resident memory."""
    cpu_percent: float
    """CPU use since the previous sample; 100 is one host core."""


class HbmReading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Device memory of one core."""

    core: Int
    """Global index of the core."""
    used_bytes: Int
    """Bytes in use."""
    limit_bytes: Int
    """Total bytes."""
    peak_bytes: Int
    """Peak of the bytes in use; 0 if the device does not report it."""


class StepPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """What the training steps after warm-up executed and read; totals since the process started."""

    steps: Int
    """Steps counted; 0 while warm-up lasts."""
    executes: Int
    """Programs executed by these steps."""
    expected_executes: Int
    """Programs that the strategy needs for this many steps; more than that means extra work or waiting."""
    scalar_reads: Int
    """Scalars read from the device by the task's code in these steps (`.item()`, `float()`, `if tensor`)."""

    def plus(self, other: StepPrograms) -> StepPrograms:
        """The steps of both."""
        return StepPrograms(
            steps=self.steps + other.steps,
            executes=self.executes + other.executes,
            expected_executes=self.expected_executes + other.expected_executes,
            scalar_reads=self.scalar_reads + other.scalar_reads,
        )


class ModuleMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that one module of the network saves for the backward pass."""

    name: Name
    """Name of the module in the network, and its type."""
    bytes: Int
    """Bytes per core."""


class CodeFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call on a stack."""

    file: Exact
    """Path of the source file."""
    line: Int
    """Line number."""
    function: Exact
    """Name of the function."""
    owner: FrameOwner
    """Whose code it is."""
    code: Text = ""
    """The line of the file without its indentation, at most 200 characters, and comments `# tputui: ignore` on other
    lines of its statement; empty if it was not read."""


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of one thread."""

    name: Name
    """Name of the thread."""
    frames: list[CodeFrame]
    """Its calls, newest first; only the newest ones of a very deep stack."""


class MemoryForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that a training step is predicted to take on one core."""

    total_bytes: Int
    """Sum of the values below, without the compiler's working space and fragmentation."""
    parameters_bytes: Int
    """Parameters and buffers."""
    gradients_bytes: Int
    """Gradients of the parameters."""
    optimizer_bytes: Int
    """State of the optimizer."""
    activations_bytes: Int
    """Tensors saved by the forward pass for the backward pass, assuming that nothing is reused or recomputed."""
    inputs_bytes: Int
    """The current batch and the prefetched ones."""
    telemetry_bytes: Int
    """Values of steps that are not reported yet."""
    biggest: list[ModuleMemory]
    """The modules with the most activations."""
    batch_per_core: Int
    """Examples per core and step."""
    precision: Exact
    """`fp32` or `bf16`."""
    rematerialised: bool
    """Whether blocks are recomputed in the backward pass instead of being saved."""
    limit_bytes: Int | None
    """Memory of a core; null if unknown."""
    limit: Text
    """Where `limit_bytes` comes from, or why it is unknown."""


class PictureKept(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of a prediction or of a training example, saved in the run directory."""

    example: Name
    """The example that it shows."""
    name: Name
    """The part of the example: `input`, `mask`, ..."""
    path: Exact
    """PNG file, relative to the run directory."""


def is_time(t: float) -> bool:
    """Whether a number is a unix time that an event can have: finite, from 1970 to 9999."""
    return 0.0 <= t <= T_MAX


def run_time(t: float, newest_t: float | None, set_back_s: float) -> tuple[float, float]:
    """The run time of an event, and the seconds by which the clock was set back before it, in total.

    `t` is the time in the event, `newest_t` the newest run time of the events before it, None for the first event. The
    run time is NaN if `t` is invalid.
    """
    if not is_time(t):
        return math.nan, set_back_s
    moved = t + set_back_s
    if newest_t is None or moved >= newest_t - JITTER_S:
        return min(moved, T_MAX), set_back_s
    return newest_t, newest_t - t

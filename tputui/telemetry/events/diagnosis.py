"""Events of diagnosis: what a runtime (torch_xla, torch.compile, JAX) compiled, read and ran on the host, with the line
of the user's code; and what the TPU runtime reports of its cores.

Any adapter of a runtime can emit them. Null means not available. Counters detect trouble all the time and cost nothing;
`SyncObserved` and `FallbackObserved` come from hooks that are armed for a few steps once counters show trouble.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from tputui.telemetry.events.values import CodeFrame, Event, Int
from tputui.telemetry.secrecy import Exact, Name, NamedValue, Text

Runtime = Literal["torch_xla", "torch_compile", "torch_tpu", "jax"]
"""The runtime that was observed."""

CompileCause = Literal["sync", "step_end", "value_read", "call", "unknown"]
"""Why the runtime compiled: an explicit sync; the loader's sync at the end of a step; a value that was read before the
sync; a call of a compiled function with inputs that it was not compiled for; not known."""


Observation = Literal["compilations", "graph breaks", "compile limits", "reads", "fallbacks", "dispatches"]
"""What an observer of a runtime records."""


RESULT_OF = "the result of "
"""Begins the name of a change that follows from the values of an operation: `the result of nonzero`."""


OF_LOADER = "the loader's "
"""Begins the name of a change that is one of the batches of a data loader: `the loader's tokens`."""


class ChangedInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a program that differs from the one of an earlier compilation."""

    name: Name
    """Name of the argument, or its position, as far as the runtime reports it; `the result of nonzero` if the shape
    follows from values in the same step, `the loader's tokens` if it is that of a batch."""
    before: NamedValue
    """Type and shape as `f32[8,28]`, or the value of a constant; empty if it is new."""
    now: NamedValue
    """The same in this compilation; empty if it is gone."""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Type and shape of a tensor."""

    dtype: Exact
    """Short name of the type: `f32`, `bf16`, `s64`, ..."""
    shape: list[Int]
    """Its dimensions."""


class MatmulObserved(msgspec.Struct, frozen=True, kw_only=True):
    """Matrix multiplications of one shape in a program; convolutions are not included."""

    dtype: Exact
    """Short name of the type of the operands."""
    batch: Int
    """Product of the batch dimensions; 1 if there is none."""
    m: Int
    """Rows of the left operand."""
    k: Int
    """The dimension that is summed over."""
    n: Int
    """Columns of the right operand."""
    count: Int
    """Number of them in the program."""
    user_frame: CodeFrame | None = None
    """The user's call that created the first of them; null if not recorded."""


class ProgramMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that a program needs on one device, as its compiler states it."""

    arguments_bytes: Int
    """Its inputs, without those that are shared with results."""
    outputs_bytes: Int
    """Its results."""
    temporary_bytes: Int
    """Intermediate values that are alive at the same time, at most."""
    code_bytes: Int = 0
    """The program itself, where it is stored on the device."""

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.arguments_bytes + self.outputs_bytes + self.temporary_bytes + self.code_bytes


class RuntimeEvent(Event, frozen=True, kw_only=True):
    """What an observer of a runtime saw, or why it sees nothing."""

    runtime: Runtime
    """The runtime."""


class ProgramObserved(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """A compiled program was inspected: once per program, in warm-up."""

    program: Name
    """Its name, or the name of the function."""
    inputs: list[TensorSpec] | None
    """Its inputs per core, without parameters as far as these are known; only the largest 64."""
    matmuls: list[MatmulObserved] | None
    """Its matrix multiplications by shape; only the largest 64."""
    num_operations: Int | None
    """Number of operations in its graph."""
    flops: float | None
    """Floating-point operations of one execution on one core, as the compiler's cost analysis states."""
    user_frame: CodeFrame | None = None
    """The call in the user's code that compiled it first."""
    memory: ProgramMemory | None = None
    """Its memory; null if the runtime does not state it."""
    num_devices: Int = 1
    """Devices that execute it together."""
    replicated_bytes: Int = 0
    """Bytes of its inputs that each of several devices has a whole copy of."""
    is_replicated: bool = False
    """Whether that is all of them, so that all devices compute the same."""
    unused_donations: list[TensorSpec] = []
    """Inputs that it may overwrite but cannot, since no result has their type and shape; at most 64."""


class CompileObserved(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """The runtime compiled a program."""

    program: Name
    """Its name, or the name of the function; empty if unknown."""
    cause: CompileCause
    """Why it was compiled."""
    warm_up: bool
    """Whether the program was expected to compile: its first runs."""
    count: Int = 1
    """Number of compilations that this event stands for, if many of one kind are combined."""
    seconds: float | None
    """Time inside the compiler, in total."""
    step: Int | None
    """Step of this process in which it was compiled, counted from 1."""
    user_frame: CodeFrame | None
    """Innermost call in the user's code."""
    line_reason: Text | None = None
    """Why the line is not known; null if it is."""
    changed_inputs: list[ChangedInput] | None
    """Inputs that differ from the most similar earlier compilation of the program; null if they were not compared."""
    cached: bool | None = None
    """Whether the program came from a persistent cache."""


class GraphBroken(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """The compiler could not capture a function as one graph: the parts before and after a line are programs of their
    own, and the line runs as Python in every call."""

    program: Name
    """Name of the function; empty if unknown."""
    reason: Text
    """Why, in one line, as the runtime states it."""
    user_frame: CodeFrame | None
    """The line in the user's code."""
    line_reason: Text | None = None
    """Why the line is not known; null if it is."""
    count: Int = 1
    """Number of compilations that broke there."""
    in_library: bool = False
    """Whether the graph breaks in code of a library that the line calls, which the library may intend."""


class CompileLimitReached(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """A function was compiled so often that the runtime gave up: calls that need another program run as Python."""

    program: Name
    """Name of the function; empty if unknown."""
    limit: Int | None
    """Maximum number of its programs."""
    user_frame: CodeFrame | None
    """Innermost call in the user's code."""
    line_reason: Text | None = None
    """Why the line is not known; null if it is."""
    changed_inputs: list[ChangedInput] | None
    """Inputs that differ from the most similar program; null if they were not compared."""


class SyncObserved(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """Lines of the user's code read values from the device, so that the host waited for it. One event per line and
    window of observed steps."""

    operation: Text
    """How the value was read, as it is written in code: `.item()`, `float()`, `if tensor`, `print()`, `.cpu()`, ..."""
    user_frame: CodeFrame | None
    """Innermost call in the user's code."""
    line_reason: Text | None = None
    """Why the line is not known; null if it is."""
    count: Int
    """Number of reads in the window."""
    waited_s: float
    """Time inside these reads."""
    compiled: Int = 0
    """Number of these reads that made the runtime compile or run a part of the step by itself."""
    steps: Int
    """Steps in the window."""
    window_s: float
    """Wall time of the window."""
    rank: Int | None = None
    """Rank of the core whose thread was observed, under `torch_xla.launch`; null if the program has one core, or no
    ranks are known."""


class FallbackObserved(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """An operation ran on the host CPU, since the device has no implementation of it. One event per operator, line and
    window of observed steps."""

    operator: Name
    """Name of the operation, such as `aten::nonzero`."""
    user_frame: CodeFrame | None
    """Innermost call in the user's code."""
    line_reason: Text | None = None
    """Why the line is not known; null if it is."""
    count: Int
    """Number of times in the window."""
    transfers: Int | None
    """Transfers between device and host that they caused in the window."""
    seconds: float | None
    """Time inside the operation, including the transfers."""
    steps: Int
    """Steps in the window."""
    window_s: float
    """Wall time of the window."""
    rank: Int | None = None
    """Rank of the core whose thread was observed, under `torch_xla.launch`; null if the program has one core, or no
    ranks are known."""


class ObservationEnded(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """Hooks that find lines of code were armed for some steps, and are disarmed again."""

    why: Text
    """What the counters showed, in one sentence."""
    steps: Int
    """Steps in the window."""
    window_s: float
    """Wall time of the window."""
    steady_step_s: float | None
    """Wall time of a step without the hooks, from the steps before; the difference is the cost of arming."""
    device: Exact = ""
    """Type of the devices, such as `TPU` or `CPU`; empty if it is not known."""
    rank: Int | None = None
    """Rank of the core whose thread was observed, under `torch_xla.launch`; null if the program has one core, or no
    ranks are known."""


class ObservationFailed(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """The observer of a runtime could not attach to it, as with a version that it does not know: the absence of what it
    would have recorded means nothing."""

    package: Exact
    """The package that it belongs to: `torch`, `torch_xla`, `jax`."""
    version: Exact
    """The version of the package; empty if unknown."""
    missing: list[Observation]
    """What is not recorded."""
    reason: Text
    """Why, in one line."""


class EvaluationModeSeen(Event, frozen=True, kw_only=True, tag=True):
    """A loop over a loader evaluated with a module, without gradients, and the mode of the module was seen."""

    layers: Name
    """Kinds of its layers that were in training mode, such as `Dropout, BatchNorm1d`; empty if there were none."""
    user_frame: CodeFrame
    """The call of the module."""


DispatchKind = Literal["operation", "constant", "moved"]
"""An operation outside of a compiled function; an array of the host with the same values in most steps that was put on
the device; an array of the device that was moved to another device or sharding."""


class DispatchedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What a line of the user's code gave the device one by one, in some steps."""

    kind: DispatchKind
    """What it is."""
    names: list[Name]
    """Names of the operations, or of the call, the most frequent ones first."""
    count: Int
    """Number of calls in the steps."""
    num_bytes: Int
    """Bytes that they copied; 0 for operations."""
    samples: Int | None
    """How often the thread was seen at the line while it was sampled; null if a compiled function is called there,
    too."""
    user_frame: CodeFrame | None
    """Innermost call in the user's code."""


class DispatchesCounted(RuntimeEvent, frozen=True, kw_only=True, tag=True):
    """What some steps of a program gave the device outside of compiled functions was counted."""

    program: Name
    """Compiled function whose calls were taken for the steps; empty if none was called, and operations were."""
    steps: Int
    """Number of these steps."""
    window_s: float
    """Wall time in which the calls were slowed by counting."""
    samples: Int
    """How often the thread was sampled before, without being slowed."""
    lines: list[DispatchedCalls]
    """The lines with most calls; empty if there are none."""


class InputStagesMeasured(Event, frozen=True, kw_only=True, tag=True):
    """Time that the loader's threads spent on batches; totals since the process started. With several threads they sum
    to more than the wall time."""

    droppable: ClassVar[bool] = True

    stages_s: dict[Name, float]
    """Seconds by stage: `read`, `decode`, `augment`, `collate`, `copy`, as far as they are measured separately."""
    batches: Int
    """Batches made."""
    threads: Int
    """Threads that make batches."""
    waited_s: float
    """Time that the training loop waited for a batch."""


class CoreSample(msgspec.Struct, frozen=True, kw_only=True):
    """What the TPU runtime measured on one core. Null means not available."""

    core: Int
    """Number of the device on its host, as the runtime counts devices."""
    duty_cycle_percent: float | None = None
    """Share of the time in which the chip was computing, over the runtime's sampling period."""
    hbm_bandwidth_percent: float | None = None
    """Share of the memory bandwidth in use."""
    tensorcore_idle_s: float | None = None
    """Seconds since the TensorCore last computed."""
    queued_programs: Int | None = None
    """Programs that wait for the core."""
    throttle_score: Int | None = None
    """0: not throttled; 1 to 10: throttled by 10 to 100 %."""
    ici_link_health: Int | None = None
    """The worst of its links to other chips. 0: healthy; 1 to 5: transient problem; 6 to 9: persistent minor problem;
    10: not usable."""


class DeviceSampled(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor read the metric service of the TPU runtime, which runs inside the training processes. Memory is
    in MemorySampled. If nothing can be read, the event is written once per reason."""

    droppable: ClassVar[bool] = True

    cores: list[CoreSample] | None
    """The cores of this host, in order; null if nothing was read."""
    reason: Text | None = None
    """Why nothing was read, or which ports did not answer."""
    absent: list[Exact] = []
    """Fields of `CoreSample`, and `hbm`, that the runtime does not offer."""


class CoreState(msgspec.Struct, frozen=True, kw_only=True):
    """What a core was executing. Null means not available."""

    core: Int
    """Its index over all hosts, as the runtime counts cores."""
    pc: Int | None = None
    """Program counter."""
    run_id: Int | None = None
    """Id of the execution."""
    launch_id: Int | None = None
    """Number of the launch: cores of one program that differ have not reached the same point."""
    program: Exact = ""
    """Fingerprint of the program, in hexadecimal."""
    queued_programs: Int = 0
    """Programs that wait for the core."""
    hlo_location: Text = ""
    """Where in the program it is, as the compiler names it."""
    hlo: Text = ""
    """The operation there."""
    error: Text = ""
    """Error that the runtime reports for the core."""


class CoreStatesRead(Event, frozen=True, kw_only=True, tag=True):
    """The supervisor read from the TPU runtime what its cores execute: the answer to a request for stacks."""

    request: Exact
    """Id of the request."""
    cores: list[CoreState] | None
    """The cores, in order; null if nothing was read."""
    reason: Text | None = None
    """Why nothing was read, or which ports did not answer."""


class TraceWritten(Event, frozen=True, kw_only=True, tag=True):
    """A profile of some steps was written, for XProf or TensorBoard."""

    path: Exact
    """Its folder, relative to the run directory."""
    step: Int
    """The last step that it covers."""
    steps: Int
    """Steps that it covers."""
    seconds: float
    """Wall time of these steps."""
    bytes: Int
    """Size of its files."""

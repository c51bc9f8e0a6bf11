"""All events that a run can record, one frozen type per event, with units in the field names.

This package is pure: it uses no files, clocks or processes, so a viewer on a laptop reads a run without torch.
`docs/journal-format.md` is generated from the docstrings of the types.

Conventions: `t` is the unix time of the event in seconds. Steps and epochs count from 1. `core` is the global index of
a core over all hosts, from 0. A float may be NaN or infinite; the codec preserves it.
"""

from __future__ import annotations

from typing import Any

from tputui.telemetry.events.run import (
    FailureRaised,
    FailureReported,
    HeartbeatSent,
    HostSampled,
    JournalOpened,
    LogWritten,
    RankExited,
    RequestApplied,
    RequestHandlingDeclared,
    RequestRefused,
    RequestSeen,
    RunEnded,
    RunStarted,
    StacksTaken,
    StallFound,
    TrainingEnded,
    WarningRaised,
    WorkerExited,
    WorkerStarted,
)
from tputui.telemetry.events.training import (
    COMPUTE_METRIC,
    CheckpointDropped,
    CheckpointSaved,
    EpochEnded,
    EpochStarted,
    ExampleSkipped,
    MemoryPredicted,
    MemorySampled,
    MetersReported,
    NonFiniteFound,
    PicturesKept,
    ProgressReported,
    StepsDropped,
    StepsRecorded,
    TopologyDeclared,
    TrainingPlanned,
    ValuesLogged,
    XlaMetricsRead,
)
from tputui.telemetry.events.values import (
    INT_MAX,
    JITTER_S,
    T_MAX,
    CodeFrame,
    Event,
    FailureKind,
    FrameOwner,
    HbmReading,
    Int,
    MemoryForecast,
    MeterReading,
    ModuleMemory,
    Outcome,
    Phase,
    PictureKept,
    ProcessSample,
    RequestKind,
    Split,
    StepPrograms,
    ThreadStack,
    is_time,
    run_time,
)

FORMAT_VERSION = 2
"""Version of the journal line format. A reader reads every version up to its own, and warns about a newer one."""


class UnknownEvent(Event, frozen=True, kw_only=True, tag=True):
    """A valid event of a kind that this version does not know, stored unchanged."""

    kind: str
    """Name of its type."""
    fields: dict[str, Any]


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
    ValuesLogged,
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
    RequestHandlingDeclared,
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
"""Every type that is written to journals, in the order of `docs/journal-format.md`."""


__all__ = [
    "COMPUTE_METRIC",
    "EVENT_TYPES",
    "FORMAT_VERSION",
    "INT_MAX",
    "JITTER_S",
    "T_MAX",
    "CheckpointDropped",
    "CheckpointSaved",
    "CodeFrame",
    "EpochEnded",
    "EpochStarted",
    "Event",
    "ExampleSkipped",
    "FailureKind",
    "FailureRaised",
    "FailureReported",
    "FrameOwner",
    "HbmReading",
    "HeartbeatSent",
    "HostSampled",
    "Int",
    "JournalOpened",
    "LogWritten",
    "MemoryForecast",
    "MemoryPredicted",
    "MemorySampled",
    "MeterReading",
    "MetersReported",
    "ModuleMemory",
    "NonFiniteFound",
    "Outcome",
    "Phase",
    "PictureKept",
    "PicturesKept",
    "ProcessSample",
    "ProgressReported",
    "RankExited",
    "RequestApplied",
    "RequestHandlingDeclared",
    "RequestKind",
    "RequestRefused",
    "RequestSeen",
    "RunEnded",
    "RunStarted",
    "Split",
    "StacksTaken",
    "StallFound",
    "StepPrograms",
    "StepsDropped",
    "StepsRecorded",
    "ThreadStack",
    "TopologyDeclared",
    "TrainingEnded",
    "TrainingPlanned",
    "UnknownEvent",
    "ValuesLogged",
    "WarningRaised",
    "WorkerExited",
    "WorkerStarted",
    "XlaMetricsRead",
    "is_time",
    "run_time",
]

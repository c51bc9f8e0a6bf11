"""Journals of the processes of a run that do not report for all: each writes only what the first process cannot.

All processes train in step and emit the same events; the first one, in `worker-0`, reports epochs, meters, checkpoints
and the figures of the whole run.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from tputui.reporting import Reporter
from tputui.reporting import events as ev


class OwnReporter(Reporter):
    own: ClassVar[tuple[type[ev.Event], ...]] = (
        ev.JournalOpened,
        ev.TopologyDeclared,
        ev.HeartbeatSent,
        ev.FailureRaised,
        ev.StacksTaken,
        ev.TrainingEnded,
    )
    training = False
    """Whether training has begun. Warnings before that are the same in the first process, which emits them."""

    def emit(self, event: ev.Event) -> None:
        if isinstance(event, self.own) or (self.training and isinstance(event, ev.WarningRaised | ev.ExampleSkipped)):
            super().emit(event)


class RankReporter(OwnReporter):
    """The journal of a rank that does not lead its host."""

    ROLE: ClassVar[str] = "rank"

    def __init__(self, run_dir: Path, rank: int, *, host_index: int = 0, generation: int = 0) -> None:
        self._rank = rank
        self._recompiles = 0
        super().__init__(run_dir, self.ROLE, rank, host_index=host_index, generation=generation)

    def emit(self, event: ev.Event) -> None:
        """As `OwnReporter.emit`; of the cores it declares that of this rank. Counters only after another recompile:
        the others are those of the process that leads."""
        if isinstance(event, ev.XlaMetricsRead):
            if event.recompiles > self._recompiles:
                self._recompiles = event.recompiles
                Reporter.emit(self, event)
            return
        if isinstance(event, ev.TopologyDeclared):
            event = msgspec.structs.replace(event, cores=[self._rank])
        super().emit(event)

    def record_steps(self, first: int, values: object, cores: int, metric: str = "loss") -> None:
        """Does nothing: the process that leads the host records the steps of all its cores."""


class HostReporter(OwnReporter):
    """The journal of the process that leads a host other than the first: also the steps of its cores, its pace, its
    counters, and its receipts of requests."""

    own = (
        *OwnReporter.own,
        ev.TrainingPlanned,
        ev.StepsRecorded,
        ev.StepsDropped,
        ev.HostPaceMeasured,
        ev.MemorySampled,
        ev.XlaMetricsRead,
        ev.InputStagesMeasured,
        ev.TraceWritten,
        ev.RequestSeen,
        ev.RequestApplied,
        ev.RequestRefused,
        ev.RankExited,
    )

"""The state of the training processes for the supervisor: receipts, progress, and how training ended.

Reads their journals into the same reducer as every view. Draws no conclusions: `outcome` and the state package do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from tputui.state.evidence import OBSERVED
from tputui.state.liveness import Liveness, assess
from tputui.state.reducer import RunState
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import SUFFIX, Tail
from tputui.telemetry.process_end import FOLLOWING

KEPT: tuple[type[ev.Event], ...] = (
    ev.JournalOpened,
    ev.TopologyDeclared,
    ev.TrainingPlanned,
    ev.HeartbeatSent,
    ev.EpochStarted,
    ev.ProgressReported,
    ev.EpochEnded,
    ev.XlaMetricsRead,
    ev.CheckpointSaved,
    ev.FailureRaised,
    ev.RankExited,
    ev.StacksTaken,
    ev.TrainingEnded,
)
"""Events for the reducer: enough to know which process waits and what failed, without measurements."""


MEASURED: tuple[type[ev.Event], ...] = (ev.StepsRecorded, ev.ValuesLogged, ev.MetersReported)
"""Further events for the reducer if alerts are configured, whose conditions may name any metric. They cost 0.13 ms of
CPU time per report of 100 steps on eight cores, an evaluation 2.5 ms at most once a second, and the memory of the
series that a viewer has."""


class WorkerState:
    """Follows the journals of the training process and its ranks, or of every process of a command that reports."""

    def __init__(
        self,
        run_dir: Path,
        writer: str | None = None,
        *,
        measured: bool = False,
        diagnosed: bool = False,
    ) -> None:
        """`writer` is the name of the one process that reports for the command and its ranks; None if any process of
        the command may report. `measured`: reduce also the events of `MEASURED`; `diagnosed`: also those of
        diagnosis."""
        self._kept = KEPT + (MEASURED if measured else ()) + (OBSERVED if diagnosed else ())
        self._run_dir = run_dir
        self._writer = writer
        self._handled: dict[str, frozenset[ev.RequestKind]] = {}
        self._tails: dict[str, Tail] = {}
        self._num_taken: dict[str, int] = {}
        self._generations: dict[str, float] = {}
        """Generation of each process; that of a command has none of its own, and counts as the newest."""
        self._newest_generation = 0
        self.state = RunState()
        """Their events, reduced."""
        self.answered: set[str] = set()
        """Ids of the requests that were applied or refused."""
        self.refused: set[str] = set()
        """Ids of the requests that were refused."""
        self.newest_step = 0
        """Newest step that the worker reported."""
        self.failure: ev.FailureRaised | None = None
        self.training_ended: ev.TrainingEnded | None = None

    def read(self) -> None:
        """Reads everything that was written since the last call. Raises `OSError`."""
        for writer in self._new_writers():
            self._tails[writer] = Tail(self._run_dir / f"{writer}{SUFFIX}")
        for writer, tail in self._tails.items():
            offset, size = tail.position
            while offset < size:
                for line in tail.read():
                    self._take(writer, line.event)
                offset = tail.position.offset

    @property
    def handled_kinds(self) -> frozenset[ev.RequestKind]:
        """Kinds of requests that a process of the command acts on by itself, while it has not ended."""
        return frozenset().union(*self._handled.values())

    @property
    def restarted_t(self) -> float:
        """When the command last started its processes again by itself; minus infinity if it did not. The starts of a
        process that reports for all are reported by its launcher."""
        return self.state.generation_t if self._writer is None else -math.inf

    def liveness(self, now: float) -> Liveness:
        """Whether the run goes on, without the processes whose end was recorded. `now` is unix time."""
        gone = {exited.process for worker in self.state.workers for exited in worker.rank_exits}
        return assess(self.state, {name: name not in gone for name in self.state.processes}, now)

    def reporting_pids(self) -> set[int]:
        """Ids of the processes of this host that report steps."""
        heads = [worker.opened for worker in self.state.workers if worker.name.startswith("worker-")]
        return {head.pid for head in heads if head is not None and head.host_id == rundir.host_id()}

    def add(self, writer: str, event: ev.Event) -> None:
        """Adds an event of the supervisor itself."""
        self._reduce(writer, event)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()

    def _new_writers(self) -> list[str]:
        """Training processes whose journal has appeared. Those of ranks appear once the worker has started them."""
        return [
            writer
            for writer, path in rundir.journal_paths(self._run_dir)
            if self._follows(writer) and writer not in self._tails and path.name.endswith(SUFFIX)
        ]

    def _follows(self, writer: str) -> bool:
        return self._counts(writer) or writer.startswith("rank-" if self._writer else ("rank-", "observer-"))

    def _counts(self, writer: str) -> bool:
        """Whether what a process reports of requests, its failure and its end counts for the whole command."""
        return writer.startswith(("worker-", "logs-")) if self._writer is None else writer == self._writer

    def _reduce(self, writer: str, event: ev.Event) -> None:
        # Numbered here, because the events that are left out would look like a gap.
        number = self._num_taken[writer] = self._num_taken.get(writer, -1) + 1
        self.state.apply(writer, number, event)

    def _take(self, writer: str, event: ev.Event) -> None:
        if isinstance(event, self._kept):
            self._reduce(writer, event)
        if not self._counts(writer):
            return
        if isinstance(event, ev.JournalOpened):
            self._generations[writer] = event.generation if writer.startswith("worker-") else math.inf
            if event.generation > self._newest_generation:
                # The training processes were restarted: how those before ended does not count.
                self._newest_generation = event.generation
                self.failure = self.training_ended = None
        elif self._generations.get(writer, 0) < self._newest_generation:
            return
        if isinstance(event, ev.RequestHandlingDeclared):
            self._handled[writer] = frozenset(event.kinds)
        elif isinstance(event, ev.TrainingEnded):
            self._handled.pop(writer, None)
        if isinstance(event, ev.HeartbeatSent | ev.ProgressReported):
            self.newest_step = max(self.newest_step, event.step)
        elif isinstance(event, ev.RequestApplied | ev.RequestRefused):
            self.answered.add(event.request)
            if isinstance(event, ev.RequestRefused):
                self.refused.add(event.request)
        elif isinstance(event, ev.FailureRaised):
            if self.failure is None or self.failure.error in FOLLOWING:
                self.failure = event
        elif isinstance(event, ev.TrainingEnded):
            # The journal about the command of another host says nothing of how its processes ended.
            # Of several ranks the one that reported the steps knows most.
            before = self.training_ended
            is_better = before is not None and (event.outcome == "failed" or event.step >= before.step)
            if before is None or (before.outcome != "failed" and event.reason and is_better):
                self.training_ended = event
            self.newest_step = max(self.newest_step, event.step)


def journals_of(host_index: int) -> Callable[[str], bool]:
    """A predicate: whether the supervisor of a host caches the state of a writer's journal."""
    own_writers = {f"worker-{host_index}", f"supervisor-{host_index}", f"logs-{host_index}"}
    # Ranks, and the processes of a user's command, are numbered over all hosts; the first host caches their states.
    return lambda writer: writer in own_writers or (host_index == 0 and writer.startswith(("rank-", "worker-")))


def worker_journals(run_dir: Path) -> list[Path]:
    """The unsealed journals of workers in the run directory."""
    return [
        path
        for writer, path in rundir.journal_paths(run_dir)
        if writer.startswith("worker-") and path.name.endswith(SUFFIX)
    ]

"""The state of the training processes for the supervisor: receipts, progress, and how training ended.

Reads their journals into the same reducer as every view. Draws no conclusions: `outcome` and the state package do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tputui.state.reducer import RunState
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import SUFFIX, Tail

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


class WorkerState:
    """Follows the journals of the worker and its ranks."""

    def __init__(self, run_dir: Path, writer: str) -> None:
        self._run_dir = run_dir
        self._worker = writer
        self._tails: dict[str, Tail] = {}
        self._num_taken: dict[str, int] = {}
        self.state = RunState()
        """Their events, reduced."""
        self.answered: set[str] = set()
        """Ids of the requests that were applied or refused."""
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

    def add(self, writer: str, event: ev.Event) -> None:
        """Adds an event of the supervisor itself."""
        self._reduce(writer, event)

    def close(self) -> None:
        """Closes the journals."""
        for tail in self._tails.values():
            tail.close()

    def _new_writers(self) -> list[str]:
        """Training processes whose journal has appeared. Those of ranks appear once the worker has started them."""
        return [
            writer
            for writer, path in rundir.journal_paths(self._run_dir)
            if (writer == self._worker or writer.startswith("rank-"))
            and writer not in self._tails
            and path.name.endswith(SUFFIX)
        ]

    def _reduce(self, writer: str, event: ev.Event) -> None:
        # Numbered here, because the events that are left out would look like a gap.
        number = self._num_taken[writer] = self._num_taken.get(writer, -1) + 1
        self.state.apply(writer, number, event)

    def _take(self, writer: str, event: ev.Event) -> None:
        if isinstance(event, KEPT):
            self._reduce(writer, event)
        if writer != self._worker:
            return
        if isinstance(event, ev.HeartbeatSent | ev.ProgressReported):
            self.newest_step = max(self.newest_step, event.step)
        elif isinstance(event, ev.RequestApplied | ev.RequestRefused):
            self.answered.add(event.request)
        elif isinstance(event, ev.FailureRaised):
            self.failure = event
        elif isinstance(event, ev.TrainingEnded):
            self.training_ended = event
            self.newest_step = max(self.newest_step, event.step)


def journals_of(host_index: int) -> Callable[[str], bool]:
    """A predicate: whether the supervisor of a host caches the state of a writer's journal."""
    own = {f"worker-{host_index}", f"supervisor-{host_index}"}
    return lambda writer: writer in own or (host_index == 0 and writer.startswith("rank-"))


def worker_journals(run_dir: Path) -> list[Path]:
    """The unsealed journals of workers in the run directory."""
    return [
        path
        for writer, path in rundir.journal_paths(run_dir)
        if writer.startswith("worker-") and path.name.endswith(SUFFIX)
    ]

"""What the training processes said, as far as the supervisor needs it: answers, how they go, how training ended.

Reads their journals as every viewer does, into the reducer that every view is drawn from. Must not judge: `ending`
and the model do.
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
"""What the reducer is given here: enough to say who waits and what broke, and nothing of the figures."""


class WorkerState:
    """Follows the journals of the training processes that this supervisor's worker is made of."""

    def __init__(self, run_dir: Path, writer: str) -> None:
        self._run_dir = run_dir
        self._worker = writer
        self._tails: dict[str, Tail] = {}
        self._num_taken: dict[str, int] = {}
        self.state = RunState()
        """What the processes said, reduced."""
        self.answered: set[str] = set()
        """Ids of the requests that were applied or refused."""
        self.newest_step = 0
        """Newest step that the worker told of."""
        self.failure: ev.FailureRaised | None = None
        self.training_ended: ev.TrainingEnded | None = None

    def read(self) -> None:
        """Takes in everything that they wrote since the last call."""
        for writer in self._new_writers():
            self._tails[writer] = Tail(self._run_dir / f"{writer}{SUFFIX}")
        for writer, tail in self._tails.items():
            offset, size = tail.position
            while offset < size:
                for record in tail.read():
                    self._take(writer, record.event)
                offset = tail.position.offset

    def note(self, writer: str, event: ev.Event) -> None:
        """Takes a fact of the supervisor's own in."""
        self._reduce(writer, event)

    def close(self) -> None:
        """Closes the journals."""
        for tail in self._tails.values():
            tail.close()

    def _new_writers(self) -> list[str]:
        """Training processes whose journal is there by now. The ranks' come once the worker has started them."""
        return [
            writer
            for writer, path in rundir.journal_paths(self._run_dir)
            if (writer == self._worker or writer.startswith("rank-"))
            and writer not in self._tails
            and path.name.endswith(SUFFIX)
        ]

    def _reduce(self, writer: str, event: ev.Event) -> None:
        # Numbered here, since what is not kept would look like records that are missing.
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
    """Whether the journal of a writer is one that the supervisor of a host keeps places of."""
    own = {f"worker-{host_index}", f"supervisor-{host_index}"}
    return lambda writer: writer in own or (host_index == 0 and writer.startswith("rank-"))


def worker_journals(run_dir: Path) -> list[Path]:
    """The plain journals of workers in the run's directory."""
    return [
        path
        for writer, path in rundir.journal_paths(run_dir)
        if writer.startswith("worker-") and path.name.endswith(SUFFIX)
    ]

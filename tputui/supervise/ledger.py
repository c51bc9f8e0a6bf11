"""What the worker said of itself, as far as the supervisor needs it: requests answered, and how training ended.

Reads the worker's journal as every viewer does. Must not judge: `ending` does.
"""

from __future__ import annotations

from pathlib import Path

from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import SUFFIX, Tail


class Ledger:
    """Follows the journals of the workers that this supervisor started."""

    def __init__(self, run_dir: Path, writer: str) -> None:
        self._path = run_dir / f"{writer}{SUFFIX}"
        self._tail: Tail | None = None
        self.answered: set[str] = set()
        """Ids of the requests that were applied or refused."""
        self.newest_step = 0
        """Newest step that the worker told of."""
        self.failure: ev.FailureRaised | None = None
        self.training_ended: ev.TrainingEnded | None = None

    def read(self) -> None:
        """Takes in everything that the worker wrote since the last call."""
        if self._tail is None:
            if not self._path.exists():
                return
            self._tail = Tail(self._path)
        offset, size = self._tail.position
        while offset < size:
            for record in self._tail.read():
                self._take(record.event)
            offset = self._tail.position.offset

    def close(self) -> None:
        """Closes the journal."""
        if self._tail is not None:
            self._tail.close()

    def _take(self, event: ev.Event) -> None:
        if isinstance(event, ev.HeartbeatSent | ev.ProgressReported):
            self.newest_step = max(self.newest_step, event.step)
        elif isinstance(event, ev.RequestApplied | ev.RequestRefused):
            self.answered.add(event.request)
        elif isinstance(event, ev.FailureRaised):
            self.failure = event
        elif isinstance(event, ev.TrainingEnded):
            self.training_ended = event
            self.newest_step = max(self.newest_step, event.step)


def worker_journals(run_dir: Path) -> list[Path]:
    """The plain journals of workers in the run's directory."""
    return [
        path
        for writer, path in rundir.journal_paths(run_dir)
        if writer.startswith("worker-") and path.name.endswith(SUFFIX)
    ]

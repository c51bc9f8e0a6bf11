"""Where the training of a command was when it wrote something: its step and epoch, from the journal of its first rank.

Lines on the console and values in log files often have no step. What is said of an evaluation belongs to the newest one
that had begun, however long after it the line is read; anything else to the newest step that was known at the time.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import events as ev
from tputui.telemetry.journal import SUFFIX, Tail

POSITIONS_MAX = 4_096
_t = attrgetter("t")


class TrainingPosition(NamedTuple):
    """Where training was."""

    t: float
    """Unix time from which on it was there."""
    step: int
    epoch: int
    """0 if the script has no epochs."""
    epochs: range
    """Those that its newest training has by then, or at most one more that is not known yet."""


class TrainingPositions:
    """Follows the journal of the first rank that reports its steps."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._tail: Tail | None = None
        self._positions: list[TrainingPosition] = []
        self._evaluations: list[TrainingPosition] = []
        self._epoch = self._epochs_before = self._num_planned = 0
        self._ended: ev.EpochEnded | None = None
        """The newest epoch that has ended."""
        self.known_until = 0.0
        """Unix time of the newest event."""

    @property
    def is_known(self) -> bool:
        """Whether a process reports its steps."""
        return self._tail is not None

    def read(self) -> None:
        """Reads what was written since the last call."""
        if self._tail is None:
            journals = sorted(self._run_dir.glob(f"worker-*{SUFFIX}"), key=lambda path: (len(path.name), path.name))
            if not journals:
                return
            try:
                self._tail = Tail(journals[0])
            except OSError:
                return
        while numbered := self._tail.read():
            for one in numbered:
                self._take(one.event)

    def close(self) -> None:
        """Closes the journal. Nothing is read after that."""
        if self._tail is not None:
            self._tail.close()

    def at(self, t: float, *, evaluates: bool) -> TrainingPosition | None:
        """The position at a unix time; None if it is not known. `evaluates`: of the evaluation that had begun."""
        for positions in (self._evaluations, self._positions) if evaluates else (self._positions,):
            if place := bisect_right(positions, t, key=_t):
                return positions[place - 1]
        return None

    def _take(self, event: ev.Event) -> None:
        self.known_until = max(self.known_until, event.t)
        if isinstance(event, ev.TrainingPlanned):
            self._num_planned = event.num_epochs
            if self._ended is not None and event.first_step > self._ended.step:
                self._epochs_before = self._ended.epoch
        elif isinstance(event, ev.EpochEnded):
            self._ended = event
        elif isinstance(event, ev.EpochStarted):
            self._epoch = event.epoch
            self._add(self._positions, event.t, event.first_step - 1)
        elif isinstance(event, ev.ProgressReported):
            self._add(self._positions, event.t, event.step)
        elif isinstance(event, ev.EvaluationStarted):
            self._add(self._positions, event.t, event.step)
            self._add(self._evaluations, event.t, event.step)

    def _add(self, positions: list[TrainingPosition], t: float, step: int) -> None:
        is_last = self._epoch >= self._num_planned > 0
        if not positions or t >= positions[-1].t:
            epochs = range(self._epochs_before + 1, self._epoch + 2 - is_last)
            positions.append(TrainingPosition(t, step, self._epoch, epochs))
        if len(positions) > POSITIONS_MAX:
            del positions[: POSITIONS_MAX // 2]

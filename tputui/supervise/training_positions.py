"""Where the training of a command was when it wrote something: its step and epoch, from the journal of its first rank.

Lines on the console and values in log files often have no step. What is said of an evaluation belongs to the newest one
that had begun; anything else to the newest step that was known at the time. A line is read some time after it was
printed, so the events say how much had been printed before them.
"""

from __future__ import annotations

import contextlib
import math
from array import array
from bisect import bisect_left, bisect_right, insort
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from tputui.logs.console_progress import NOTHING_REPORTED, ReportedEpochs
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, logged_values
from tputui.telemetry.journal import SUFFIX, Tail

POSITIONS_MAX = 4_096
PLAN_WAIT_S = 5.0
"""Seconds after the first event within which a process reports its plan, if it has one. It needs some steps for it."""
_t, _num_bytes = itemgetter(0), attrgetter("num_bytes")


Position = tuple[int, int, range]
"""A step, an epoch, which is 0 if the script has no epochs, and the epochs that its newest training has by then, or at
most one more that is not known yet."""


class PrintedBefore(NamedTuple):
    """How much had been printed at an event."""

    t: float
    """Unix time of the event."""
    num_bytes: int
    evaluates: bool
    """Whether what is printed next is printed in an evaluation."""


TimedT = TypeVar("TimedT", tuple[float, Position], PrintedBefore)
"""Begins with a unix time."""


class TrainingPositions:
    """Follows the journal of the first rank that reports its steps."""

    def __init__(self, run_dir: Path, host_index: int) -> None:
        """`host_index`: the host whose output is read."""
        self._run_dir = run_dir
        self._host_index = host_index
        self._is_of_host = False
        """Whether the rank runs on that host."""
        self._printed: list[PrintedBefore] = []
        self._tail: Tail | None = None
        self._positions: list[tuple[float, Position]] = []
        """With the unix time from which on training was there."""
        self._evaluations: list[tuple[float, Position]] = []
        self._epoch = self._epochs_before = 0
        self.planned = NOTHING_REPORTED
        """Its epochs."""
        self._has_skipped = False
        """Whether epochs were too short to be told apart."""
        self._ended: ev.EpochEnded | None = None
        """The newest epoch that has ended."""
        self.reported: list[tuple[str, int, array[float]]] = []
        """The values that the newest `read` has read: a tag, a first step, and those of the first core from there."""
        self._opened_t = math.inf
        """Unix time of the first event."""
        self.known_until = 0.0
        """Unix time of the newest event."""

    @property
    def is_known(self) -> bool:
        """Whether a process reports its steps."""
        return self._tail is not None

    @property
    def awaits_plan(self) -> bool:
        """Whether the process may still report how many steps and epochs there are."""
        return self.planned == NOTHING_REPORTED and self.known_until - self._opened_t <= PLAN_WAIT_S

    def read(self) -> None:
        """Reads what was written since the last call."""
        self.reported.clear()
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

    def at(self, t: float, evaluates: bool) -> Position | None:
        """The position at a unix time; None if it is not known. `evaluates`: of the evaluation that had begun."""
        for positions in (self._evaluations, self._positions) if evaluates else (self._positions,):
            if place := bisect_right(positions, t, key=_t):
                return positions[place - 1][1]
        return None

    def printed_at(self, end: int | None, read_at: float) -> float:
        """When output was printed that ends at a byte of the log file and was read at `read_at`: before the next event
        that is known to have come later. Unix times."""
        place = bisect_left(self._printed, end, key=_num_bytes) if end is not None else len(self._printed)
        if place == len(self._printed):
            return read_at
        return min(read_at, math.nextafter(self._printed[place].t, 0.0))

    def evaluates_at(self, end: int | None) -> bool:
        """Whether output that ends at a byte of the log file was printed in an evaluation."""
        place = bisect_left(self._printed, end, key=_num_bytes) if end is not None else 0
        return place > 0 and self._printed[place - 1].evaluates

    def _take(self, event: ev.Event) -> None:
        self.known_until, self._opened_t = max(self.known_until, event.t), min(self._opened_t, event.t)
        if self._is_of_host and isinstance(event, ev.EpochStarted | ev.EvaluationStarted | ev.EvaluationEnded):
            evaluates = isinstance(event, ev.EvaluationStarted) and event.printed_bytes is not None
            _add(self._printed, PrintedBefore(event.t, event.printed_bytes or 0, evaluates))
        if isinstance(event, ev.JournalOpened):
            self._is_of_host = event.host_index == self._host_index
        elif isinstance(event, ev.TrainingPlanned):
            self.planned = ReportedEpochs(event.num_epochs, event.steps_per_epoch)
            if self._ended is not None and event.first_step > self._ended.step:
                self._epochs_before = self._ended.epoch
        elif isinstance(event, ev.EpochEnded):
            self._ended = event
            # Many print the mean instead of the losses.
            for split, meters in (("train", event.train), ("valid", event.valid)):
                means = ((f"{split}/{name}", meter.avg) for name, meter in meters.items())
                self.reported += ((tag, event.step, array("d", [mean])) for tag, mean in means)
        elif isinstance(event, ev.EpochStarted):
            self._has_skipped = self._has_skipped or event.epoch > self._epoch + 1 > 1
            self._epoch = event.epoch
            self._add_position(self._positions, event.t, event.first_step - 1)
        elif isinstance(event, ev.ProgressReported):
            self._add_position(self._positions, event.t, event.step)
        elif isinstance(event, ev.StepsRecorded) and event.metric == "loss":
            with contextlib.suppress(float_blocks.BlockError):
                losses = float_blocks.unpack(event.block, event.n * event.cores)
                self.reported.append(("loss", event.first, losses[:: event.cores]))
        elif isinstance(event, ev.ValuesLogged):
            # As a framework logged and printed them.
            with contextlib.suppress(float_blocks.BlockError):
                values, steps, *_ = logged_values.unpack(event)
                at = zip(steps, values, strict=True)
                self.reported += ((event.tag, step, array("d", [value])) for step, value in at)
        elif isinstance(event, ev.EvaluationStarted):
            self._add_position(self._positions, event.t, event.step)
            self._add_position(self._evaluations, event.t, event.step)

    def _add_position(self, positions: list[tuple[float, Position]], t: float, step: int) -> None:
        is_last = self._epoch >= self.planned.number > 0
        newest = self.planned.number if self._has_skipped else self._epoch + 1 - is_last
        epochs = range(self._epochs_before + 1, newest + 1)
        _add(positions, (t, (step, self._epoch, epochs)))


def _add(positions: list[TimedT], position: TimedT) -> None:
    insort(positions, position, key=_t)
    if len(positions) > POSITIONS_MAX:
        del positions[: POSITIONS_MAX // 2]

"""Where in a run a step lies: its epoch, its time, its examples, and back; and which event comes next from there.

Everything is told by step, and reports tell when; between two reports a step's time is told from the pace. What a
run did not tell is None. Pure: times are unix seconds, and how a clock spells them is not known here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tputui.model.snapshot import Mark, MarkKind, Segment, Snapshot, ThroughputPoint


class Position(NamedTuple):
    """A step, and what else is known of its place."""

    step: int
    epoch: float | None
    """Epochs that are through after it: 2.5 in the middle of the third."""
    t: float | None
    """Unix time in seconds at which it was done."""
    examples: int | None
    """Examples taken up to it, over all cores."""


class Course:
    """The way of a run through its steps, by one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        plan = snapshot.plan
        self._global_batch = plan.global_batch if plan else 0
        self._steps_per_epoch = plan.steps_per_epoch if plan else 0
        self._starts = snapshot.epoch_starts
        history = snapshot.throughput.history if snapshot.throughput else []
        self._steps, self._times = _knots(snapshot.loss, history, snapshot.started)

    def at(self, step: int) -> Position:
        """All that is known of a step's place."""
        return Position(step, self.epoch_of(step), self.time_of(step), self.examples_of(step))

    def time_of(self, step: float) -> float | None:
        """When a step was done; None where it was not reported."""
        if not self._steps or not self._steps[0] <= step <= self._steps[-1]:
            return None
        place = bisect_left(self._steps, step)
        return self._times[place] if self._steps[place] == step else _line(self._steps, self._times, place, step)

    def step_at(self, t: float) -> int:
        """The newest step that was done at a moment; 0 before the first."""
        if not self._times or t < self._times[0]:
            return 0
        place = bisect_right(self._times, t)
        if place == len(self._times):
            return int(self._steps[-1])
        return int(_line(self._times, self._steps, place, t) + 1e-6)

    def epoch_of(self, step: float) -> float | None:
        """Epochs that are through after a step; None where that was not told."""
        place = bisect_right(self._starts, step, key=lambda start: start.first_step) - 1
        if place < 0 or not self._steps_per_epoch:
            return step / self._steps_per_epoch if self._steps_per_epoch else None
        start = self._starts[place]
        whole = start.epoch * self._steps_per_epoch
        return start.epoch - min(max((whole - step) / self._steps_per_epoch, 0.0), 1.0)

    def step_of_epoch(self, epoch: float) -> int | None:
        """The step after which so many epochs are through; None where that was not told."""
        return round(epoch * self._steps_per_epoch) if self._steps_per_epoch else None

    def examples_of(self, step: int) -> int | None:
        """Examples that were taken up to a step; None where the batch was not told."""
        return step * self._global_batch if self._global_batch else None

    def step_of_examples(self, examples: float) -> int | None:
        """The step with which so many examples were taken."""
        return -int(-examples // self._global_batch) if self._global_batch else None


def next_mark(marks: Sequence[Mark], t: float, kinds: Collection[MarkKind] = ()) -> Mark | None:
    """The first mark after a moment; of `kinds`, where any are given. `marks` are in order of time."""
    after = marks[bisect_right(marks, t, key=lambda mark: mark.t) :]
    return next((mark for mark in after if not kinds or mark.kind in kinds), None)


def previous_mark(marks: Sequence[Mark], t: float, kinds: Collection[MarkKind] = ()) -> Mark | None:
    """The last mark before a moment; of `kinds`, where any are given. `marks` are in order of time."""
    before = marks[: bisect_left(marks, t, key=lambda mark: mark.t)]
    return next((mark for mark in reversed(before) if not kinds or mark.kind in kinds), None)


def next_mark_after_step(marks: Sequence[Mark], step: int, kinds: Collection[MarkKind] = ()) -> Mark | None:
    """The mark at the least step after a step, the earliest there."""
    found = (mark for mark in marks if mark.step > step and (not kinds or mark.kind in kinds))
    return min(found, key=lambda mark: mark.step, default=None)


def previous_mark_before_step(marks: Sequence[Mark], step: int, kinds: Collection[MarkKind] = ()) -> Mark | None:
    """The mark at the greatest step before a step, the earliest there."""
    found = (mark for mark in marks if mark.step < step and (not kinds or mark.kind in kinds))
    return max(found, key=lambda mark: mark.step, default=None)


def _knots(
    segments: Sequence[Segment], history: Sequence[ThroughputPoint], started: float | None
) -> tuple[list[float], list[float]]:
    """Steps and when they were done, both ascending: the beginning and the end of every report.

    A report's steps began when the one before was through, or as late as its pace says: what lies between is no step
    (a compile, an evaluation).
    """
    steps: list[float] = []
    times: list[float] = []
    place = 0
    while place < len(segments):
        first, t = segments[place].first_step, segments[place].t
        while place + 1 < len(segments) and segments[place + 1].t == t:
            place += 1
        last = segments[place].last_step
        place += 1
        before = times[-1] if times else started if started is not None else t
        if t < before or first > last or (steps and first <= steps[-1]):
            continue
        point = bisect_left(history, last, key=lambda one: one.step)
        took_s = (last - first + 1) * history[min(point, len(history) - 1)].step_s if history else t - before
        steps += [first - 1, last]
        times += [max(before, t - took_s), t]
    return steps, times


def _line(xs: Sequence[float], ys: Sequence[float], right: int, x: float) -> float:
    """The value at `x` between the points before `right` and at it."""
    left, length = right - 1, xs[right] - xs[right - 1]
    return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / length if length else ys[right]

"""Where training is, by the positions that it prints: steps, counted on over epochs, and the totals. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from tputui.logs.console_lines import PrintedPosition

_COUNTERS_MAX = 256
_EPOCHS_PLANNED = re.compile(
    r"\b(?:training|train) for (\d{1,7}) epochs|\bmax: (\d{1,7}) epochs|"
    r"\b(?:num|scheduled|max|total)[ _]epochs?\s?[:=]\s?(\d{1,7})\b",
    re.IGNORECASE,
)
_STEPS_PLANNED = re.compile(
    r"\b(?:max|total(?: optimization| training)?)[ _]steps\s?[:=]?\s?(\d{1,12}|\d{1,3}(?:,\d{3}){1,4})\b|"
    r"\btraining for (\d{1,12}|\d{1,3}(?:,\d{3}){1,4}) steps",
    re.IGNORECASE,
)


class _Counter(NamedTuple):
    """A count that begins again in every epoch."""

    newest: int
    before: int
    """Steps before the newest restart."""
    stride: int
    """Steps between two positions."""
    epoch: float | None


class ReportedEpochs(NamedTuple):
    """The epochs of a training that a process reports, as far as known."""

    number: int
    """0 if there are none."""
    steps_per_epoch: int


NOTHING_REPORTED = ReportedEpochs(0, 0)


class PrintedProgress:
    """The newest step and epoch, and how many are planned."""

    def __init__(self) -> None:
        self.step: int | None = None
        """The newest step of training."""
        self.epoch: float | None = None
        self.epochs: int | None = None
        """Epochs of the run."""
        self.reported = NOTHING_REPORTED
        """What the process itself reports of them."""
        self.has_repeats = False
        """Whether a position was printed twice, as by several ranks."""
        self._first_epoch: float | None = None
        self._length: int | None = None
        """Positions of an epoch, or of the run if there are no epochs."""
        self._steps: int | None = None
        """Steps of the run, as printed."""
        self._has_restarted = False
        """Whether positions have begun again."""
        self._is_of_parts = False
        """Whether they did so within an epoch that a process reports: they are those of its parts."""
        self._counters: dict[str, _Counter] = {}
        self._counts_before = False
        """Whether positions among examples are those before the batch of their line: the first one is 0."""

    @property
    def total_steps(self) -> int | None:
        """Steps of the run, if they are printed."""
        if self._steps is not None or self._length is None:
            return self._steps
        if self.epoch is None:
            return None if self._has_restarted else self._length
        return self.epochs * self._length if self.epochs else None

    @property
    def has_begun(self) -> bool:
        """Whether a step or an epoch was printed."""
        return self.step is not None or self.epoch is not None

    def plan(self, text: str) -> None:
        """Takes totals that a line of text has."""
        if "poch" in text and (epochs := _EPOCHS_PLANNED.search(text)) is not None:
            self.epochs = int(epochs[1] or epochs[2] or epochs[3])
        if "steps" in text and (steps := _STEPS_PLANNED.search(text)) is not None:
            self._steps = int((steps[1] or steps[2]).replace(",", ""))

    def plan_steps(self, steps: int) -> None:
        self._steps = steps

    def enter(self, epoch: float | None, epochs: int | None = None) -> None:
        if epoch is None:
            return
        self._first_epoch = epoch if self._first_epoch is None else self._first_epoch
        self.epoch = epoch
        self.epochs = self.epochs or epochs
        if self._first_epoch == 0 and self.epochs is not None and epoch >= self.epochs:
            self.epochs = int(epoch) + 1  # `2/2` of epochs that are counted from 0 is the third.

    def enter_evaluated(self, epoch: float | None, epochs: int | None) -> None:
        """Takes the epoch of an evaluation, which may be the number of those that have ended."""
        is_number_ended = self._first_epoch == 0 and self.step is not None and epoch == (self.epoch or 0.0) + 1
        if not is_number_ended:
            first = self._first_epoch
            self.enter(epoch, epochs)
            self._first_epoch = first  # Only training shows from what it counts.

    def advance(
        self, kind: str, position: PrintedPosition, *, is_mixed: bool = False, is_after_evaluation: bool = False
    ) -> int | None:
        """The step of a position in training. `is_mixed`: several ranks print without their rank;
        `is_after_evaluation`: a position that comes again is another one."""
        position = self._in_steps(position)
        self.enter(position.epoch, position.epochs)
        if position.step is not None:
            self._length = position.total or self._length
            self.step = self._counted(kind, position.step, position.total, is_mixed, is_after_evaluation)
        return None if self._is_of_parts else self.step

    def step_of(self, kind: str, position: PrintedPosition) -> int | None:
        """The step of training that a line of an evaluation names; the newest one if it names none."""
        step, total = (position := self._in_steps(position)).step, position.total
        if step is None or not position.is_global:
            return self.step
        if total is not None and (total != (self._length or total) or self._is_behind(kind, step)):
            return self.step
        before = self._counters[kind].before if kind in self._counters and total is not None else 0
        if total is not None and self.epoch is not None:
            return before + step
        self.step = max(step, self.step or 0)
        return step

    def _in_steps(self, position: PrintedPosition) -> PrintedPosition:
        """A position among the examples or batches of an epoch as one among its steps."""
        (number, steps), step, total, epoch = self.reported, position.step, position.total, position.epoch
        if steps == 1 and step is None and epoch is not None and epoch == int(epoch):
            # Each epoch is a step; those that are counted from 0, too.
            return position._replace(step=int(epoch) + (0 in (epoch, self._first_epoch)))
        if not (number and steps and total) or step is None or total in (steps, steps * number):
            return position
        if total == number and position.epoch is None and step:
            return position._replace(step=None, total=None, epoch=float(step), epochs=total)
        self._counts_before = self._counts_before or not step
        in_steps = step * steps // total + 1 if self._counts_before else -(-step * steps // total)
        return position._replace(step=min(in_steps, steps), total=steps)

    def _is_behind(self, kind: str, step: int) -> bool:
        return kind in self._counters and step < self._counters[kind].newest

    def _counted(self, kind: str, position: int, total: int | None, is_mixed: bool, is_after_evaluation: bool) -> int:
        newest, before, stride, epoch = self._counters.get(kind, _Counter(0, 0, 0, self.epoch))
        is_known = kind in self._counters
        has_moved_on = epoch is not None and self.epoch is not None and self.epoch > epoch
        self.has_repeats = self.has_repeats or (position == newest > 0 and epoch == self.epoch)
        if is_mixed and position < newest and not has_moved_on:
            return before + position  # Another rank is behind.
        comes_again = position == newest and (has_moved_on or (is_after_evaluation and self.epoch is None))
        begins = has_moved_on and total == self.reported.steps_per_epoch
        if is_known and (position < newest or comes_again or begins):
            self._has_restarted = True
            if total is None:
                before += newest + (stride or max(position, 1)) - position
            elif has_moved_on and self._first_epoch is not None and self.epoch is not None:
                # The last epoch of a number of steps is shorter.
                before = max(before + newest, round((self.epoch - self._first_epoch) * total))
            else:
                self._is_of_parts = self.epoch is not None and total == self.reported.steps_per_epoch
                before += max(newest, total)
        elif is_known and position > newest:
            stride = position - newest
        if is_known or len(self._counters) < _COUNTERS_MAX:
            self._counters[kind] = _Counter(position, before, stride, self.epoch)
        return before + position

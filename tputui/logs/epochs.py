"""Derives the epochs of a run from the epochs in its logs. Pure.

A log counts epochs from 0 or 1, or writes fractions: 0.25 of an epoch, as Hugging Face's Trainer does. Here they count
from 1. An epoch has ended when the next one begins, or at the end of the log: if its validation values were logged, or
without any if as many steps were as of the epoch before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from tputui.logs.tags import TagMeaning, choice_rank, is_falling, is_test, role_of
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import class_of, first_of

EPOCH_MAX = 1e9
_EPOCHS_MAX = 1 << 16
"""Epochs whose last step is remembered."""
_METRICS_MAX = 256
"""Metrics of an epoch, losses first."""


class _Place(NamedTuple):
    """A value of a log, by where it is in the training."""

    meaning: TagMeaning
    value: float
    step: int
    epoch: float
    now: float
    has_step: bool
    counting: _Counting


class _Means:
    """The values of an epoch of one split, by metric."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int, float]] = {}

    def add(self, name: str, value: float, *, is_newest: bool) -> None:
        """Adds a value; with `is_newest` it replaces those before."""
        total, number, _ = self._sums.get(name, (0.0, 0, 0.0)) if not is_newest else (0.0, 0, 0.0)
        self._sums[name] = (total + value, number + 1, value)

    def value(self, name: str | None) -> float:
        """The newest value of a metric; NaN if there is none."""
        return self._sums[name][2] if name in self._sums else math.nan

    def readings(self, split: ev.Split) -> dict[str, ev.MeterReading]:
        names = first_of(list(self._sums), _METRICS_MAX, lambda name: class_of(name, split))
        return {
            name: ev.MeterReading(val=newest, avg=total / number, sum=total, count=number)
            for name, (total, number, newest) in ((name, self._sums[name]) for name in names)
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __bool__(self) -> bool:
        return bool(self._sums)


class _Counting:
    """How a log counts its epochs."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.is_fractional = False
        self.newest = math.nan
        self.first: list[_Place] = []
        """Its first values, if it does not begin with epoch 0, until two steps show how it counts."""

    def number_of(self, epoch: float) -> int:
        """The epoch, counted from 1."""
        return max(1, math.ceil(epoch)) if self.is_fractional else int(epoch) + (self.offset or 0)


class EpochTracker:
    """The current epoch, and the values of it."""

    def __init__(self) -> None:
        self.number = 0
        """The current epoch; 0 before the first."""
        self.first_step = 1
        """Its first step, as far as known."""
        self._last_step = 0
        self._steps_before: int | None = None
        """Steps of the epoch before; None if there is none, or if it had validation values."""
        self._counting: dict[str, _Counting] = {}
        """By log."""
        self._train, self._valid = _Means(), _Means()
        self._lr_name, self._lr = "", math.nan
        """The learning rate that was logged first, and its newest value."""
        self._before: dict[str, float] = {}
        """Validation values of epoch 0 and step 0, until training shows where epochs begin."""
        self._ahead: list[_Place] = []
        """Values of a test in an epoch that no training has begun."""
        self._has_trained = False
        self.chosen = ""
        """The validation metric by which the run keeps its best epoch; empty if not known."""
        self._monitor: str | None = None
        self._best = math.nan
        self._best_before: tuple[str | None, float] = None, math.nan
        """Of the epochs before the current one."""
        self._has_new = False
        """Whether the current epoch has validation values that are in no event."""
        self._is_reported = False
        """Whether an event has all values of the current epoch."""
        self._ends: dict[int, int] = {}
        self._events: list[ev.Event] = []

    def add(
        self,
        meaning: TagMeaning,
        value: float,
        step: int,
        epoch: float,
        now: float,
        *,
        has_step: bool = True,
        source: str = "",
    ) -> None:
        """Adds a value in the order of its log; `epoch` as logged, `has_step`: `step` is, too. `now` is unix time."""
        if not 0 <= epoch <= EPOCH_MAX:
            return
        counting = self._counting.get(source)
        if counting is None:
            counting = self._counting[source] = _Counting()
        place = _Place(meaning, value, step, epoch, now, has_step, counting)
        if counting.offset is None and (counting.first or (has_step and epoch >= 1 and epoch == int(epoch))):
            counting.first.append(place)
            steps = {one.step for one in counting.first if one.has_step and one.meaning.split == "train"}
            if len(steps) > 1 or len(counting.first) > _METRICS_MAX:
                self._settle(counting)
        else:
            self._add(place)

    def end_of(self, source: str, epoch: float) -> int | None:
        """The newest step of an epoch of a log; None if none has it yet."""
        counting = self._counting.get(source, _Counting())
        offset = counting.offset if counting.offset is not None else int(epoch == 0)
        is_whole = not counting.is_fractional and epoch == int(epoch)
        return self._ends.get(int(epoch) + offset if is_whole else counting.number_of(epoch))

    def events(self, now: float, lr: float, *, final: bool = False, running: int = 0) -> list[ev.Event]:
        """The epochs that began or ended since the last call. `lr`: the newest learning rate, for epochs of logs that
        have none; `final`: the log has ended; `running`: the epoch that a training reports, so that those before have
        ended."""
        for counting in self._counting.values():
            self._settle(counting)
        if self._has_new and self.number < running:
            self._report_epoch(now)
        if final and self.number and (self._valid or self._has_all_steps):
            self._end(now)
        events, self._events = self._events, []
        return [_with_lr(event, lr) for event in events]

    @property
    def _has_all_steps(self) -> bool:
        """Whether as many steps of the current epoch were logged as of the one before."""
        return self._steps_before is not None and self._last_step - self.first_step + 1 >= self._steps_before

    def _settle(self, counting: _Counting) -> None:
        """Adds the first values of a log, once it is known how it counts its epochs.

        A log whose positions are 49, 99, ... counts steps from 0, so its epochs, too.
        """
        if not counting.first:
            return
        steps = sorted({one.step for one in counting.first if one.has_step and one.meaning.split == "train"})[:2]
        stride = steps[1] - steps[0] if len(steps) > 1 else 0
        if stride > 1 and steps[0] >= 0 and (steps[0] + 1) % stride == 0:
            counting.offset = 1
        first, counting.first = counting.first, []
        for place in first:
            self._add(place)

    def _add(self, place: _Place) -> None:
        meaning, value, step, epoch, now, has_step, counting = place
        if epoch == 0 and has_step and step <= 0 and meaning.split == "valid" and counting.offset is None:
            # An evaluation before training does not show that epochs are counted from 0.
            self._before[meaning.label] = value
            return
        is_ahead = meaning.split == "valid" and is_test(meaning.name)
        if is_ahead and self._has_trained and counting.number_of(epoch) > self.number:
            # `trainer.test()` of Lightning logs the epoch after the last one.
            self._ahead.append(place)
            return
        self._has_trained = self._has_trained or meaning.split == "train"
        if epoch != counting.newest:
            if counting.offset is None and epoch == 0:
                for name, before in self._before.items():
                    self._valid.add(name, before, is_newest=True)
            counting.newest = epoch
            self._enter(counting, epoch, step, now)
        if counting.number_of(epoch) == self.number:
            self._last_step, self._is_reported = max(self._last_step, step), False
            if len(self._ends) < _EPOCHS_MAX:
                self._ends[self.number] = self._last_step
            self._take(meaning, value)

    def _take(self, meaning: TagMeaning, value: float) -> None:
        if meaning.split == "valid":
            self._valid.add(meaning.label, value, is_newest=True)
            self._has_new = True
        elif (role := role_of(meaning.name)) == "lr" and self._lr_name in ("", meaning.name):
            self._lr_name, self._lr = meaning.name, value
        elif role == "metric":
            self._train.add(meaning.label, value, is_newest=False)

    def _enter(self, counting: _Counting, epoch: float, step: int, now: float) -> None:
        if epoch != int(epoch):
            counting.is_fractional = True
        if counting.offset is None:
            counting.offset = 1 if epoch == 0 else 0
        number = counting.number_of(epoch)
        if number <= self.number:
            return
        if self.number:
            self._end(now)
        self.first_step = self._last_step + 1 if self._last_step else min(step, 1)
        self.number, self._last_step, self._is_reported = number, step, False
        self._events.append(ev.EpochStarted(t=now, epoch=number, first_step=self.first_step))
        ahead, self._ahead = self._ahead, []
        for place in ahead:
            if place.counting.number_of(place.epoch) == number:
                self._take(place.meaning, place.value)

    def _end(self, now: float) -> None:
        if not self._is_reported:
            self._report_epoch(now)
        self._steps_before = None if self._valid else self._last_step - self.first_step + 1
        self._train, self._valid = _Means(), _Means()
        self._best_before = self._monitor, self._best

    def _report_epoch(self, now: float) -> None:
        """Tells the values of the current epoch, in place of what was told of it before."""
        self._has_new, self._is_reported = False, True
        self._monitor, self._best = self._best_before
        self._events.append(
            ev.EpochEnded(
                t=now,
                epoch=self.number,
                step=self._last_step,
                train=self._train.readings("train"),
                valid=self._valid.readings("valid"),
                train_s=math.nan,
                valid_s=math.nan,
                sections_s={},
                lr=self._lr,
                best=self._is_best(self._valid),
                monitor=self._monitor or "",
            )
        )

    def _is_best(self, valid: _Means) -> bool:
        """Whether an epoch is the best so far, by the metric that tells most of those that were logged."""
        ranked = [(rank, name) for name in valid if (rank := choice_rank(name)) is not None]
        if self.chosen in valid and self._monitor != self.chosen:
            self._monitor, self._best = self.chosen, math.nan
        elif ranked and (not self.chosen or self._monitor != self.chosen):
            rank, name = min(ranked, key=lambda one: (one[0], len(one[1])))
            if self._monitor is None or rank < (choice_rank(self._monitor) or 0):
                self._monitor, self._best = name, math.nan
        value = valid.value(self._monitor)
        is_better = value < self._best if self._monitor and is_falling(self._monitor) else value > self._best
        is_best = math.isfinite(value) and (is_better or math.isnan(self._best))
        self._best = value if is_best else self._best
        return is_best


def _with_lr(event: ev.Event, lr: float) -> ev.Event:
    if isinstance(event, ev.EpochEnded) and math.isnan(event.lr):
        return msgspec.structs.replace(event, lr=lr)
    return event

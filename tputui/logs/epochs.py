"""Derives the epochs of a run from the epochs in its logs. Pure.

A log counts epochs from 0 or 1, or writes fractions: 0.25 of an epoch, as Hugging Face's Trainer does. Here they count
from 1. An epoch has ended when the next one begins, or at the end of the log: if its validation values were logged, or
without any if as many steps were as of the epoch before.
"""

from __future__ import annotations

import math

import msgspec

from tputui.logs.tags import TagMeaning
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import LOSS

EPOCH_MAX = 1e9


class EpochTracker:
    """The current epoch, and the validation values of it."""

    def __init__(self) -> None:
        self.number = 0
        """The current epoch; 0 before the first."""
        self.first_step = 1
        """Its first step, as far as known."""
        self._last_step = 0
        self._steps_before: int | None = None
        """Steps of the epoch before; None if there is none, or if it had validation values."""
        self._newest = math.nan
        self._offset: int | None = None
        self._is_fractional = False
        self._valid: dict[str, float] = {}
        self._before: dict[str, float] = {}
        """Validation values of epoch 0 and step 0, until training shows where epochs begin."""
        self._best = math.inf
        self._events: list[ev.Event] = []

    def add(
        self, meaning: TagMeaning, value: float, step: int, epoch: float, now: float, *, has_step: bool = True
    ) -> None:
        """Adds a value in the order of the log; `epoch` as logged, `has_step`: `step` is, too. `now` is unix time."""
        if not 0 <= epoch <= EPOCH_MAX:
            return
        if epoch == 0 and has_step and step <= 0 and meaning.split == "valid" and self._offset is None:
            # An evaluation before training does not show that epochs are counted from 0.
            self._before[meaning.label] = value
            return
        if epoch != self._newest:
            if self._offset is None and epoch == 0:
                self._valid |= self._before
            self._newest = epoch
            self._enter(epoch, step, now)
        if self._number_of(epoch) == self.number:
            self._last_step = max(self._last_step, step)
            if meaning.split == "valid":
                self._valid[meaning.label] = value

    def events(self, now: float, lr: float, *, final: bool = False) -> list[ev.Event]:
        """The epochs that began or ended since the last call. `final`: the log has ended."""
        if final and self.number and (self._valid or self._has_all_steps):
            self._end(now)
        events, self._events = self._events, []
        return [_with_lr(event, lr) for event in events]

    @property
    def _has_all_steps(self) -> bool:
        """Whether as many steps of the current epoch were logged as of the one before."""
        return self._steps_before is not None and self._last_step - self.first_step + 1 >= self._steps_before

    def _enter(self, epoch: float, step: int, now: float) -> None:
        if epoch != int(epoch):
            self._is_fractional = True
        if self._offset is None:
            self._offset = 1 if epoch == 0 else 0
        number = self._number_of(epoch)
        if number <= self.number:
            return
        if self.number:
            self._end(now)
        self.first_step = self._last_step + 1 if self._last_step else min(step, 1)
        self.number, self._last_step = number, step
        self._events.append(ev.EpochStarted(t=now, epoch=number, first_step=self.first_step))

    def _number_of(self, epoch: float) -> int:
        return max(1, math.ceil(epoch)) if self._is_fractional else int(epoch) + (self._offset or 0)

    def _end(self, now: float) -> None:
        valid, self._valid = self._valid, {}
        self._steps_before = None if valid else self._last_step - self.first_step + 1
        loss = valid.get(LOSS, math.nan)
        is_best = loss < self._best
        self._best = min(self._best, loss) if is_best else self._best
        self._events.append(
            ev.EpochEnded(
                t=now,
                epoch=self.number,
                step=self._last_step,
                train={},
                valid={},
                train_s=math.nan,
                valid_s=math.nan,
                sections_s={},
                lr=math.nan,
                best=is_best,
                scores=valid,
            )
        )


def _with_lr(event: ev.Event, lr: float) -> ev.Event:
    if isinstance(event, ev.EpochEnded):
        return msgspec.structs.replace(event, lr=lr)
    return event

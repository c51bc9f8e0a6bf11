"""`BestEpoch`: the epoch with the best value of `checkpoint.monitor`, by the keys that views read too."""

from __future__ import annotations

import math


class BestEpoch:
    """The best epoch so far; with a configuration of the engine, of those whose weights were saved."""

    def __init__(self, monitor: str, mode: str) -> None:
        """`monitor` names a metric of the validation split, `mode` is `min` or `max`."""
        self.monitor = monitor
        self.value: float | None = None
        self.epoch = 0
        """0 if there is none."""
        self._sign = -1 if mode == "max" else 1
        self._previous: tuple[float | None, int] = (None, 0)

    def restore(self, value: float | None, epoch: int) -> None:
        """Continues with the best epoch of an earlier run."""
        self.value, self.epoch = value, epoch

    def update(self, value: float, epoch: int) -> bool:
        """Takes the epoch if its value is the best so far, which NaN never is, and returns whether it is.

        To be called before a save that contains the best value.
        """
        self._previous = self.value, self.epoch
        if math.isnan(value) or (self.value is not None and self._sign * value >= self._sign * self.value):
            return False
        self.value, self.epoch = value, epoch
        return True

    def revert(self) -> None:
        """Undoes the last update: the weights of that epoch were not saved."""
        self.value, self.epoch = self._previous

    @property
    def suffix(self) -> str:
        """`; best validation loss: 0.194 (epoch 3)`, to follow another sentence; empty if there is no best epoch."""
        return "" if self.value is None else f"; best validation {self.monitor}: {self.value:.6g} (epoch {self.epoch})"

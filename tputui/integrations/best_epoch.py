"""The best epoch of a run that a script reports: by validation loss, or as `[checkpoint]` of its configuration says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tputui.telemetry import events as ev


class BestEpoch:
    """Chooses the best epoch, by the keys that views read too: `checkpoint.monitor` and `checkpoint.mode`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: the configuration in the manifest of the run."""
        table = config.get("checkpoint")
        table = table if isinstance(table, Mapping) else {}
        self._monitor = str(table.get("monitor", "loss"))
        self._sign = -1.0 if table.get("mode") == "max" else 1.0
        self._value = math.inf
        """Best value so far, times the sign."""
        self._epoch = 0

    def update(self, valid: Mapping[str, ev.MeterReading], epoch: int) -> bool:
        """Takes the results of an epoch; returns whether it is the best so far, which NaN never is."""
        reading = valid.get(self._monitor)
        if reading is None or not self._sign * reading.avg < self._value:
            return False
        self._value, self._epoch = self._sign * reading.avg, epoch
        return True

    @property
    def suffix(self) -> str:
        """`; best validation loss: 0.194 (epoch 3)`, to follow another sentence; empty if there is no best epoch."""
        if not self._epoch:
            return ""
        return f"; best validation {self._monitor}: {self._sign * self._value:.6g} (epoch {self._epoch})"

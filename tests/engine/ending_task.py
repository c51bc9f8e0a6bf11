"""A task that raises, aborts in native code, exits or hangs when it fetches a certain example."""

from __future__ import annotations

import os
import threading
from typing import Any, ClassVar

from engine.task import Options, Splits
from tests.engine.curve_task import NUM_TRAIN, NUM_VALID, Curve, CurveData, CurveTask


class EndingData(CurveData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    how: str = "raise"
    """`raise`, `abort`, `hang`, `exit` or `unprintable`, at the training example `break_at`."""


class Unprintable(BaseException):
    """An error that cannot be printed, and that no `except Exception` catches."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class EndingCurve(Curve):
    """Points of a curve, one of which ends the process."""

    def __init__(self, split: str, first: int, size: int, data: EndingData) -> None:
        super().__init__(split, first, size, CurveData())
        self._at = data.break_at if split == "train" else -1
        self._how = data.how

    def fetch(self, indices: Any) -> dict[str, Any]:
        """The points; ends the process at the marked one."""
        if self._at in indices and len(indices) > 1:
            self._end()
        return super().fetch(indices)

    def _end(self) -> None:
        if self._how == "abort":
            os.abort()
        if self._how == "hang":
            threading.Event().wait()
        if self._how == "exit":
            os._exit(4)
        if self._how == "unprintable":
            raise Unprintable
        raise ValueError("shard 7 is cut short")


class EndingTask(CurveTask):
    """Fits a curve until the marked example."""

    data_options: ClassVar[type[Options]] = EndingData

    def load(self, data: CurveData, seed: int) -> Splits:
        """Neighbouring points for training and validation."""
        assert isinstance(data, EndingData)
        return Splits(EndingCurve("train", 0, NUM_TRAIN, data), EndingCurve("valid", NUM_TRAIN, NUM_VALID, data))

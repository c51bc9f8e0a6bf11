"""A task whose examples take long to read, as from a slow disk."""

from __future__ import annotations

import time
from typing import Any

from engine.task import Sizes, Splits
from tests.engine.mytask import Line, Points, PointsData

READ_S = 0.0005


class SlowPoints(Points):
    """Points that take `READ_S` each to read."""

    def fetch(self, indices: Any) -> dict[str, Any]:
        """As `Points`."""
        time.sleep(READ_S * len(indices))
        return super().fetch(indices)


class SlowLine(Line):
    """Fits a line to points that are read slowly."""

    def sizes(self, data: PointsData, seed: int) -> Sizes:
        """As the options say."""
        return Sizes(data.num_train, data.num_valid)

    def load(self, data: PointsData, seed: int) -> Splits:
        """Training and validation points."""
        return Splits(SlowPoints(0, data.num_train, data.break_at), Points(data.num_train, data.num_valid))

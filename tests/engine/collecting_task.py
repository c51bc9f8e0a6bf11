"""A task whose training batches are each read with a garbage collection of all objects."""

from __future__ import annotations

import gc
from typing import Any

from engine.task import Sizes, Splits
from tests.engine.mytask import Line, Points, PointsData


class CollectedPoints(Points):
    """Points that are read with a collection."""

    def fetch(self, indices: Any) -> dict[str, Any]:
        """As `Points`."""
        gc.collect()
        return super().fetch(indices)


class CollectedLine(Line):
    """Fits a line to such points."""

    def sizes(self, data: PointsData, seed: int) -> Sizes:
        """As the options say."""
        return Sizes(data.num_train, data.num_valid)

    def load(self, data: PointsData, seed: int) -> Splits:
        """Training and validation points."""
        return Splits(CollectedPoints(0, data.num_train, data.break_at), Points(data.num_train, data.num_valid))

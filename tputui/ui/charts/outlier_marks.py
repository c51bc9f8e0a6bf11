"""Finds the outlier among the visible columns of cores, and groups cores into rows.

Results are cached by column: a run adds one column at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tputui.state import outlier
from tputui.state.chart_data import CoreColumn, OutlierView
from tputui.state.outlier import OutlierRow

_VALUES_A_CALL = 100_000
"""Maximum number of values examined per call: about 20 ms."""


class OutlierDetector:
    """Finds outliers, caching the deviating cores of each column."""

    def __init__(self) -> None:
        self._cached: dict[int, tuple[CoreColumn, OutlierRow]] = {}
        self._found: tuple[tuple[int, ...], OutlierView | None] = ((), None)
        self.complete = True
        """Whether every column of the last call was examined; if not, the next call continues."""

    def outlier(self, columns: Sequence[CoreColumn]) -> OutlierView | None:
        """The core that deviated longest within the columns; the newest columns are examined first."""
        budget = _VALUES_A_CALL
        cached = self._cached
        num_cached = len(columns)
        for position, column in enumerate(reversed(columns)):
            if id(column) not in cached:
                if budget < 0:
                    num_cached = position
                    break
                budget -= len(column.means)
                cached[id(column)] = (column, outlier.deviating_cores_of(column))
        self.complete = num_cached == len(columns)
        seen = columns[len(columns) - num_cached :]
        key = tuple(map(id, seen))
        if key != self._found[0]:
            self._found = (key, outlier.find_outlier(cached[id(column)][1] for column in seen))
        # Columns outside the window are dropped only when there are many: the window may move back.
        if len(cached) > 4 * len(columns):
            self._cached = {key: cached[key] for key in self._found[0]}
        return self._found[1]


def grouped(num_cores: int, rows: int) -> list[range]:
    """At most `rows` groups of adjacent cores; the group size is a power of two, 1 if all cores fit."""
    least = math.ceil(num_cores / max(rows, 1))
    size = 1 << max(least - 1, 0).bit_length()
    return [range(first, min(first + size, num_cores)) for first in range(0, num_cores, size)]


def seen(columns: Sequence[CoreColumn], first: int, last: int) -> list[CoreColumn]:
    """The columns that contain a step from `first` to `last`."""
    return [column for column in columns if column.last_step >= first and column.first_step <= last]


def column_at(columns: Sequence[CoreColumn], step: int) -> CoreColumn | None:
    """The column that contains a step."""
    return next(itertools.dropwhile(lambda column: column.last_step < step, columns), None)

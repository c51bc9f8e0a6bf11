"""Finds the outlier among the columns of cores in sight, and groups cores into rows.

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
"""Values judged at most in one call: some 20 ms."""


class OutlierDetector:
    """Remembers what it judged."""

    def __init__(self) -> None:
        self._judged: dict[int, tuple[CoreColumn, OutlierRow]] = {}
        self._found: tuple[tuple[int, ...], OutlierView | None] = ((), None)
        self.complete = True
        """Whether every column of the last call is judged; if not, the next call goes on."""

    def outlier(self, columns: Sequence[CoreColumn]) -> OutlierView | None:
        """The core that was off for longest within the columns; the newest columns are judged first."""
        budget = _VALUES_A_CALL
        judged = self._judged
        num_judged = len(columns)
        for place, column in enumerate(reversed(columns)):
            if id(column) not in judged:
                if budget < 0:
                    num_judged = place
                    break
                budget -= len(column.means)
                judged[id(column)] = (column, outlier.deviating_cores_of(column))
        self.complete = num_judged == len(columns)
        seen = columns[len(columns) - num_judged :]
        key = tuple(map(id, seen))
        if key != self._found[0]:
            self._found = (key, outlier.find_outlier(judged[id(column)][1] for column in seen))
        # Columns out of sight are forgotten only where there are many: the window may come back.
        if len(judged) > 4 * len(columns):
            self._judged = {key: judged[key] for key in self._found[0]}
        return self._found[1]


def grouped(num_cores: int, rows: int) -> list[range]:
    """The cores in at most `rows` groups of neighbours, of a size that is a power of two; one a core where they fit."""
    least = math.ceil(num_cores / max(rows, 1))
    size = 1 << max(least - 1, 0).bit_length()
    return [range(first, min(first + size, num_cores)) for first in range(0, num_cores, size)]


def seen(columns: Sequence[CoreColumn], first: int, last: int) -> list[CoreColumn]:
    """The columns that hold a step from `first` to `last`."""
    return [column for column in columns if column.last_step >= first and column.first_step <= last]


def column_at(columns: Sequence[CoreColumn], step: int) -> CoreColumn | None:
    """The column that holds a step."""
    return next(itertools.dropwhile(lambda column: column.last_step < step, columns), None)

"""Which core stands out from the others, and over which steps. Pure but for what it remembers.

A core is judged against the others of the same steps, by robust deviations, so that neither the fall of the loss nor
one wild core hides another. What was judged once is kept: a run adds a column at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui.model.snapshot import CoreColumn

LEAST_CORES = 4
"""Below that, no core can stand out from the others."""

_FLAGGED = 5.0
"""Robust deviations from the median beyond which a core stands out in a column."""
_ONCE = 25.0
"""As many make a single column worth telling, if no other core is ever as far out."""
_CHANCE = 4.0
"""Standard deviations of a count by chance (Poisson) beyond which a core is out too often."""
_LEAST_COLUMNS = 3
_VALUES_A_CALL = 100_000
"""Values judged at most in one call: some 20 ms."""


class Verdict(NamedTuple):
    """The core farthest from the others in a column."""

    core: int
    by: float
    """How far above the median of the cores; negative below."""
    deviations: float


class Outlier(NamedTuple):
    """The core that stands out."""

    core: int
    by: float
    """Where it is farthest from the median: above it if positive."""
    first_step: int
    last_step: int
    """Steps between which it stands out."""


class CoreWatch:
    """Remembers what it judged."""

    def __init__(self) -> None:
        self._judged: dict[int, tuple[CoreColumn, Verdict | None]] = {}
        self.complete = True
        """Whether every column of the last call is judged; if not, the next call goes on."""

    def outlier(self, columns: Sequence[CoreColumn]) -> Outlier | None:
        """The core that stands out from the others most; the newest columns are judged first."""
        budget = _VALUES_A_CALL
        judged, newest_first = self._judged, [(id(column), column) for column in reversed(columns)]
        num_judged = len(newest_first)
        for place, (key, column) in enumerate(newest_first):
            if key not in judged:
                if budget < 0:
                    num_judged = place
                    break
                budget -= len(column.means)
                judged[key] = (column, judge(column))
        found = [judged[key] for key, _ in newest_first[:num_judged]]
        self.complete = num_judged == len(columns)
        # Columns out of sight are forgotten only where there are many: the window may come back.
        if len(judged) > 4 * len(columns):
            self._judged = {id(one[0]): one for one in found}
        return _most(found)


def judge(column: CoreColumn) -> Verdict | None:
    """The core farthest from the median of a column; None where there are too few to compare."""
    means = column.means
    total = sum(means)
    finite = sorted(means) if total - total == 0.0 else sorted(filter(math.isfinite, means))
    count = len(finite)
    if count < LEAST_CORES:
        return None
    median = finite[count // 2]
    spread = (finite[(3 * count) // 4] - finite[count // 4]) / 1.349
    below, above = median - finite[0], finite[-1] - median
    farthest, by = (finite[-1], above) if above >= below else (finite[0], -below)
    least = max(spread, 1e-9 * abs(median), 1e-300)
    return Verdict(means.index(farthest), by, abs(by) / least)


def _most(judged: Sequence[tuple[CoreColumn, Verdict | None]]) -> Outlier | None:
    flagged: dict[int, list[tuple[CoreColumn, Verdict]]] = {}
    for column, verdict in judged:
        if verdict is not None and verdict.deviations > _FLAGGED:
            flagged.setdefault(verdict.core, []).append((column, verdict))
    if not flagged:
        return None
    num_cores = max(len(column.means) for column, _ in judged)
    by_chance = sum(map(len, flagged.values())) / max(num_cores, 1)
    far = {core for core, found in flagged.items() if any(verdict.deviations > _ONCE for _, verdict in found)}
    worth = {
        core: found
        for core, found in flagged.items()
        if _is_often(len(found), by_chance) or (core in far and len(far) == 1)
    }
    if not worth:
        return None
    core = max(worth, key=lambda core: (math.fsum(min(v.deviations, _ONCE) for _, v in worth[core]), -core))
    found = worth[core]
    return Outlier(
        core=core,
        by=max((verdict.by for _, verdict in found), key=abs),
        first_step=min(column.first_step for column, _ in found),
        last_step=max(column.last_step for column, _ in found),
    )


def _is_often(count: int, by_chance: float) -> bool:
    """Whether a core stands out in more columns than it would if all cores were alike.

    The loss of a few examples has long tails: in every run some core is far out at every other step, and each of them
    in turn. One that is named must be so much more often than its share that chance does not explain it.
    """
    return count >= _LEAST_COLUMNS and count > by_chance + _CHANCE * math.sqrt(by_chance)


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

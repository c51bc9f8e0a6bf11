"""Collects what is wrong with the rows of a source, and decides whether it can be left out. Pure.

Where more rows are bad than may be left out, the user reads of up to ten at once, and how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from engine.data.rows import Names
from engine.errors import BadExample, BadSource

MOST_SHOWN = 10


class RowErrors:
    """Bad rows of one source; a row counts once, by what was found first."""

    def __init__(self, names: Names, limit: int) -> None:
        """At most `limit` rows may be left out."""
        self._names = names
        self._limit = limit
        self._found: dict[int, tuple[str, str]] = {}

    def add(self, rows: Iterable[int], column: str, why: str | list[str]) -> None:
        """Bad rows with one reason for all, or one for each."""
        for place, row in enumerate(rows):
            self._found.setdefault(int(row), (column, why if isinstance(why, str) else why[place]))

    def usable(self, num_rows: int) -> npt.NDArray[np.bool_]:
        """[num_rows] which rows are not bad so far."""
        usable = np.ones(num_rows, dtype=bool)
        usable[list(self._found)] = False
        return usable

    def settle(self) -> tuple[BadExample, ...]:
        """The rows to leave out. Raises `BadSource`, a `ValueError`, where they are too many."""
        bad = [
            BadExample(row, self._names.place(row, column), why) for row, (column, why) in sorted(self._found.items())
        ]
        if len(bad) > self._limit:
            allowed = f"; max_bad_rows = {self._limit} may be left out" if self._limit else ""
            raise BadSource(listed([str(example) for example in bad]) + allowed)
        return tuple(bad)


def listed(problems: list[str]) -> str:
    """Up to ten problems in one line, and how many more there are."""
    more = len(problems) - MOST_SHOWN
    return "; ".join(problems[:MOST_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")


def refuse(*problems: str) -> NoReturn:
    """Raises `BadSource`, a `ValueError`, with the problems."""
    raise BadSource(listed(list(problems)))

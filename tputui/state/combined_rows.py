"""The newest rows of several processes side by side: the losses of all cores in a step, to search for an outlier."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from operator import lt
from typing import NamedTuple

from tputui.state.core_series import CorePlaces
from tputui.state.state_struct import FloatArray

RowParts = Sequence[tuple[Sequence[tuple[int, FloatArray]], Sequence[int]]]
"""Rows of several processes, (step, [columns]), each with the cores of its columns."""

_PRESENT = 0.75
"""Share of the processes that must have the newest rows."""


class _Whole(NamedTuple):
    """The row of a step over all processes, as far as they have it."""

    values: FloatArray
    """[cores]"""
    parts: set[int]
    """Indices of the processes that have the step."""
    is_shown: bool = False
    """Whether the row was returned."""


class CombinedRows:
    """The rows of several processes side by side. The row of a step is the same object in every frame that shows it.

    Processes add rows in order of steps and forget the oldest ones. So a process that still has the newest row that was
    read of it has only added rows since; otherwise all rows of all processes are read again.
    """

    def __init__(self) -> None:
        self._whole: dict[int, _Whole] = {}
        self._read: list[tuple[int, FloatArray] | None] = []
        """The newest row that was read of each process."""
        self._places = CorePlaces()

    def of(self, parts: RowParts, most: int = sys.maxsize) -> Sequence[tuple[int, FloatArray]]:
        """(step, [cores]) for every step that is in the newest `most` rows of all processes, in order.

        Up to a quarter of them may have no row there, as those of a host that is silent: their cores are NaN.
        """
        cores_of = [cores for _, cores in parts]
        if self._places.update(cores_of):
            self._read = [None] * len(parts)
        if len(parts) == 1 and list(cores_of[0]) == list(range(self._places.num_cores)):
            rows = parts[0][0][-most:]
            if _is_table(rows, self._places.num_cores):
                return rows
        after = [_rows_after(read, rows) for read, (rows, _) in zip(self._read, parts, strict=True)]
        added = [rows for rows in after if rows is not None]
        is_ordered = len(added) == len(after)
        if not is_ordered:
            self._whole, added = {}, [rows[-most:] for rows, _ in parts]
            is_ordered = all(_ascends(rows) for rows in added)
        for part, fresh in enumerate(added):
            for step, values in fresh:
                self._add(part, step, values)
        num_present = len(parts)
        if is_ordered:
            first = max((rows[-min(most, len(rows))][0] for rows, _ in parts if rows), default=0)
            self._whole = {step: whole for step, whole in self._whole.items() if step >= first}
            num_present = max(sum(rows[-1][0] >= first for rows, _ in parts if rows), math.ceil(_PRESENT * len(parts)))
        # Rows of an invalid run, which may have its steps in any order, are all read again the next time.
        self._read = [rows[-1] if rows and is_ordered else None for rows, _ in parts]
        shown = [step for step, whole in sorted(self._whole.items()) if len(whole.parts) == num_present]
        unseen = [step for step in shown if not self._whole[step].is_shown]
        self._whole.update({step: self._whole[step]._replace(is_shown=True) for step in unseen})
        return [(step, self._whole[step].values) for step in shown]

    def _add(self, part: int, step: int, values: FloatArray) -> None:
        whole = self._whole.get(step)
        if whole is None:
            whole = self._whole[step] = _Whole(self._places.unknown(), set())
        elif whole.is_shown:
            # A process that was silent, or the step was trained again.
            whole = self._whole[step] = _Whole(whole.values[:], whole.parts)
        self._places.put(whole.values, part, values)
        whole.parts.add(part)


def _rows_after(
    read: tuple[int, FloatArray] | None, rows: Sequence[tuple[int, FloatArray]]
) -> Sequence[tuple[int, FloatArray]] | None:
    """The rows after one that was read; None if it is gone, or if they are not in order of steps."""
    newest_first: list[tuple[int, FloatArray]] = []
    for row in reversed(rows):
        if newest_first and row[0] >= newest_first[-1][0]:
            return None
        if row is read:
            return newest_first[::-1]
        newest_first.append(row)
    return None


def _ascends(rows: Sequence[tuple[int, FloatArray]]) -> bool:
    steps = [step for step, _ in rows]
    return all(map(lt, steps, steps[1:]))


def _is_table(rows: Sequence[tuple[int, FloatArray]], num_cores: int) -> bool:
    """Whether the steps ascend and every row has a value for each core."""
    return _ascends(rows) and {len(values) for _, values in rows} <= {num_cores}

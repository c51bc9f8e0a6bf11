"""Combines the pieces of many series, and again only those that have changed since the last time.

The series with the widest pieces sets the edges of the cells, and beyond its end the widest of those that go on. Each
piece of the others belongs to the cell in which it begins. In a snapshot of hundreds of hosts, ten times a second, each
host has replaced or added its newest piece since the one before, so only the cells at the end are combined again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import lt
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P")
C = TypeVar("C")

_CLASSES_PER_OCTAVE = 4
"""Series whose mean widths are about equal belong to one class, and the first of them sets the edges. So the edges stay
while pieces of all are added."""

Found = list[tuple[int, Sequence[P]]]
"""The pieces of a cell, by the index of their series and in order."""


class Edge(NamedTuple):
    """Where a cell begins."""

    first: float
    part: int
    """Index of the series that sets it."""


class _Part(Generic[P]):
    """The pieces of a series when they were last combined."""

    def __init__(self) -> None:
        self.given: list[P] = []
        self.ordered: list[P] = self.given
        """By their beginning; the same list if it is in that order anyway."""
        self.firsts: list[float] = []
        """Their beginnings, in order."""
        self.last = -math.inf
        self.width_class = 0


class Aligner(Generic[P, C]):
    """Combines series of pieces of one kind."""

    def __init__(
        self, first: Callable[[P], float], last: Callable[[P], float], combine: Callable[[P, Found[P]], C]
    ) -> None:
        """`first` and `last`: the beginning and the end of a piece. `combine` makes a cell of the piece that sets its
        edge and of all its pieces."""
        self._first, self._last, self._combine = first, last, combine
        self._names: object = None
        self._parts: list[_Part[P]] = []
        self._edges: list[Edge] = []
        self._cells: list[C] = []

    def cells(self, names: object, parts: Sequence[list[P]]) -> list[C]:
        """The cells, in order. An unchanged one is the same object as before. `names` identify the series."""
        if names != self._names or len(parts) != len(self._parts):
            self._names, self._parts = names, [_Part() for _ in parts]
            self._edges, self._cells = [], []
        changed: set[float] = set()
        for part, given in zip(self._parts, parts, strict=True):
            changed.update(self._renew(part, given))
        edges = self._find_edges()
        dirty = self._dirty(edges, changed)
        found = self._gathered(edges, dirty)
        self._cells = [*self._cells[: len(edges)], *([None] * (len(edges) - len(self._cells)))]  # type: ignore[list-item]
        self._edges = edges
        for index, pieces in zip(dirty, found, strict=True):
            setter = edges[index].part
            setting = next(own[0] for each, own in pieces if each == setter)
            self._cells[index] = self._combine(setting, pieces)
        return list(self._cells)

    def _renew(self, part: _Part[P], given: list[P]) -> Sequence[float]:
        """Takes the pieces of a series; returns the beginnings of those that are new or gone."""
        before = part.given
        same = _num_same(before, given)
        if same == len(before) == len(given):
            return ()
        was_ordered = part.ordered is before
        firsts = part.firsts if was_ordered else list(map(self._first, before))
        gone, fresh = firsts[same:], list(map(self._first, given[same:]))
        before[same:] = given[same:]
        # Most often the newest piece has only become longer.
        if gone != fresh or not was_ordered:
            firsts[same:] = fresh
            part.ordered, part.firsts = before, firsts
            tail = firsts[max(0, same - 1) :] if was_ordered else firsts
            if any(map(lt, tail[1:], tail)):
                part.ordered = sorted(given, key=self._first)
                part.firsts = list(map(self._first, part.ordered))
        if given:
            part.last = self._last(part.ordered[-1])
            width = (part.last - part.firsts[0] + 1.0) / len(given)
            part.width_class = round(_CLASSES_PER_OCTAVE * math.log2(width)) if 0.0 < width < math.inf else 0
        return gone + fresh

    def _find_edges(self) -> list[Edge]:
        in_order = sorted(
            (index for index, part in enumerate(self._parts) if part.firsts),
            key=lambda index: -self._parts[index].width_class,
        )
        edges: list[Edge] = []
        end = -math.inf
        for index in in_order:
            part = self._parts[index]
            if part.firsts[-1] > end:
                edges += [Edge(first, index) for first in part.firsts[bisect_right(part.firsts, end) :]]
                end = max(end, part.last)
        # Pieces of an invalid run may begin at the same step.
        return [edge for before, edge in pairwise([Edge(-math.inf, 0), *edges]) if edge.first > before.first]

    def _dirty(self, edges: list[Edge], changed: Iterable[float]) -> list[int]:
        """The cells to combine again, in order."""
        same = next(
            (index for index, (old, new) in enumerate(zip(self._edges, edges, strict=False)) if old != new), None
        )
        if same is None and len(edges) == len(self._edges):
            same = len(edges) + 1
        elif same is None:
            same = min(len(edges), len(self._edges))
        # The cell before the first edge that is another has another end.
        dirty = set(range(max(0, same - 1), len(edges)))
        firsts = [edge.first for edge in edges]
        dirty.update(max(0, bisect_right(firsts, first) - 1) for first in changed)
        return sorted(dirty) if edges else []

    def _gathered(self, edges: list[Edge], wanted: Sequence[int]) -> list[Found[P]]:
        """The pieces of some cells."""
        bounds = [-math.inf, *(edge.first for edge in edges[1:]), math.inf]
        found: list[Found[P]] = [[] for _ in wanted]
        spans = [
            (cell, bounds[index], bounds[index + 1], index - 1 == before)
            for cell, index, before in zip(found, wanted, [-1, *wanted], strict=False)
        ]
        for part, series in enumerate(self._parts):
            firsts, ordered, end = series.firsts, series.ordered, 0
            for cell, low, high, is_next in spans:
                begin = end if is_next else bisect_left(firsts, low)
                end = bisect_left(firsts, high, begin)
                if begin < end:
                    cell.append((part, ordered[begin:end]))
        return found


def _num_same(before: Sequence[P], given: Sequence[P]) -> int:
    """Number of pieces at the start that are the same objects.

    A series gets and loses pieces at its end, or all its pieces are joined with their neighbours. So if the pieces at
    one place are the same, those before are too.
    """
    same = min(len(before), len(given))
    while same and before[same - 1] is not given[same - 1]:
        same -= 1
    return same

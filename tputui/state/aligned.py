"""Combines the pieces of many series, and again only those that have changed since the last time.

The series with the widest pieces sets the edges of the cells, and beyond its end the widest of those that go on. Each
piece of the others belongs to the cell in which it begins. In a snapshot of hundreds of hosts, ten times a second, each
host has replaced or added its newest piece since the one before, so only the cells at the end are combined again. From
time to time every series joins its pieces in pairs; `AheadAligner` has the cells of the joined pieces ready by then.

A host that returns after a while changes many older steps of hundreds of hosts at once. A screen shows ten snapshots a
second, so each of them takes a part of these steps until none is left. Whoever asks for a single snapshot gets all.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import lt
from typing import Generic, Protocol, TypeVar

from tputui.state.state_struct import JoinedAhead, num_same

T = TypeVar("T")


def split_work(changed: Sequence[T], most: int) -> tuple[Sequence[T], Sequence[T]]:
    """What to do now and what to do later, of changes in order of steps; at most `most` now.

    One half are the newest ones, which change in every frame, the other half the oldest, so that none waits forever.
    """
    most = max(0, most)
    if len(changed) <= most:
        return changed, ()
    oldest = most // 2
    newest = len(changed) - (most - oldest)
    return [*changed[:oldest], *changed[newest:]], changed[oldest:newest]


P = TypeVar("P")
C = TypeVar("C")

_CLASSES_PER_OCTAVE = 4
"""Series whose mean widths are about equal belong to one class, and the first of them sets the edges. So the edges stay
while pieces of all are added."""
COMBINED_MAX = 1_536
"""Series whose pieces are combined again for one frame, counted once per cell: 6 cells of 256 hosts."""
_MANY = 8
"""After more cells than that, as when another series sets the edges, nothing is combined ahead in the same frame."""
_FREED = 8
"""Series of which outdated pieces are freed in a frame."""

Found = list[tuple[int, Sequence[P]]]
"""The pieces of a cell, by the index of their series and in order."""


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
        """`first` and `last`: the beginning and the end of a piece. `combine` makes a cell of all its pieces and of the
        widest one that begins with it."""
        self.first, self.last, self._combine = first, last, combine
        self._names: object = None
        self.parts: list[_Part[P]] = []
        """The series, as they were combined last."""
        self.num_combined = 0
        """Cells that the last call has combined."""
        self._deferred: set[float] = set()
        """Where the cells begin that changed, but are as they were before."""
        self._edges: list[float] = []
        """Where the cells begin."""
        self._cells: list[C] = []

    @property
    def is_behind(self) -> bool:
        """Whether some cells are as they were before their newest change."""
        return bool(self._deferred)

    def cells(self, names: object, parts: Sequence[Sequence[P]], most: int = sys.maxsize) -> list[C]:
        """The cells, in order. An unchanged one is the same object as before. `names` identify the series.

        At most about `most` cells are combined again; the others stay as they were until a later call.
        """
        if names != self._names or len(parts) != len(self.parts):
            self._names, self.parts = names, [_Part() for _ in parts]
            self._edges, self._cells, self._deferred = [], [], set()
        changed = self._deferred
        for part, given in zip(self.parts, parts, strict=True):
            changed.update(self._renew(part, given))
        edges = self._find_edges()
        dirty = self._dirty(edges, changed, most)
        self.num_combined = len(dirty)
        gathered = self._gathered(edges, dirty)
        self._cells = [*self._cells[: len(edges)], *([None] * (len(edges) - len(self._cells)))]  # type: ignore[list-item]
        self._edges = edges
        for index, pieces in zip(dirty, gathered, strict=True):
            setting = [own[0] for _, own in pieces if self.first(own[0]) == edges[index]]
            self._cells[index] = self._combine(max(setting, key=self.last), pieces)
        return list(self._cells)

    def _renew(self, part: _Part[P], given: Sequence[P]) -> Sequence[float]:
        """Takes the pieces of a series; returns the beginnings of those that are new or gone."""
        before = part.given
        same = num_same(before, given)
        if same == len(before) == len(given):
            return ()
        was_ordered = part.ordered is before
        firsts = part.firsts if was_ordered else list(map(self.first, before))
        gone, fresh = firsts[same:], list(map(self.first, given[same:]))
        before[same:] = given[same:]
        # Most often the newest piece has only become longer.
        if gone != fresh or not was_ordered:
            firsts[same:] = fresh
            part.ordered, part.firsts = before, firsts
            tail = firsts[max(0, same - 1) :] if was_ordered else firsts
            if any(map(lt, tail[1:], tail)):
                part.ordered = sorted(given, key=self.first)
                part.firsts = list(map(self.first, part.ordered))
        if given:
            part.last = self.last(part.ordered[-1])
            part.width_class = _width_class(part)
        return gone + fresh

    def _find_edges(self) -> list[float]:
        in_order = sorted(
            (index for index, part in enumerate(self.parts) if part.firsts),
            key=lambda index: -self.parts[index].width_class,
        )
        edges: list[float] = []
        end = -math.inf
        for index in in_order:
            part = self.parts[index]
            if part.firsts[-1] > end:
                edges += part.firsts[bisect_right(part.firsts, end) :]
                end = max(end, part.last)
        # Pieces of an invalid run may begin at the same step.
        return [edge for before, edge in pairwise([-math.inf, *edges]) if edge > before]

    def _dirty(self, edges: list[float], changed: Iterable[float], most: int) -> list[int]:
        """The cells to combine again, in order: those with other edges, and at most `most` in all if possible."""
        same = next(
            (index for index, (old, new) in enumerate(zip(self._edges, edges, strict=False)) if old != new), None
        )
        if same is None and len(edges) == len(self._edges):
            same = len(edges) + 1
        elif same is None:
            same = min(len(edges), len(self._edges))
        # The cell before the first edge that is another has another end.
        same = max(0, same - 1)
        others = range(same, len(edges))
        # Pieces before all edges belong to the first cell.
        changed_cells = {max(0, bisect_right(edges, first) - 1) for first in changed} if edges else set()
        now, later = split_work(sorted(index for index in changed_cells if index < same), most - len(others))
        self._deferred = {edges[index] for index in later}
        return [*now, *others]

    def _gathered(self, edges: list[float], wanted: Sequence[int]) -> list[Found[P]]:
        """The pieces of some cells."""
        bounds = [-math.inf, *edges[1:], math.inf]
        gathered: list[Found[P]] = [[] for _ in wanted]
        spans = [
            (cell, bounds[index], bounds[index + 1], index - 1 == before)
            for cell, index, before in zip(gathered, wanted, [-1, *wanted], strict=False)
        ]
        for part, series in enumerate(self.parts):
            firsts, ordered, end = series.firsts, series.ordered, 0
            for cell, low, high, is_next in spans:
                begin = end if is_next else bisect_left(firsts, low)
                end = bisect_left(firsts, high, begin)
                if begin < end:
                    cell.append((part, ordered[begin:end]))
        return gathered


class JoiningSeries(Protocol[P]):
    """A series that joins its pieces in pairs when there are too many."""

    @property
    def stride(self) -> int:
        """Steps that a piece may span."""

    @property
    def shown(self) -> Sequence[P]:
        """The pieces, in order."""

    @property
    def ahead(self) -> JoinedAhead[P]:
        """The pieces of twice the stride, as far as they are ready."""


class AheadAligner(Generic[P, C]):
    """Combines series that join their pieces in pairs from time to time.

    All hosts do so at about the same step, and then every cell is another one. To combine all of them in one frame
    would delay it by 0.1 s, so joined pieces are combined when they are ready, ahead of the time at which they count.
    """

    def __init__(self, aligner: Callable[[], Aligner[P, C]]) -> None:
        """`aligner` makes an aligner."""
        self._make = aligner
        self._stride = 0
        self._now, self._ahead = aligner(), aligner()
        self._outdated: list[_Part[P]] = []
        """Pieces that do not count any more."""
        self.ahead: list[C] = []
        """The cells of twice the stride that are ready."""

    @property
    def is_behind(self) -> bool:
        """Whether some cells are as they were before their newest change."""
        return self._now.is_behind

    def cells(self, names: object, series: Sequence[JoiningSeries[P]], most: int = sys.maxsize) -> list[C]:
        """As `Aligner.cells`."""
        # To free all of them at once takes 30 ms.
        del self._outdated[-_FREED:]
        stride = max((joining.stride for joining in series), default=0)
        if stride != self._stride:
            self._outdated = self._now.parts
            self._now = self._ahead if stride == 2 * self._stride else self._make()
            self._stride, self._ahead = stride, self._make()
        parts = [joining.shown if joining.stride == stride else self._mixed(joining) for joining in series]
        cells = self._now.cells(names, parts, most)
        if self._now.num_combined <= _MANY and not self.is_behind:
            self.ahead = self._ahead.cells(names, self._ready(series, parts), most)
        return cells

    def _mixed(self, series: JoiningSeries[P]) -> Sequence[P]:
        """The pieces of a series that is behind: joined as far as they were combined ahead, unless that makes them
        wider than those of the others."""
        shown, joined = series.shown, series.ahead.joined
        if not joined:
            return shown
        num_steps = self._now.last(joined[-1]) - self._now.first(joined[0]) + 1
        return series.ahead.mixed(shown) if num_steps <= len(joined) * self._stride else shown

    def _ready(self, series: Sequence[JoiningSeries[P]], parts: Sequence[Sequence[P]]) -> list[Sequence[P]]:
        """The pieces of twice the stride that are ready; of a series that is behind, its pieces up to there."""
        first, last = self._now.first, self._now.last
        joined = [joining.ahead.joined if joining.stride == self._stride else None for joining in series]
        reach = max((last(pieces[-1]) for pieces in joined if pieces), default=-math.inf)
        return [
            part[: bisect_right(part, reach, key=first)] if pieces is None else pieces
            for pieces, part in zip(joined, parts, strict=True)
        ]


def _width_class(part: _Part[P]) -> int:
    """The class of the mean width of the pieces, of which up to a quarter does not count. The mean of all would change
    with every piece, and the series that sets the edges would be another one in many frames."""
    firsts = part.firsts
    unit = 1 << max(0, len(firsts).bit_length() - 3)
    counted = (len(firsts) - 1) // unit * unit
    width = (firsts[counted] - firsts[0]) / counted if counted else part.last - firsts[0] + 1.0
    return round(_CLASSES_PER_OCTAVE * math.log2(width)) if 0.0 < width < math.inf else 0

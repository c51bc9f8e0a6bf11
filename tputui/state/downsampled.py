"""A list that stays short however much is put in: neighbours are joined in pairs when there are too many.

What it holds depends on what was put in and in which order, on nothing else. Pure; must not know what it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

POINTS_MAX = 512
"""About two a column of the widest terminal."""


class Downsampled(Generic[T]):
    """Items in order, at most `most` of them; each stands for the same number of those put in, the last for fewer."""

    def __init__(self, join: Callable[[T, T], T], most: int = POINTS_MAX) -> None:
        """`join` makes one item of two neighbours, the earlier one first. `most` is even, and 2 or more."""
        self.items: list[T] = []
        self._join = join
        self._most = most
        self._stride = 1
        """How many are joined to one."""
        self._in_last = 0
        """How many the last item stands for."""

    def add(self, item: T) -> None:
        """Puts an item in."""
        if self.items and self._in_last < self._stride:
            self.items[-1] = self._join(self.items[-1], item)
            self._in_last += 1
            return
        self.items.append(item)
        self._in_last = 1
        if len(self.items) > self._most:
            self._halve()

    def fork(self) -> Downsampled[T]:
        """Another one that holds the same and goes on by itself."""
        copy = Downsampled(self._join, self._most)
        copy.items = self.items.copy()
        copy._stride, copy._in_last = self._stride, self._in_last
        return copy

    def _halve(self) -> None:
        """Joins pairs. There is one more item than an even number, so that the last one stays alone."""
        self.items = join_pairs(self.items, self._join)
        self._stride *= 2


class Recent(Generic[T]):
    """Items in order: the first one, the newest ones, and samples of those between, evenly spread."""

    def __init__(self, most: int) -> None:
        """Keeps up to twice `most`, which is even."""
        self.count = 0
        """How many were put in."""
        self._most = most
        self._old: Downsampled[T] = Downsampled(first_of, most)
        self._newest: deque[T] = deque()

    def add(self, item: T) -> None:
        """Puts an item in."""
        self.count += 1
        if len(self._newest) == self._most:
            self._old.add(self._newest.popleft())
        self._newest.append(item)

    @property
    def items(self) -> list[T]:
        """Those that are kept."""
        return [*self._old.items, *self._newest]

    def fork(self) -> Recent[T]:
        """Another one that holds the same and goes on by itself."""
        copy: Recent[T] = Recent(self._most)
        copy.count, copy._old, copy._newest = self.count, self._old.fork(), self._newest.copy()
        return copy


def join_pairs(items: list[T], join: Callable[[T, T], T]) -> list[T]:
    """Neighbours joined in pairs; a last one without a neighbour stays."""
    pairs = [join(left, right) for left, right in zip(items[::2], items[1::2], strict=False)]
    return pairs + items[-1:] if len(items) % 2 else pairs


def downsample(items: list[T], join: Callable[[T, T], T], most: int = POINTS_MAX) -> list[T]:
    """At most `most` items, neighbours joined."""
    while len(items) > most:
        items = join_pairs(items, join)
    return items


def first_of(left: T, right: T) -> T:
    """The earlier one, as a sample of both."""
    return left


def last_of(left: T, right: T) -> T:
    """The later one, as a sample of both."""
    return right

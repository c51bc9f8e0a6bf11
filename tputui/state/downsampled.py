"""Lists that stay short however many items are added: if there are too many, neighbours are joined in pairs.

The contents depend on the items and their order alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

import msgspec

from tputui.state.state_struct import AtLeastOne, Count, StateStruct

T = TypeVar("T")

POINTS_MAX = 512
"""About two per column of the widest terminal."""

Most = Annotated[int, msgspec.Meta(ge=2, le=POINTS_MAX, multiple_of=2)]


class Downsampled(StateStruct, Generic[T]):
    """At most `most` items in order. Each represents the same number of added items, the last one for fewer."""

    most: Most = POINTS_MAX
    items: Annotated[list[T], msgspec.Meta(max_length=POINTS_MAX)] = msgspec.field(default_factory=list)
    stride: AtLeastOne = 1
    """Added items per item."""
    in_last: Count = 0
    """Added items in the last item."""

    def add(self, item: T, join: Callable[[T, T], T]) -> None:
        """Adds an item. `join` makes one item of two neighbours, the earlier one first."""
        if self.items and self.in_last < self.stride:
            self.items[-1] = join(self.items[-1], item)
            self.in_last += 1
            return
        self.items.append(item)
        self.in_last = 1
        if len(self.items) > self.most:
            # One item more than an even number, so the last one stays alone.
            self.items = join_pairs(self.items, join)
            self.stride *= 2


class Recent(StateStruct, Generic[T]):
    """The first item, the newest `most` ones, and up to `most` evenly spaced samples of those between."""

    most: Most
    count: Count = 0
    """Items added."""
    old: Downsampled[T] = msgspec.field(default_factory=Downsampled)
    newest: Annotated[list[T], msgspec.Meta(max_length=POINTS_MAX)] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.old.most = self.most

    def add(self, item: T) -> None:
        """Adds an item."""
        self.count += 1
        if len(self.newest) == self.most:
            self.old.add(self.newest.pop(0), first_of)
        self.newest.append(item)

    @property
    def items(self) -> list[T]:
        """The items that are stored."""
        return [*self.old.items, *self.newest]


def join_pairs(items: list[T], join: Callable[[T, T], T]) -> list[T]:
    """Joins neighbours in pairs; a last item without a neighbour stays as it is."""
    pairs = [join(left, right) for left, right in zip(items[::2], items[1::2], strict=False)]
    return pairs + items[-1:] if len(items) % 2 else pairs


def downsample(items: list[T], join: Callable[[T, T], T], most: int = POINTS_MAX) -> list[T]:
    """Joins neighbours until at most `most` items are left."""
    while len(items) > most:
        items = join_pairs(items, join)
    return items


def first_of(left: T, right: T) -> T:
    """The earlier item, as a sample of both."""
    return left


def last_of(left: T, right: T) -> T:
    """The later item, as a sample of both."""
    return right

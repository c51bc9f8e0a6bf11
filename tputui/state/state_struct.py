"""Base class of the reducer's state, and bounded lists: structs that can be forked, and encoded as they are.

A field is part of the state: `fork` copies it and the cache stores it. Its annotation bounds what a cache file may
contain. Anything that can be derived from the fields (names, values decoded for a view) is an attribute that
`__post_init__` sets; msgspec neither encodes nor compares it.

`Downsampled` and `Recent` stay short however many items are added. Their contents depend on the items and their order
alone.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self, TypeVar

import msgspec

from tputui.telemetry.events import INT_MAX

if TYPE_CHECKING:
    FloatArray = array[float]
    CountArray = array[int]
else:
    # Annotations of structs are evaluated at run time, when `array` takes no parameters.
    FloatArray = CountArray = array

T = TypeVar("T")
V = TypeVar("V")

METRICS_MAX = 16
"""Metrics per process whose values are stored."""
CORES_MAX = 1 << 16
"""More than any pod has. Arrays by core are as long as the greatest index."""
FEW_MAX = 1 << 16
"""Entries of collections that stay small in practice, such as checkpoints; a state with more is not cached."""

Count = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
Metric = Annotated[str, msgspec.Meta(max_length=1_000)]
FewByName = Annotated[dict[str, T], msgspec.Meta(max_length=FEW_MAX)]


class StateStruct(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """State that grows by events. Lists and dicts in it are its own; what they contain is never changed in place."""

    def fork(self) -> Self:
        """An independent copy. Events and other immutable values are shared."""
        return type(self)(*(_forked(getattr(self, name)) for name in self.__struct_fields__))


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An immutable part of the state. A pod has 200,000 of them, and none can be part of a cycle: the garbage
    collector would take a tenth of a second to traverse them."""


def _forked(value: Any) -> Any:
    if isinstance(value, StateStruct):
        return value.fork()
    if isinstance(value, dict):
        # The values of a dict have one type. A run may have a million epochs, which are immutable.
        if isinstance(next(iter(value.values()), None), StateStruct | dict | list):
            return {key: _forked(item) for key, item in value.items()}
        return value.copy()
    return value.copy() if isinstance(value, list) else value


def little_endian(values: array[Any]) -> array[Any]:
    """The array, or a copy with swapped bytes on a big-endian machine."""
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values


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
    version: Count = 0
    """Grows with every change: the key of results that depend on the items."""

    def add(self, item: T, join: Callable[[T, T], T], weight: int = 1) -> None:
        """Adds an item that counts as `weight` ones. `join` makes one item of two neighbours, the earlier one first."""
        self.version += 1
        if self.items and self.in_last + weight <= self.stride:
            self.items[-1] = join(self.items[-1], item)
            self.in_last += weight
            return
        self.items.append(item)
        self.in_last = weight
        if len(self.items) > self.most:
            # One item more than an even number, so the last one stays alone.
            self.items = join_pairs(self.items, join)
            self.stride *= 2

    def limit(self, most: int, join: Callable[[T, T], T]) -> None:
        """Keeps at most `most` items from now on."""
        self.most = most
        while len(self.items) > most:
            self.version += 1
            # An odd last item stays alone, and so represents fewer than the others.
            self.in_last += self.stride if len(self.items) % 2 == 0 else 0
            self.items = join_pairs(self.items, join)
            self.stride *= 2

    def clear(self) -> None:
        self.version += 1
        self.items, self.stride, self.in_last = [], 1, 0

    def keep(self, wanted: Callable[[T], bool]) -> None:
        self.version += 1
        kept = [item for item in self.items if wanted(item)]
        if len(kept) < len(self.items):
            self.items, self.in_last = kept, self.stride if kept else 0


class Converted(Generic[T, V]):
    """The items of a growing list as parts of a snapshot. An unchanged item gives the same object every time, so that
    ten snapshots a second cost only what changed."""

    def __init__(self, convert: Callable[[T], V]) -> None:
        self._convert = convert
        self._items: list[T] = []
        self._made: list[V] = []

    def of(self, items: Sequence[T]) -> list[V]:
        same = num_same(self._items, items)
        self._items[same:] = items[same:]
        self._made[same:] = map(self._convert, items[same:])
        return self._made.copy()


def num_same(before: Sequence[object], items: Sequence[object]) -> int:
    """Number of items at the start that are the same objects.

    A list gets and loses items at its end, or all its items are joined with their neighbours. So if the items at one
    place are the same, those before are too.
    """
    same = min(len(before), len(items))
    while same and before[same - 1] is not items[same - 1]:
        same -= 1
    return same


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
        self.count += 1
        if len(self.newest) == self.most:
            self.old.add(self.newest.pop(0), first_of)
        self.newest.append(item)

    @property
    def items(self) -> list[T]:
        return [*self.old.items, *self.newest]


def once(make: Callable[[T], V]) -> Callable[[T], V]:
    """The function, computed once for each new object: snapshots share the lists that have not changed."""
    held: tuple[T, V] | None = None

    def made(items: T) -> V:
        nonlocal held
        found = held
        if found is None or found[0] is not items:
            found = held = (items, make(items))
        return found[1]

    return made


Join = Callable[[T, T, int], T | None]
"""Makes one item of the last joined one and the item at an index of the list; None if they stay apart."""


class JoinedAhead(Generic[T]):
    """The items of a growing list, joined ahead of the time at which the list gets too long: two for each new item.

    All hosts of a pod have too many items at the same step. To join them all then delays a frame by 0.1 s.
    """

    def __init__(self) -> None:
        self.joined: list[T] = []
        self._num_taken = 0

    def mixed(self, items: Sequence[T]) -> list[T]:
        """The joined items, then those that are not joined yet."""
        return [*self.joined, *items[self._num_taken :]]

    def advance(self, items: list[T], join: Join[T], is_final: Callable[[T], bool] | None = None) -> None:
        """Joins two more of the items. The newest one waits, and so do those that are not final."""
        for item in items[self._num_taken : min(self._num_taken + 2, len(items) - 1)]:
            if is_final is not None and not is_final(item):
                return
            self._take(item, join)

    def finish(self, items: list[T], join: Join[T]) -> list[T]:
        """All items joined; begins anew."""
        for item in items[self._num_taken :]:
            self._take(item, join)
        joined = self.joined
        self.restart()
        return joined

    def restart(self) -> None:
        """Begins anew, since items have changed."""
        self.joined, self._num_taken = [], 0

    def _take(self, item: T, join: Join[T]) -> None:
        both = join(self.joined[-1], item, self._num_taken) if self.joined else None
        if both is None:
            self.joined.append(item)
        else:
            self.joined[-1] = both
        self._num_taken += 1


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

"""Base class of the reducer's state: structs that can be forked, and encoded as they are.

A field is part of the state: `fork` copies it and the cache stores it. Its annotation bounds what a cache file may
contain. Anything that can be derived from the fields (names, values decoded for a view) is an attribute that
`__post_init__` sets; msgspec neither encodes nor compares it.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import msgspec

from tputui.telemetry.events import INT_MAX

if TYPE_CHECKING:
    FloatArray = array[float]
    CountArray = array[int]
else:
    # Annotations of structs are evaluated at run time, when `array` takes no parameters.
    FloatArray = CountArray = array

T = TypeVar("T")

METRICS_MAX = 16
"""Metrics per process whose values are stored."""
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


def _forked(value: Any) -> Any:
    if isinstance(value, StateStruct):
        return value.fork()
    if isinstance(value, dict):
        return {key: _forked(item) for key, item in value.items()}
    return value.copy() if isinstance(value, list) else value


def little_endian(values: array[Any]) -> array[Any]:
    """The array, or a copy with swapped bytes on a big-endian machine."""
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values

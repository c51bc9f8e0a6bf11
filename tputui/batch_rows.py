"""Examples and shapes of a batch, however a framework nests its arrays, and the batches of a loader. Imports nothing:
hooks load it with torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 4
ARRAYS_MAX = 64
"""Arrays of a batch of which the shapes are read."""


def rows_of(batch: Any) -> int | None:
    """The first dimension of the first array in a batch; None if it contains no array, or only nested deeply."""
    return next((shape[0] for shape in shapes_of(batch) if shape), None)


def shapes_of(batch: Any, depth: int = 0) -> tuple[tuple[int, ...], ...]:
    """The shapes of the first arrays in a batch."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return (tuple(shape),)
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, list | tuple):
        return ()
    shapes: list[tuple[int, ...]] = []
    for part in batch if depth < DEPTH_MAX else ():
        shapes += shapes_of(part, depth + 1)
        if len(shapes) >= ARRAYS_MAX:
            break
    return tuple(shapes)


def length_of(sized: Any) -> int | None:
    """The length of a loader or data set; None if it has none."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError, AttributeError):
        return None

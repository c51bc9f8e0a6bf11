"""The examples of a batch, however a framework nests its arrays, and the batches of a loader. Imports nothing: hooks
load it with torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 4


def rows_of(batch: Any, depth: int = 0) -> int | None:
    """The first dimension of the first array in a batch; None if it contains no array, or only nested deeply."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple) and depth < DEPTH_MAX:
        return next((rows for part in batch if (rows := rows_of(part, depth + 1)) is not None), None)
    return None


def length_of(sized: Any) -> int | None:
    """The length of a loader or data set; None if it has none."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError, AttributeError):
        return None

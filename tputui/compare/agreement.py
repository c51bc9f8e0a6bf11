"""Whether two trainings have the same losses: equal bits, equal within rounding, or different."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Literal, NamedTuple

FIRST_REL, LATER_REL = 1e-5, 1e-3
"""Greatest relative difference that is rounding: of the first loss, a sum in float32 in another order; of later ones,
since training amplifies the rounding of earlier steps."""
_SCALE_MIN = 0.01
"""Differences are relative to at least this part of the first loss: near 0, rounding is a large part of a loss."""

Losses = Mapping[int, Sequence[float]]
"""The loss of each core by step, as float32."""


class Agreement(NamedTuple):
    """How far the losses of two trainings agree."""

    likeness: Literal["equal bits", "within rounding", "different"]
    num_steps: int
    """Steps that both have."""
    first_step: int | None
    """First step whose losses differ; None if none does."""
    greatest: float
    """Greatest relative difference; infinite if one of two losses is not finite."""

    @property
    def text(self) -> str:
        """The difference with its first step."""
        size = f"up to {self.greatest:.1e}" if self.greatest < inf else "not finite"
        return f"from step {self.first_step} on, relative difference {size}"


def agreement(first: Losses, second: Losses) -> Agreement | None:
    """How far two trainings agree in the steps that both have; None if there are none with a loss."""
    steps = sorted(first.keys() & second.keys())
    if not steps:
        return None
    scale = _SCALE_MIN * max((abs(value) for value in first[steps[0]] if isfinite(value)), default=0.0)
    found = [_difference(first[step], second[step], scale) for step in steps]
    unequal = next((step for step, size in zip(steps, found, strict=True) if size is not None), None)
    sizes = [size or 0.0 for size in found]
    if unequal is None:
        return Agreement("equal bits", len(steps), None, 0.0)
    is_rounding = sizes[0] <= FIRST_REL and max(sizes) <= LATER_REL
    return Agreement("within rounding" if is_rounding else "different", len(steps), unequal, max(sizes))


def least(pairs: Iterable[Agreement | None]) -> Agreement | None:
    """The pair that agrees least, over the fewest steps of all; None if the losses of a pair are not known."""
    known = [*pairs]
    found = [pair for pair in known if pair is not None]
    if not found or len(found) < len(known):
        return None
    order = {"equal bits": 0, "within rounding": 1, "different": 2}
    worst = max(found, key=lambda pair: (order[pair.likeness], pair.greatest))
    return worst._replace(num_steps=min(pair.num_steps for pair in found))


def _difference(first: Sequence[float], second: Sequence[float], scale: float) -> float | None:
    """The greatest relative difference of the losses of a step; None if all bits are equal."""
    if len(first) != len(second):
        return inf
    if struct.pack(f"{len(first)}f", *first) == struct.pack(f"{len(second)}f", *second):
        return None
    sizes = [
        abs(one - two) / max(abs(one), abs(two), scale) for one, two in zip(first, second, strict=True) if one != two
    ]
    return max((size if isfinite(size) else inf for size in sizes), default=0.0)

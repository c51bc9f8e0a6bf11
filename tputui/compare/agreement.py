"""Whether two trainings have the same losses: equal bits, equal within rounding, or different."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Literal, NamedTuple

FIRST_REL = 1e-5
"""Greatest relative difference of the first loss that is rounding: a sum in float32 in another order."""
LATER_REL = 1e-3
"""Greatest relative difference of a later loss: training amplifies the rounding of earlier steps."""
_SCALE_MIN = 0.01
"""Differences are relative to at least this part of the first loss: near 0, rounding is a large part of a loss."""

Likeness = Literal["equal bits", "within rounding", "different"]
_ORDER: tuple[Likeness, ...] = ("equal bits", "within rounding", "different")
Losses = Mapping[int, Sequence[float]]
"""The loss of each core by step, as float32."""


class Agreement(NamedTuple):
    """How far the losses of two trainings agree."""

    likeness: Likeness
    num_steps: int
    """Steps that both have."""
    first_step: int | None
    """First step whose losses differ; None if none does."""
    greatest: float
    """Greatest relative difference; infinite if one of two losses is NaN or infinite."""


def agreement(first: Losses, second: Losses) -> Agreement | None:
    """How far two trainings agree in the steps that both have; None if there are none with a loss."""
    steps = sorted(first.keys() & second.keys())
    if not steps:
        return None
    scale = _SCALE_MIN * max((abs(value) for value in first[steps[0]] if isfinite(value)), default=0.0)
    differences = [_difference(first[step], second[step], scale) for step in steps]
    unequal = next((step for step, found in zip(steps, differences, strict=True) if found is not None), None)
    greatest = max(found or 0.0 for found in differences)
    is_rounding = (differences[0] or 0.0) <= FIRST_REL and greatest <= LATER_REL
    likeness: Likeness = "equal bits" if unequal is None else "within rounding" if is_rounding else "different"
    return Agreement(likeness, len(steps), unequal, greatest)


def least(agreements: Iterable[Agreement | None]) -> Agreement | None:
    """The pair that agrees least, over the fewest steps of all pairs; None if the losses of a pair are not known."""
    pairs = list(agreements)
    known = [pair for pair in pairs if pair is not None]
    if not known or len(known) < len(pairs):
        return None
    worst = max(known, key=lambda pair: (_ORDER.index(pair.likeness), pair.greatest))
    return worst._replace(num_steps=min(pair.num_steps for pair in known))


def _difference(first: Sequence[float], second: Sequence[float], scale: float) -> float | None:
    """The greatest relative difference of the losses of a step; None if all bits are equal."""
    if len(first) != len(second):
        return inf
    form = f"<{len(first)}f"
    if struct.pack(form, *first) == struct.pack(form, *second):
        return None
    return max(map(lambda one, two: _relative(one, two, scale), first, second))


def _relative(one: float, two: float, scale: float) -> float:
    if not (isfinite(one) and isfinite(two)):
        return 0.0 if one == two or (one != one and two != two) else inf
    size = max(abs(one), abs(two), scale)
    return abs(one - two) / size if size else 0.0

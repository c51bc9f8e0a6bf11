"""A position in training."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """How far training is."""

    epoch: int
    """Epoch in training."""
    batch: int
    """Steps of that epoch that are done."""
    step: int
    """Steps of the run that are done."""
    evaluating: bool
    """Whether the epoch's training is done and its evaluation is not."""

"""Exponential smoothing of a mean over steps. Pure; what is smoothed never replaces what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tputui.state.chart_data import Segment

WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
"""How much of a step's average is what came before: the levels that a person may choose. 0 is no smoothing."""


def smoothed(segments: Sequence[Segment], weight: float) -> list[float]:
    """The moving average at every segment, in order; NaN until the first finite mean.

    A segment of several steps counts for that many steps, so the curve looks the same however coarse the series is.
    The start is not drawn towards zero. A segment without a finite value leaves the average as it was.
    """
    found: list[float] = []
    average, trust = 0.0, 0.0
    for segment in segments:
        mean = segment.mean
        if mean - mean == 0.0:
            kept = weight ** (segment.last_step - segment.first_step + 1)
            average = kept * average + (1.0 - kept) * mean
            trust = kept * trust + (1.0 - kept)
        found.append(average / trust if trust else math.nan)
    return found

"""Work on older steps that a snapshot leaves to the next ones, so that no frame of a screen takes long.

A host that returns after a while changes many older steps of hundreds of hosts at once. A screen shows ten snapshots a
second, so each of them takes a part of these steps until none is left. Whoever asks for a single snapshot gets all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def split_work(changed: Sequence[T], most: int) -> tuple[Sequence[T], Sequence[T]]:
    """What to do now and what to do later, of changes in order of steps; at most `most` now.

    One half are the newest ones, which change in every frame, the other half the oldest, so that none waits forever.
    """
    most = max(0, most)
    if len(changed) <= most:
        return changed, ()
    oldest = most // 2
    newest = len(changed) - (most - oldest)
    return [*changed[:oldest], *changed[newest:]], changed[oldest:newest]

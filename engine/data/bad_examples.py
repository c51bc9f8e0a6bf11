"""Examples that cannot be used: how many may be left out, and what a batch takes in their place.

Used by the thread that fetches. Must not touch a device.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.data.sampler import Share
from engine.errors import BadExample, TooManyBad
from tputui.telemetry.events import Split

Tell = Callable[[Split, BadExample, int, int], None]
"""Told of an example that is left out: its split, what is wrong, how many there are now, and the limit."""


class Budget:
    """How many examples the run may leave out, over all its splits."""

    def __init__(self, limit: int, tell: Tell) -> None:
        self._limit = limit
        self._tell = tell
        self._spent = 0

    def spend(self, split: Split, bad: BadExample) -> None:
        """Counts one example. Raises `TooManyBad`."""
        if self._spent >= self._limit:
            allowed = f"{self._limit} may be left out (data.max_bad_rows)" if self._limit else "none may be left out"
            raise TooManyBad(f"{bad}; {allowed}: mend it, or raise data.max_bad_rows") from bad
        self._spent += 1
        self._tell(split, bad, self._spent, self._limit)


class BadExamples:
    """The examples of one split that are left out; they stay so in every epoch."""

    def __init__(self, split: Split, num_examples: int, budget: Budget) -> None:
        self.what = {"train": "training", "valid": "validation"}[split]
        """The split in words."""
        self._split: Split = split
        self._num_examples = num_examples
        self._budget = budget
        self._bad: set[int] = set()

    def add(self, bad: BadExample) -> None:
        """Leaves one more out. Raises `TooManyBad`; and the error itself where it names no example of the split."""
        if bad.index in self._bad or not 0 <= bad.index < self._num_examples:
            raise bad
        self._budget.spend(self._split, bad)
        self._bad.add(bad.index)
        if len(self._bad) == self._num_examples:
            raise TooManyBad(f"not one {self.what} example is left; the last: {bad}")

    def around(self, share: Share) -> Share:
        """The share with the next usable example in each bad one's place; in an evaluation it counts as padding."""
        hit = np.isin(share.indices, list(self._bad)) if self._bad else np.zeros(len(share.indices), dtype=bool)
        if not hit.any():
            return share
        indices = share.indices.copy()
        indices[hit] = [self._next(int(index)) for index in share.indices[hit]]
        if share.real is None:
            return share._replace(indices=indices)
        real = np.where(hit, np.float32(0), share.real)
        counts = real.reshape(len(share.counts), -1).sum(axis=1).astype(np.int64)
        return Share(indices, real, counts)

    def _next(self, index: int) -> int:
        while index in self._bad:
            index = (index + 1) % self._num_examples
        return index

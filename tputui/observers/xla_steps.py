"""Counts the programs that the steps of a script run at syncs, to find steps that sync more often than they need."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable

from tputui.observers.xla_runtime import SCALAR_READS, XlaRuntime
from tputui.telemetry.events import StepPrograms

WARM_UP_STEPS = 5


class _Thread(threading.local):
    def __init__(self) -> None:
        self.syncs: Counter[Hashable] = Counter()
        """Syncs since the optimizer's last step, by the lines of the calls that led to them."""
        self.before: frozenset[Hashable] = frozenset()
        """Those of the step before."""


class StepSyncs:
    """A step here is what lies between two steps of an optimizer. The caller holds a lock."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._thread = _Thread()
        self._steps = self._executes = self._expected = self._reads = 0

    def synced(self, lines: Hashable) -> None:
        """A sync ran a program; `lines` of the calls that led to it."""
        self._thread.syncs[lines] += 1

    def optimizer_stepped(self) -> None:
        """An optimizer changed the weights."""
        thread = self._thread
        if not thread.syncs:
            return
        syncs, thread.syncs = thread.syncs, Counter()
        before, thread.before = thread.before, frozenset(syncs)
        self._steps += 1
        if self._steps <= WARM_UP_STEPS:
            self._reads = self._runtime.count(SCALAR_READS)
            return
        # A line that syncs several times is a loop of its own: gradients of several batches, or an evaluation.
        is_loop = max(syncs.values()) > 1 or thread.before != before
        self._executes += syncs.total()
        self._expected += syncs.total() if is_loop else 1

    def read(self) -> StepPrograms | None:
        """The totals; None before the first step after warm-up."""
        if self._steps <= WARM_UP_STEPS:
            return None
        return StepPrograms(
            steps=self._steps - WARM_UP_STEPS,
            executes=self._executes,
            expected_executes=self._expected,
            scalar_reads=max(0, self._runtime.count(SCALAR_READS) - self._reads),
        )

"""Counts the programs that the steps of a script run at syncs, to find steps that sync more often than they need."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tputui.observers.xla_runtime import SCALAR_READS, XlaRuntime
from tputui.telemetry.events import StepPrograms

WARM_UP_STEPS = 5

Gradients = Sequence[tuple[Any, int]]
"""A weak reference to the gradient of each of a few weights, and its version, which every backward pass changes."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.steps = 0
        self.syncs: Counter[Hashable] = Counter()
        """Syncs since the optimizer's last step, by the lines of the calls that led to them."""
        self.before: frozenset[Hashable] = frozenset()
        """Those of the step before."""
        self.has_loop = False
        """Whether a line synced several times in the step before; only then gradients are read, which takes time."""
        self.forward_only: Counter[Hashable] = Counter()
        """Syncs since the optimizer's last step with only a part of a forward pass since the sync before, at the same
        line."""
        self.newest: Hashable = None
        """The lines of the newest sync of the step."""
        self.gradients: Gradients = ()
        self.reads = 0
        """Scalars that were read before it."""
        self.has_backward = False
        """Whether a backward pass was seen since the optimizer's last step."""


class StepSyncs:
    """A step here is what lies between two steps of an optimizer. Every thread makes all steps, so those of the thread
    with the most count, and the programs of all. The caller holds a lock."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._thread = _Thread()
        self._steps = self._executes = self._expected = self._reads = 0

    def synced(self, lines: Hashable, read_gradients: Callable[[], Gradients], *, is_grad_enabled: bool) -> None:
        """A sync ran a program; `lines` of the calls that led to it."""
        thread = self._thread
        thread.syncs[lines] += 1
        if not thread.has_loop:
            return
        reads, gradients = self._runtime.count(SCALAR_READS), read_gradients()
        is_same = _is_same(gradients, thread.gradients)
        thread.has_backward |= not is_same
        # A value that was read between the two needs a sync; that is a finding of its own.
        if is_grad_enabled and is_same and thread.newest == lines and thread.reads == reads:
            thread.forward_only[lines] += 1
        thread.newest, thread.gradients, thread.reads = lines, gradients, reads

    def optimizer_stepped(self, read_gradients: Callable[[], Gradients]) -> None:
        """An optimizer changed the weights."""
        thread = self._thread
        if not thread.syncs:
            return
        syncs, thread.syncs = thread.syncs, Counter()
        before, thread.before = thread.before, frozenset(syncs)
        forward_only, thread.forward_only = thread.forward_only, Counter()
        had_loop, thread.has_loop = thread.has_loop, max(syncs.values()) > 1
        gradients = read_gradients() if had_loop or thread.has_loop else ()
        has_backward = thread.has_backward or not _is_same(gradients, thread.gradients)
        thread.has_backward, thread.newest, thread.gradients = False, None, gradients
        thread.steps += 1
        self._steps = max(self._steps, thread.steps)
        if self._steps <= WARM_UP_STEPS:
            self._reads = self._runtime.count(SCALAR_READS)
        if thread.steps <= WARM_UP_STEPS:
            return
        self._executes += syncs.total()
        if thread.before != before:
            self._expected += syncs.total()  # such as an evaluation after some of the steps
        elif not thread.has_loop:
            self._expected += 1
        else:
            # A line that syncs several times is a loop of its own. It needs one program per backward pass, so a part
            # of a forward pass needs none, and neither does the first part.
            extra = forward_only.total() + len(forward_only) if had_loop and has_backward else 0
            self._expected += syncs.total() - extra

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


def _is_same(left: Gradients, right: Gradients) -> bool:
    """Whether no backward pass ran between two readings. There is one weak reference to each living tensor."""
    return len(left) == len(right) and all(
        one is other and version == newer for (one, version), (other, newer) in zip(left, right, strict=True)
    )

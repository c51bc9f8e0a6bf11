"""The counters of the XLA runtime as the snapshot has them, and what they say about the steps after warm-up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tputui.telemetry import events as ev

EXTRA_LEAST = 0.05
"""Unexpected executions per step from which they are shown: one in twenty steps."""


class XlaView(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the XLA runtime, summed over the processes that lead their host; since the newest restart."""

    compiles: int
    compile_s: float
    recompiles: int
    """Programs compiled again and again after warm-up; those of another rank if it compiled more. A program that
    compiles once for each of a few inputs, such as lengths of texts, does not count."""
    late_compiles: int = 0
    """Programs compiled after warm-up, for whatever reason; those of another rank if it compiled more."""
    executes: int
    execute_s: float
    transfers_to_device: int
    transfers_from_device: int
    bytes_to_device: int
    bytes_from_device: int
    fallbacks: dict[str, int]
    engine_reads: int = 0
    """Transfers from the device by the engine itself."""
    scalar_reads: int = 0
    """Scalars that the code of the task read, including evaluation."""
    steps: ev.StepPrograms | None = None
    """The training steps after warm-up; None if not counted: `recompiles` then covers compilations at a sync only."""

    @property
    def executes_a_step(self) -> float | None:
        """Programs executed per step after warm-up; None before the first such step."""
        return self.steps.executes / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def expected_a_step(self) -> float | None:
        """Programs per step that the strategy needs."""
        return self.steps.expected_executes / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def reads_a_step(self) -> float | None:
        """Scalars read from the device per step."""
        return self.steps.scalar_reads / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def has_extra_executes(self) -> bool:
        """Whether steps execute more programs than the strategy needs."""
        executes, expected = self.executes_a_step, self.expected_a_step
        return executes is not None and expected is not None and executes - expected >= EXTRA_LEAST

    @property
    def is_never_recompiled(self) -> bool | None:
        """Whether nothing was compiled after warm-up; None if unknown, or before the end of warm-up."""
        if self.recompiles > 0:
            return False
        return True if self.steps is not None and self.steps.steps > 0 else None


def is_used(counters: ev.XlaMetricsRead) -> bool:
    """Whether the process has used the runtime, rather than only imported it."""
    return bool(
        counters.compiles
        or counters.executes
        or counters.transfers_to_device
        or counters.transfers_from_device
        or counters.fallbacks
    )


def newest_of(readings: Iterable[ev.XlaMetricsRead | None]) -> ev.XlaMetricsRead:
    """The newest reading of the counters of one process, from all of its journals. There must be one."""
    return max((one for one in readings if one is not None), key=lambda one: (one.t, one.executes))

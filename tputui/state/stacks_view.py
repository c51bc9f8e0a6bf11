"""Python stacks of the processes of a run, as the snapshot has them."""

from __future__ import annotations

import msgspec

from tputui.telemetry import events as ev


class ProcessStacks(msgspec.Struct, frozen=True, kw_only=True):
    """The Python stacks of a process."""

    t: float
    process: str
    pid: int
    cores: list[int]
    phase: ev.Phase | None
    """Its phase at that time, by its newest heartbeat; None if unknown."""
    phase_s: float
    step: int
    """By its answer to the request, or else by its newest heartbeat at that time."""
    waits_for: str | None
    """What it waited for from other processes."""
    threads: list[ev.ThreadStack]
    """Threads; the training thread is first."""
    path: str | None
    """File with all stacks, relative to the run directory."""
    by_signal: bool
    """Whether a signal fetched them, because no Python thread could answer."""


class StacksView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest requested stacks."""

    request: str
    t: float
    """When the last of them was taken."""
    processes: list[ProcessStacks]
    cores: list[ev.CoreState] = []
    """What the cores executed then, as the TPU runtime reports it."""
    cores_reason: str | None = None
    """Why that is not known, or for which cores not; None without a TPU."""
    again_t: float | None = None
    """Time of a newer request that has no answer yet."""

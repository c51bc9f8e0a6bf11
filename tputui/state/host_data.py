"""What a snapshot contains of the hosts of a run, and of the restarts of its training processes."""

from __future__ import annotations

from typing import Literal

import msgspec

from tputui.telemetry.events import Phase, ProcessSample

HostCondition = Literal["starting", "running", "stalled", "ended", "lost", "missing"]
"""`lost`: its processes are gone, or were silent for long, without an end event. `missing`: it has written nothing."""


class HostView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A host of the run and its newest reports."""

    index: int
    name: str
    """Host name; empty if it has written nothing."""
    condition: HostCondition
    reason: str = ""
    """The reason for the condition, as a sentence; empty if the host runs."""
    cores: list[int] = []
    """Global indices of its cores."""
    step: int = 0
    """Newest step that it has reported."""
    lag_steps: int = 0
    """Steps that it is behind the host that is furthest."""
    phase: Phase | None = None
    """None before the first heartbeat."""
    phase_s: float = 0.0
    """Seconds in that phase; up to `Snapshot.now` while the process is alive."""
    silent_s: float | None = None
    """Seconds since its newest event; None if it has written nothing, or has ended."""
    loss: float | None = None
    """Mean loss of its cores in their newest step; NaN if one is not finite."""
    step_s: float | None = None
    """Wall time of a step, by its newest report."""
    compute_s: float | None = None
    """Part of a step that the host computes, until it is ready to exchange with the others; None if not known."""
    data_s: float | None = None
    """Part of a step that the host waits for batches."""
    wait_s: float | None = None
    """Part of a step that the host waits for other hosts."""
    cpu_percent: float | None = None
    used_bytes: int | None = None
    """Host memory in use."""
    total_bytes: int | None = None
    hbm_used_share: float | None = None
    """Used share of the device memory of its fullest core."""
    clock_offset_s: float | None = None
    """Seconds that its clock is ahead of that of the first host, by which its times are corrected; None if unknown."""
    clock_error_s: float | None = None
    """The offset is within this many seconds of the truth."""
    generation: int = 0
    """How often its training process was restarted."""
    processes: list[ProcessSample] = []
    """The processes of the run on the host, as its supervisor measures them."""
    link: str | None = None
    """The connection of the viewer to the host, if it reads the journals over ssh."""


class SlowHostView(msgspec.Struct, frozen=True, kw_only=True):
    """The host for which the others have waited in most of the newest steps."""

    index: int
    name: str
    part: Literal["compute", "data", "step"]
    """The part of a step in which it takes longer: computing, or waiting for batches; `step` if they are not known."""
    share: float
    """0.25 if it takes a quarter longer than the median of the other hosts."""
    seconds: float
    """Seconds per step that it takes longer than the median host."""
    first_step: int
    """First of the newest steps that show it; it may have been slower before."""
    waiting: int
    """Number of hosts that wait for it in each step."""


class GenerationView(msgspec.Struct, frozen=True, kw_only=True):
    """The training processes between two restarts."""

    number: int
    """0 for the first; as torchrun counts restarts."""
    t: float
    """Unix time at which its first process started."""
    first_step: int | None
    """Its first step; None before its plan is known."""
    lost_steps: int
    """Steps of the generation before that were trained again, since they are not in a checkpoint."""
    lost_s: float | None
    """Seconds from the newest step that was kept to the first step of this generation: lost work and the restart
    itself. None before that step."""
    reason: str
    """Why the generation before ended; empty for the first, and if it is not known."""


class HostReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a host answered to a request."""

    index: int
    state: Literal["seen", "applied", "refused"]
    step: int | None
    """Step after which it was carried out, or the newest step when it was read; None if it was refused."""
    t: float

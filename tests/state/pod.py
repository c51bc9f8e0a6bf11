"""The events of a run on several hosts, as their supervisors and first processes write them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tests.recorded import T0, losses, opened, steps_recorded
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

STEP_S = 0.1
CORES = 2
"""Cores of a host."""


def started(host: int, num_hosts: int, t: float = T0, *, generation: int = 0, first_step: int = 1) -> list[ev.Event]:
    """The start of the first process of a host; that of the first host alone records the plan."""
    num_cores = CORES * num_hosts
    head = opened(t, "worker", host, pid=4243 + 100 * generation)
    events: list[ev.Event] = [
        msgspec.structs.replace(head, generation=generation),
        ev.HeartbeatSent(t=t + 0.1, phase="starting", phase_s=0.1, step=0, epoch=0),
        ev.TopologyDeclared(
            t=t + 1, strategy="replica", device="CPU", num_cores=num_cores, num_hosts=num_hosts,
            host_index=host, cores=list(range(host * CORES, (host + 1) * CORES)),
        ),
    ]  # fmt: skip
    if host == 0:
        events.append(
            ev.TrainingPlanned(
                t=t + 1, task="digits", num_epochs=1, steps_per_epoch=100, valid_steps=2, first_step=first_step,
                batch_per_core=8, global_batch=8 * num_cores, train_examples=1600, valid_examples=160,
                num_parameters=100, precision="fp32", lr=0.1, lr_rule="",
            )
        )  # fmt: skip
        events.append(ev.EpochStarted(t=t + 1, epoch=1, first_step=first_step))
    return events


@functools.cache
def _losses(step: int, num_cores: int) -> list[float]:
    """Of all cores of the run; every host takes its part of the list."""
    return losses(step, num_cores)


def trained(host: int, t: float, first: int, last: int, num_hosts: int = 2) -> list[ev.Event]:
    """Reports of ten steps each, that begin at `t`."""
    events: list[ev.Event] = []
    for begin in range(first, last + 1, 10):
        end = min(begin + 9, last)
        t += STEP_S * (end - begin + 1)
        rows = [_losses(step, CORES * num_hosts)[host * CORES : (host + 1) * CORES] for step in range(begin, end + 1)]
        events.append(steps_recorded(t, begin, rows))
        events.append(ev.HeartbeatSent(t=t, phase="executing", phase_s=0.0, step=end, epoch=1))
        if host == 0:
            events.append(
                ev.ProgressReported(
                    t=t, epoch=1, epoch_step=end, step=end, step_s=STEP_S, examples_per_s=80.0, lr=0.1,
                    report_steps=10, sections_s={"execute": STEP_S * (end - first + 1)},
                )
            )  # fmt: skip
    return events


def saved(t: float, step: int) -> ev.CheckpointSaved:
    sections = {"execute": STEP_S * step}
    return ev.CheckpointSaved(
        t=t, path=f"step-{step}.pt", step=step, epoch=1, bytes=1, seconds=0.1, reason="epoch", sections_s=sections
    )


def reduced(journals: Mapping[str, Sequence[ev.Event]]) -> RunState:
    """The state after all events."""
    state = RunState()
    for writer, events in journals.items():
        for seq, event in enumerate(events):
            state.apply(writer, seq, event)
    return state


def shown(state: RunState, now: float = math.nan, alive: Iterable[str] | None = None) -> Snapshot:
    """The snapshot at a moment, else at the newest event; `alive`: the processes that are, all of them by default."""
    lives = dict.fromkeys(state.processes, True) if alive is None else {
        name: name in set(alive) for name in state.processes
    }  # fmt: skip
    moment = now if math.isfinite(now) else state.newest_t or T0
    return build_snapshot(state, ViewerContext(now=moment, run="r", dir="r", alive=lives))

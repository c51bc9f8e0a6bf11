"""`step_budget`: where the wall time of training went, on the host by section and on the device by busy and idle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from tputui.state.snapshot import Snapshot

OTHER = "other"
DUTY = "duty cycle"
EXECUTIONS = "time of executions"


class DeviceLane(NamedTuple):
    """How busy the device was."""

    busy: float | None
    """Share of the wall time, 0 to 1; None if not known."""
    by: str
    """What it was measured by, or why it is not known."""


class Lane(NamedTuple):
    """The wall time of some steps."""

    wall_s: float
    sections_s: dict[str, float]
    """Seconds by section; their sum is `wall_s`."""
    device: DeviceLane


class StepBudget(NamedTuple):
    """The newest reports, and the whole run since its first epoch."""

    newest: Lane | None
    """None before the second report."""
    newest_steps: int
    whole: Lane


def step_budget(snapshot: Snapshot) -> StepBudget | None:
    """The budget of a run; None if its process does not measure sections."""
    time = snapshot.time_spent
    if time is None:
        return None
    newest = None
    if time.newest_s and time.newest_wall_s > 0:
        device = _device(_duty_now(snapshot), time.newest_execute_s, time.newest_wall_s, snapshot)
        newest = Lane(time.newest_wall_s, _filled(time.newest_s, time.newest_wall_s), device)
    wall_s = max(0.0, time.until - time.began)
    execute_s = snapshot.xla.execute_s if snapshot.xla is not None and _is_one_process(snapshot) else None
    device = _device(_duty_of_run(snapshot, time.began), execute_s, wall_s, snapshot)
    return StepBudget(newest, time.newest_steps, Lane(wall_s, _filled(time.sections_s, wall_s), device))


def _filled(sections_s: Mapping[str, float], wall_s: float) -> dict[str, float]:
    """The sections with the rest of the wall time. A small excess, from two clocks, is spread over all."""
    filled = {name: seconds for name, seconds in sections_s.items() if seconds > 0}
    rest_s = wall_s - math.fsum(filled.values())
    if rest_s > 0:
        filled[OTHER] = filled.get(OTHER, 0.0) + rest_s
    elif filled:
        scale = wall_s / math.fsum(filled.values())
        filled = {name: seconds * scale for name, seconds in filled.items()}
    return filled


def _device(duty: float | None, execute_s: float | None, wall_s: float, snapshot: Snapshot) -> DeviceLane:
    if duty is not None:
        return DeviceLane(min(max(duty / 100, 0.0), 1.0), DUTY)
    if execute_s is None or not math.isfinite(execute_s):
        if not _is_one_process(snapshot):
            return DeviceLane(None, "not known with several processes")
        return DeviceLane(None, "not known: no time of executions reported")
    if wall_s <= 0 or execute_s > wall_s * 1.02:
        return DeviceLane(None, "not known: executions overlap")
    return DeviceLane(min(max(execute_s / wall_s, 0.0), 1.0), EXECUTIONS)


def _is_one_process(snapshot: Snapshot) -> bool:
    """Whether one process drives all cores, so that the sum of the counters is a time on the clock."""
    topology = snapshot.topology
    if topology is None or topology.num_hosts != 1:
        return False
    return topology.strategy in ("spmd", "script") or topology.num_cores == 1


def _duty_now(snapshot: Snapshot) -> float | None:
    """The newest duty cycle, as the mean over the cores, in percent."""
    cores = snapshot.devices.cores if snapshot.devices is not None else []
    return _mean([core.duty_cycle_percent for core in cores if core.duty_cycle_percent is not None])


def _duty_of_run(snapshot: Snapshot, began: float) -> float | None:
    return _mean([point.duty_cycle_percent for point in snapshot.device_history if point.t >= began])


def _mean(values: list[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None

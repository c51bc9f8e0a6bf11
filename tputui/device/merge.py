"""The readings of all processes of a host as values of its cores. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tputui.device.messages import Reading
from tputui.device.service import METRICS, Metrics
from tputui.telemetry.events import CoreSample, HbmReading

_SUMMED = "queued_programs"
_FLOATS = frozenset({"duty_cycle_percent", "hbm_bandwidth_percent", "tensorcore_idle_s"})
_HBM = ("hbm_used", "hbm_total")
_OF_CHIPS = frozenset({"duty_cycle_percent", "throttle_score", "ici_link_health"})
"""Measured on every chip, which has one or two cores; others are measured on every core."""


class HostDevices(NamedTuple):
    """The cores of a host."""

    cores: list[CoreSample]
    hbm: list[HbmReading]
    absent: list[str]
    """Names of the values that no core has."""


def host_of(processes: Sequence[Metrics]) -> HostDevices:
    """The cores of all processes, in order. Processes that number their devices from 0 each are numbered in order."""
    tables = [_by_device(metrics) for metrics in processes]
    devices = [device for table in tables for device in table]
    repeat = len(set(devices)) < len(devices)
    rows = [row for table in tables for row in sorted(table.items())]
    numbered = list(enumerate(row for _, row in rows)) if repeat else sorted(rows, key=lambda pair: pair[0])
    cores = [CoreSample(core=core, **_sample(row)) for core, row in numbered]
    hbm = [
        HbmReading(core=core, used_bytes=int(row["hbm_used"]), limit_bytes=int(row["hbm_total"]), peak_bytes=0)
        for core, row in numbered
        if all(name in row for name in _HBM)
    ]
    present = {name for _, row in numbered for name in row} | ({"hbm"} if hbm else set())
    wanted = ["hbm", *(name for name in METRICS if name not in _HBM)]
    return HostDevices(cores, hbm, [name for name in wanted if name not in present])


def _by_device(metrics: Metrics) -> dict[int, dict[str, float]]:
    """The values of each device of a process, by metric."""
    found = {name: _values(name, readings) for name, readings in metrics.items()}
    numbered = {name: [device for device in values if device is not None] for name, values in found.items()}
    devices = sorted(numbered.get("hbm_used") or max(numbered.values(), key=len, default=[])) or [0]
    rows: dict[int, dict[str, float]] = {device: {} for device in devices}
    for name, values in found.items():
        chips = sorted(numbered[name])
        has_pairs = name in _OF_CHIPS and chips == list(range(len(devices) // 2)) and len(devices) == 2 * len(chips)
        for index, device in enumerate(devices):
            source = chips[index // 2] if has_pairs else device
            if source in values:
                rows[device][name] = values[source]
            elif len(devices) == 1 and None in values:
                rows[device][name] = values[None]
    return {device: row for device, row in rows.items() if row}


def _values(name: str, readings: Sequence[Reading]) -> dict[int | None, float]:
    """One value per device: queues are added, since a core may have several; of other readings the greatest counts,
    which is the worst link or the fullest memory."""
    found: dict[int | None, float] = {}
    for device, value in readings:
        before = found.get(device)
        found[device] = value if before is None else before + value if name == _SUMMED else max(before, value)
    return found


def _sample(row: dict[str, float]) -> dict[str, Any]:
    """The fields of a `CoreSample`."""
    return {name: value if name in _FLOATS else round(value) for name, value in row.items() if name not in _HBM}

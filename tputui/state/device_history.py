"""What one supervisor read from the TPU runtime: the newest sample of the cores, and the duty cycle over time."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tputui.state.chart_data import DevicePoint
from tputui.state.state_struct import Count, Downsampled, StateStruct
from tputui.telemetry.events import CoreStatesRead, DeviceSampled

CORES_MAX = 4_096
"""Cores of one host of which samples and states are stored; no host has as many."""


class DeviceHistory(StateStruct):
    """The devices of one host."""

    count: Count = 0
    """Samples added."""
    newest: DeviceSampled | None = None
    points: Downsampled[DevicePoint] = msgspec.field(default_factory=Downsampled)
    core_states: CoreStatesRead | None = None
    """The newest states of the cores."""

    def add(self, event: DeviceSampled) -> None:
        """Adds a sample."""
        self.newest = replace(event, cores=event.cores[:CORES_MAX]) if event.cores else event
        self.count += 1
        cores = self.newest.cores or []
        duty = [one.duty_cycle_percent for one in cores if one.duty_cycle_percent is not None]
        if duty and math.isfinite(event.t) and all(map(math.isfinite, duty)):
            mean = math.fsum(duty) / len(duty)
            self.points.add(DevicePoint(t=event.t, duty_cycle_percent=mean, lowest_percent=min(duty)), _joined)

    def add_core_states(self, event: CoreStatesRead) -> None:
        """Keeps the newest states of the cores."""
        self.core_states = replace(event, cores=event.cores[:CORES_MAX]) if event.cores else event


def _joined(left: DevicePoint, right: DevicePoint) -> DevicePoint:
    """Two neighbours as one. All but the newest represent the same number of samples."""
    return DevicePoint(
        t=right.t,
        duty_cycle_percent=(left.duty_cycle_percent + right.duty_cycle_percent) / 2,
        lowest_percent=min(left.lowest_percent, right.lowest_percent),
    )

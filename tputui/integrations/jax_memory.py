"""The memory of JAX's devices, as the allocator of each device reports it. Reading it waits for no computation."""

from __future__ import annotations

import sys
import time
from typing import Any

from tputui.telemetry.events import HbmReading, MemorySampled

NO_STATISTICS = "JAX reports no memory of {} devices"


class JaxMemory:
    """Reads the devices of this process once a program of JAX uses them."""

    def __init__(self) -> None:
        self._newest: tuple[list[HbmReading] | None, str | None] | None = None
        self._is_over = False
        """Whether the devices report no memory, so that nothing is read again."""

    def sample(self) -> MemorySampled | None:
        """The newest readings; None if they have not changed, or if JAX uses no devices."""
        devices = [] if self._is_over else _devices()
        if not devices:
            return None
        found = [_reading(device) for device in devices]
        readings = [reading for reading in found if reading is not None]
        reason = None if readings else NO_STATISTICS.format(str(devices[0].platform).upper())
        self._is_over = not readings
        newest = (readings or None, reason)
        if newest == self._newest:
            return None
        self._newest = newest
        return MemorySampled(t=time.time(), hbm=newest[0], hbm_reason=reason)


def _devices() -> list[Any]:
    """The devices of this process, without initialising JAX."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_initialised = getattr(bridge, "backends_are_initialized", None)
    if is_initialised is None or not is_initialised():
        return []
    return list(sys.modules["jax"].local_devices())


def _reading(device: Any) -> HbmReading | None:
    """The memory of a device; None if its allocator keeps no statistics."""
    statistics = device.memory_stats()
    if not statistics or "bytes_in_use" not in statistics:
        return None
    used = int(statistics["bytes_in_use"])
    limit = int(statistics.get("bytes_limit", 0))
    peak = int(statistics.get("peak_bytes_in_use", used))
    return HbmReading(core=int(device.id), used_bytes=used, limit_bytes=limit, peak_bytes=peak)

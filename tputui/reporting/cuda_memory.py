"""The memory of CUDA devices, as the allocator of torch in this process counts it. Starts no device.

Written by the documentation of `torch.cuda`; it was not run on a GPU yet.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from tputui.telemetry.events import HbmReading, MemorySampled


class CudaMemory:
    """The memory of the devices in which torch has reserved some. Reading it waits for no computation."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._newest: list[HbmReading] = []

    def sample(self) -> MemorySampled | None:
        """The newest readings; None if they have not changed, or if torch uses no CUDA device."""
        cuda = _cuda()
        used = used_devices()
        first = self._rank * len(used)
        readings = [
            HbmReading(
                core=core,
                used_bytes=int(cuda.memory_allocated(device)),
                limit_bytes=int(cuda.get_device_properties(device).total_memory),
                peak_bytes=int(cuda.max_memory_allocated(device)),
            )
            for core, device in enumerate(used, first)
        ]
        if readings == self._newest:
            return None
        self._newest = readings
        return MemorySampled(t=time.time(), hbm=readings) if readings else None


def used_devices() -> list[int]:
    """Indices of the CUDA devices in which torch has reserved memory; none until the program has started CUDA."""
    cuda = _cuda()
    if cuda is None:
        return []
    return [device for device in range(cuda.device_count()) if cuda.memory_reserved(device) > 0]


def device_name() -> str | None:
    """The model of the first of them, such as `NVIDIA A100-SXM4-40GB`; None until the program has started CUDA."""
    cuda = _cuda()
    if cuda is None:
        return None
    return next((str(cuda.get_device_name(device)) for device in used_devices()), "CUDA")


def _cuda() -> Any:
    """The module, if the program has started CUDA; another thread may be importing it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if getattr(cuda, "is_initialized", bool)() else None

"""Device memory of the cores, or why it cannot be read. Must never make a number up, nor hold training up for long."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from engine.xla import backend
from tputui.telemetry.events import HbmReading, MemorySampled

DEADLINE_S = 0.5
"""The runtime's metric service has no timeout of its own, and on some hosts it never starts."""


def sample(target: torch.device, core_ids: list[int], *, spmd: bool) -> MemorySampled:
    """Device memory by core."""
    if backend.kind() == "CPU":
        return _none("the CPU device does not tell its memory; see the memory of the worker process")
    if spmd:
        return _from_service(core_ids)
    try:
        info = backend.memory(target)
    except RuntimeError as error:
        return _none(f"the runtime does not tell: {error}")
    reading = HbmReading(
        core=core_ids[0],
        used_bytes=info["bytes_used"],
        limit_bytes=info["bytes_limit"],
        peak_bytes=info.get("peak_bytes_used", 0),
    )
    return MemorySampled(t=time.time(), hbm=[reading])


def _from_service(core_ids: list[int]) -> MemorySampled:
    """Asks the metric service of the TPU runtime: one process that drives all cores cannot ask the runtime itself."""
    answer: list[Any] = []
    failure: list[str] = []

    def ask() -> None:
        try:
            # Comes with the TPU's own packages.
            from tpu_info import device, metrics  # type: ignore[import-not-found, unused-ignore]

            chip, _ = device.get_local_chips()
            answer.extend(metrics.get_chip_usage(chip))
        except Exception as error:  # noqa: BLE001, RUF100 - whatever the service raises is the reason shown
            failure.append(f"{type(error).__name__}: {error}".splitlines()[0])

    thread = threading.Thread(target=ask, name="tputui-hbm", daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    if failure:
        return _none(f"the TPU's metric service does not answer: {failure[0]}")
    if len(answer) != len(core_ids):
        return _none(f"the TPU's metric service told of {len(answer)} cores within {DEADLINE_S} s")
    readings = [
        HbmReading(core=core, used_bytes=usage.memory_usage, limit_bytes=usage.total_memory, peak_bytes=0)
        for core, usage in zip(core_ids, answer, strict=True)
    ]
    return MemorySampled(t=time.time(), hbm=readings)


def _none(reason: str) -> MemorySampled:
    return MemorySampled(t=time.time(), hbm=None, hbm_reason=reason)

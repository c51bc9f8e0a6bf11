"""Reads the device memory of the cores, or reports why it is not available. Must not delay training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch

from engine.xla import backend
from tputui.telemetry.events import HbmReading, MemorySampled

CPU_REASON = "not available on CPU devices; see worker RSS"
SILENT = "the TPU's metric service has not answered"


class DeviceMemory:
    """Samples the memory of cores that share one device."""

    def __init__(self, core_ids: list[int], device: torch.device) -> None:
        self._core_ids = core_ids
        self._device = device
        self._service = MetricServicePoller(core_ids)

    def sample(self) -> MemorySampled:
        """The newest reading; returns at once."""
        if backend.kind() == "CPU":
            return _none(CPU_REASON)
        if len(self._core_ids) > 1:
            return self._service.sample()
        try:
            info = backend.memory(self._device)
        except RuntimeError as error:
            return _none(f"not available from the runtime: {error}")
        (core,) = self._core_ids
        reading = HbmReading(
            core=core,
            used_bytes=info["bytes_used"],
            limit_bytes=info["bytes_limit"],
            peak_bytes=info.get("peak_bytes_used", 0),
        )
        return MemorySampled(t=time.time(), hbm=[reading])


Usage = list[tuple[int, int]]
"""Bytes in use and total bytes, by core."""


def query_service() -> Usage:
    """Queries the metric service of the TPU runtime, which a process that drives all cores cannot query directly. Has
    no timeout of its own, and may raise any exception."""
    # Installed with the TPU's own packages.
    from tpu_info import device, metrics  # type: ignore[import-not-found, unused-ignore]

    chip, _ = device.get_local_chips()
    return [(usage.memory_usage, usage.total_memory) for usage in metrics.get_chip_usage(chip)]


class MetricServicePoller:
    """Keeps one query to the metric service running, and the newest answer available."""

    def __init__(self, core_ids: list[int], ask: Callable[[], Usage] = query_service) -> None:
        self._core_ids = core_ids
        self._ask = ask
        self._newest = _none(SILENT)
        self._thread: threading.Thread | None = None

    def sample(self) -> MemorySampled:
        """The newest answer, without waiting; starts the next query if the last one is answered."""
        newest = self._newest
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._question, name="tputui-hbm", daemon=True)
            self._thread.start()
        return newest

    def _question(self) -> None:
        try:
            usage = self._ask()
        except Exception as error:  # noqa: BLE001, RUF100 - whatever the service raises is shown as the reason
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._newest = _none(f"the TPU's metric service failed: {first}")
            return
        if len(usage) != len(self._core_ids):
            self._newest = _none(f"the TPU's metric service reports {len(usage)} cores, not {len(self._core_ids)}")
            return
        readings = [
            HbmReading(core=core, used_bytes=used, limit_bytes=limit, peak_bytes=0)
            for core, (used, limit) in zip(self._core_ids, usage, strict=True)
        ]
        self._newest = MemorySampled(t=time.time(), hbm=readings)


def _none(reason: str) -> MemorySampled:
    return MemorySampled(t=time.time(), hbm=None, hbm_reason=reason)

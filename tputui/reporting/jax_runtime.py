"""What JAX knows of the program of this process: its rank, a store that all ranks share, and the memory of its devices.

Must not import a training framework.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from tputui.telemetry.events import HbmReading, MemorySampled
from tputui.telemetry.rank_environment import RankInfo

NO_STATISTICS = "JAX reports no memory of {} devices"
_MISSING = "NOT_FOUND"
"""What the error of a key that has no value begins with."""


def rank() -> RankInfo | None:
    """The rank of this process; None if `jax.distributed` is not initialised."""
    runtime = _runtime()
    if runtime is None:
        return None
    return RankInfo(int(runtime.process_id), None, int(runtime.num_processes), ("jax.distributed",))


def store() -> JaxStore | None:
    """The store of this program; None if `jax.distributed` is not initialised, or its version has not all calls."""
    client = getattr(_runtime(), "client", None)
    calls = ("key_value_set", "key_value_try_get", "key_value_increment")
    return JaxStore(client) if all(hasattr(client, name) for name in calls) else None


class JaxStore:
    """The key-value service of JAX's coordinator, which process 0 serves, with calls as `torch.distributed.Store` has.

    Every call raises `RuntimeError` if the coordinator cannot be reached.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._find(key) is not None for key in keys)

    def get(self, key: str) -> bytes:
        """The value of a key. Raises `KeyError` if there is none."""
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        return value

    def set(self, key: str, value: str | bytes) -> None:
        self._client.key_value_set(
            _path(key), value if isinstance(value, str) else value.decode(), allow_overwrite=True
        )

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Sets the value of a key that has none; returns its value. `expected` must be empty."""
        assert not expected
        # Raised if another process was first; also if the coordinator is gone, as by the next call.
        with contextlib.suppress(RuntimeError):
            self._client.key_value_set(_path(key), desired)
        return self.get(key)

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, which begins at 0; returns it."""
        return int(self._client.key_value_increment(_path(key), amount))

    def _find(self, key: str) -> bytes | None:
        try:
            return str(self._client.key_value_try_get(_path(key))).encode()
        except RuntimeError as error:
            if str(error).startswith(_MISSING):
                return None
            raise


class JaxMemory:
    """The memory of the devices of this process, as the allocator of each reports it, once a program of JAX uses them.

    Reading it waits for no computation.
    """

    def __init__(self) -> None:
        self._newest: tuple[list[HbmReading] | None, str | None] | None = None
        self._is_over = False
        """Whether the devices report no memory, so that nothing is read again."""

    def sample(self) -> MemorySampled | None:
        """The newest readings; None if they have not changed, or if JAX uses no devices."""
        devices = [] if self._is_over else _devices()
        if not devices:
            return None
        of_devices = [_reading(device) for device in devices]
        readings = [reading for reading in of_devices if reading is not None]
        reason = None if readings else NO_STATISTICS.format(str(devices[0].platform).upper())
        self._is_over = not readings
        newest = (readings or None, reason)
        if newest == self._newest:
            return None
        self._newest = newest
        return MemorySampled(t=time.time(), hbm=newest[0], hbm_reason=reason)


def devices() -> list[Any]:
    """The devices of the program, of all its processes; none until JAX has started a backend, which this never does."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_initialised = getattr(bridge, "backends_are_initialized", None)
    return list(sys.modules["jax"].devices()) if is_initialised is not None and is_initialised() else []


def _runtime() -> Any | None:
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def _path(key: str) -> str:
    return f"tputui/{key}"


def _devices() -> list[Any]:
    """The devices of this process."""
    return list(sys.modules["jax"].local_devices()) if devices() else []


def _reading(device: Any) -> HbmReading | None:
    """The memory of a device; None if its allocator keeps no statistics."""
    statistics = device.memory_stats()
    if not statistics or "bytes_in_use" not in statistics:
        return None
    used = int(statistics["bytes_in_use"])
    limit = int(statistics.get("bytes_limit", 0))
    peak = int(statistics.get("peak_bytes_in_use", used))
    return HbmReading(core=int(device.id), used_bytes=used, limit_bytes=limit, peak_bytes=peak)

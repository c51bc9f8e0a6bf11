"""The memory of JAX's devices in runs that a script reports."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tputui.environment import installed
from tputui.reporting import jax_runtime
from tputui.reporting.jax_runtime import JaxMemory
from tputui.telemetry.events import HbmReading


class Device(NamedTuple):
    """A device of JAX with an allocator that keeps statistics, as on a TPU."""

    id: int
    used: int
    platform: str = "tpu"

    def memory_stats(self) -> dict[str, Any]:
        return {"bytes_in_use": self.used, "bytes_limit": 100, "peak_bytes_in_use": self.used + 1, "num_allocs": 3}


def test_memory_is_reported_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[Device] = []
    monkeypatch.setattr(jax_runtime, "_devices", lambda: devices)
    memory = JaxMemory()
    assert memory.sample() is None
    devices += [Device(4, 10), Device(5, 20)]
    sampled = memory.sample()
    assert sampled is not None
    assert sampled.hbm == [
        HbmReading(core=4, used_bytes=10, limit_bytes=100, peak_bytes=11),
        HbmReading(core=5, used_bytes=20, limit_bytes=100, peak_bytes=21),
    ]
    assert memory.sample() is None
    devices[1] = Device(5, 30)
    again = memory.sample()
    assert again is not None
    assert [reading.used_bytes for reading in again.hbm or []] == [10, 30]


ON_CPU = """
import jax
from tputui.reporting.jax_runtime import JaxMemory

memory = JaxMemory()
assert memory.sample() is None, "JAX must not be initialised"
jax.numpy.ones(3).sum()
sampled = memory.sample()
assert (sampled.hbm, sampled.hbm_reason) == (None, "JAX reports no memory of CPU devices")
assert memory.sample() is None
"""


@pytest.mark.slow
@pytest.mark.skipif(installed("jax") is None, reason="needs JAX")
def test_cpu_devices_have_a_reason_in_place_of_memory() -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", ON_CPU], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

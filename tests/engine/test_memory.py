"""Reports of device memory if one process drives all cores of a TPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.xla

PROBE = """
import threading
from engine.xla.runtime_counters import SILENT, MetricServicePoller

def answered(ask, cores):
    service = MetricServicePoller(cores, ask)
    assert service.sample().hbm_reason == SILENT
    service._thread.join()
    return service.sample()

sample = answered(lambda: [(10, 100), (20, 100)], [4, 5])
assert [(r.core, r.used_bytes, r.limit_bytes) for r in sample.hbm] == [(4, 10, 100), (5, 20, 100)], sample

def fails():
    raise ConnectionError("nobody is there\\nand more")
reason = answered(fails, [0]).hbm_reason
assert reason.endswith("metric service failed: nobody is there"), reason

reason = answered(lambda: [(1, 2)], [0, 1]).hbm_reason
assert reason.endswith("reports 1 cores, not 2"), reason

hung = threading.Event()
service = MetricServicePoller([0], hung.wait)
assert [service.sample().hbm_reason for _ in range(3)] == [SILENT] * 3
assert sum(thread.name == "tputui-hbm" for thread in threading.enumerate()) == 1, "one question at a time"
hung.set()
"""


def test_memory_is_read_per_core_without_blocking_training() -> None:
    command = [sys.executable, "-c", PROBE]
    environ = {**os.environ, "PJRT_DEVICE": "CPU"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environ)
    assert done.returncode == 0, done.stderr

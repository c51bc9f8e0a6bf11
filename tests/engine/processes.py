"""Runs a module of the tests on virtual cores, in a process of its own: a process opens its devices once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

NUM_CORES = 8
TIMEOUT_S = 600


def on_cores(module: str, *arguments: str) -> Any:
    """What the module printed as JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(NUM_CORES)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

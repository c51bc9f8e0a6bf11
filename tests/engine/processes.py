"""Runs a module of the tests on virtual cores, in a process of its own: a process opens its devices once."""

from __future__ import annotations

import json
from typing import Any

from tests import forked

NUM_CORES = 8


def on_cores(module: str, *arguments: str) -> Any:
    """What the module printed as JSON on its last line."""
    done = forked.run(module, *arguments, env={"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(NUM_CORES)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

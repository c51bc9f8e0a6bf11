"""Runs a module of the tests on virtual cores, in a process of its own: a process opens its devices once."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tests import forked

NUM_CORES = 8
TIMEOUT_S = 600


def on_cores(module: str, *arguments: str) -> Any:
    """What the module printed as JSON on its last line."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = forked.Process(
            module,
            [*arguments],
            cwd=Path.cwd(),
            env={**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(NUM_CORES)},
            stdout=out.fileno(),
            stderr=err.fileno(),
        )
        try:
            code = process.wait(TIMEOUT_S)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        assert code == 0, err.read()
        return json.loads(out.read().splitlines()[-1])

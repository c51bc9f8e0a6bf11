"""A host that has joined the others, and does no more: they wait for it before the first generation.

`python -m tests.launch.registered RUN_DIR INDEX`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from engine.launch import stores
from engine.launch.joining import Joining
from engine.launch.plan import make_plan
from tputui.telemetry.rundir import read_manifest


def main(run_dir: Path, index: int) -> None:
    """Joins, and waits to be killed."""
    plan = make_plan(run_dir, read_manifest(run_dir), index, [])
    Joining(plan, lambda event: None).join(plan.endpoint)
    # Nobody waits for the end of its training.
    stores.connect(plan.endpoint, 60.0).set(f"ended/{index}", "")
    threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

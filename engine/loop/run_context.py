"""What surrounds a trainer in the process that it runs in, whichever loop it is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from engine.process.requests import Progress, RequestQueue
from tputui.telemetry.reporter import Reporter


class RunContext(NamedTuple):
    """Where a trainer stands."""

    run_dir: Path
    reporter: Reporter
    progress: Progress
    control: RequestQueue
    resume_from: Path | None = None
    """Checkpoint that training goes on from."""
    telemetry: bool = True
    """Whether training is told of; it is not only where what telling costs is measured."""

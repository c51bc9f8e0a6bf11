"""The page for a run that is out of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.workers import LINE, make, runs_to_end
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla


def test_out_of_memory_report_names_consumers_and_fixes(tmp_path: Path) -> None:
    text = LINE.replace("mytask:Line", "tests.engine.large_step_task:LargeStep")
    run = runs_to_end(make(tmp_path, "large-step", text=text, cwd=Path(__file__).parents[2]), exit_code=3)
    failure = run.one(ev.FailureRaised)
    assert failure.error == "OutOfMemory"
    first, *rest = failure.message.splitlines()
    assert first.lower().startswith("out of memory")
    page = "\n".join(rest)
    assert "data.batch_per_core" in page
    assert "device.precision" in page
    assert "one allocation of 1.3 TiB was requested" in page
    assert "fits" not in page
    assert run.one(ev.TrainingEnded).reason == f"OutOfMemory: {first}"
    assert len(rest) < 24

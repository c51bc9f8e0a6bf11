"""The bench on which commands meet running runs, and the end of commands that a failed test left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervise.harness import Bench, events_in
from tputui.telemetry import events as ev
from tputui.telemetry import rundir


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Starts supervisors; none outlives the test."""
    made = Bench(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Kills the commands that a failed test left running in `runs`; their supervisors then end."""
    yield
    for run_dir in rundir.listing(tmp_path / "runs") if (tmp_path / "runs").exists() else []:
        for head in events_in(run_dir, "logs-0", ev.JournalOpened):
            if rundir.is_alive(rundir.process_of(head)):
                os.killpg(head.pid, signal.SIGKILL)

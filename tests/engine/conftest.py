"""Fixtures: runs shared by several test modules, made once per session."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.engine.workers import Run, make, runs_to_end
from tputui.telemetry import events as ev
from tputui.telemetry import requests


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs of this session."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def whole(runs_dir: Path) -> Run:
    """The sample configuration, trained to its end on 8 cores."""
    return runs_to_end(make(runs_dir, "whole"))


@pytest.fixture(scope="session")
def interrupted(runs_dir: Path) -> Run:
    """The same, with a request for a checkpoint while it compiles and a request to stop within an epoch."""
    run = make(runs_dir, "interrupted")
    try:
        run.start()
        run.wait_for(ev.HeartbeatSent, lambda beat: beat.phase == "compiling")
        requests.submit(run.dir, "checkpoint", by="test", now=time.time())
        run.wait_for(ev.RequestApplied)
        run.wait_for(ev.EpochStarted, lambda epoch: epoch.epoch == 2)
        requests.submit(run.dir, "stop", by="test", now=time.time())
        assert run.finish() == 4, run.log.read_text()
    finally:
        run.stop_if_alive()
    return run


@pytest.fixture(scope="session")
def resumed(runs_dir: Path, interrupted: Run) -> Run:
    """The interrupted run, resumed and trained for one more epoch."""
    saved = [event for event in interrupted.all(ev.CheckpointSaved) if event.reason == "stop"][-1]
    epochs = saved.epoch + 1
    run = make(runs_dir, "resumed", [f"epochs={epochs}"], resume_from=interrupted.dir / saved.path)
    return runs_to_end(run)

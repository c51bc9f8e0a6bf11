"""Output in the shell after the screen was left."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from tests.recorded import Growing, write_run
from tests.ui import made
from tputui.cli.open_run import parting
from tputui.session.session import load
from tputui.telemetry import rundir


def test_ended_run_prints_state_best_metric_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_dir = write_run(tmp_path)
    state, best, then = parting(load(run_dir), run_dir)
    assert state == "digits-1 done: 3 epochs trained"
    assert best.startswith("best validation loss 0.")
    assert best.endswith(" in epoch 3")
    assert then == "`tputui show digits-1` prints its full status", "there is nothing left to train"


def test_failed_run_prints_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_dir = write_run(tmp_path)
    lines = parting(made.failed(), run_dir)
    assert len(lines) == 3
    assert lines[0].endswith("failed: ValueError in worker-0 at step 331")
    assert "`tputui show digits-1`" in lines[2]
    assert "`tputui run digits.toml --resume digits-1`" in lines[2]


def test_how_to_resume_repeats_changes_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_dir = write_run(tmp_path)
    manifest = rundir.read_manifest(run_dir)
    argv = ["tputui", "run", "--set=epochs=400", "digits.toml", "--set", "optim.name='adam'", "--name", "digits-1"]
    (run_dir / rundir.MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, argv=argv)))
    then = parting(made.failed(), run_dir)[2]
    [command] = [part for part in then.split("`") if "--resume" in part]
    assert sorted(shlex.split(command)) == sorted(
        ["tputui", "run", "digits.toml", "--set", "optim.name='adam'", "--set=epochs=400", "--resume", "digits-1"]
    )


def test_running_run_prints_progress_and_how_to_attach(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.go_on(8)
    growing.session.read_all()
    state, best, then = parting(growing.session.snapshot(), growing.run_dir)
    growing.close()
    assert state.startswith("digits-1 is running: epoch ")
    assert best.startswith("best validation loss ")
    assert then.startswith("digits-1 is still running; `tputui attach ")

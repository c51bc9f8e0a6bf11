"""Output in the shell after the screen was left, and runs whose directory is renamed while they are shown."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.recorded import Growing, write_run
from tests.supervise.harness import text_of, wait_for
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


RENAMES = """
import os, threading
from pathlib import Path
run_dir = Path(os.environ["TPUTUI_RUN_DIR"])
print("step 1 loss 1.0", flush=True)
while b"step 1" not in (run_dir / "supervisor-0.jsonl").read_bytes():
    threading.Event().wait(0.02)
old = run_dir if RENAMED == "run" else run_dir.parent
old.rename(old.with_name("moved"))
try:
    # The test may stop the run as soon as it has read this line.
    print("step 2 loss 0.5", flush=True)
    while not Path("go").exists():
        threading.Event().wait(0.02)
except KeyboardInterrupt:
    print("saved", flush=True)
"""


@pytest.mark.parametrize("renamed", ["run", "parent"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_run_whose_directory_is_renamed_ends_as_it_should(tmp_path: Path, renamed: str, is_stopped: bool) -> None:
    (tmp_path / "train.py").write_text(RENAMES.replace("RENAMED", repr(renamed)))
    words = ["-m", "tputui", "--runs-dir", "runs", "run", "--no-ui", "--name", "mine", "--", sys.executable, "train.py"]
    moved = tmp_path / ("runs/moved" if renamed == "run" else "moved/mine")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-P", *words], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as viewer:
        wait_for(lambda: "step 2" in text_of(moved / "worker-0.log"), "the second step")
        if is_stopped:
            viewer.terminate()
        else:
            (tmp_path / "go").touch()
        try:
            out, err = viewer.communicate(timeout=DEADLINE_S)
        finally:
            (tmp_path / "go").touch()
    assert viewer.returncode == (4 if is_stopped else 0), out + err
    assert "step 2" in out
    assert "is gone" not in out + err
    assert ("saved" in out) == is_stopped
    assert json.loads(tputui("show", moved, "--json").out)["state"] == ("stopped" if is_stopped else "done")

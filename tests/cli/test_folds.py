"""`tputui folds`: every fold in turn, and a table over them."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tests.engine.workers import LINE
from tests.live import processes_of
from tests.supervise.harness import events_in, wait_for
from tests.ui.test_terminal import Terminal
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla

TASK = Path(__file__).parents[1] / "engine" / "mytask.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mytask.py").write_text(TASK.read_text())
    (tmp_path / "line.toml").write_text(LINE)
    return tmp_path


@pytest.fixture
def runs(folder: Path) -> Iterator[Path]:
    """The directory of the runs; no process of them is left."""
    yield folder / "runs"
    for run_dir in (folder / "runs").glob("*"):
        for pid in processes_of(run_dir):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_every_fold_is_trained_once_and_tabulated(folder: Path) -> None:
    result = tputui("folds", "line.toml", "--name", "cv", "--json", cwd=folder)
    assert result.code == 0, result.err
    printed = json.loads(result.out)
    assert [(fold["fold"], fold["run"], fold["state"]) for fold in printed["folds"]] == [
        (0, "cv-fold-0", "done"),
        (1, "cv-fold-1", "done"),
        (2, "cv-fold-2", "done"),
    ]
    losses = [fold["valid"]["loss"] for fold in printed["folds"]]
    assert printed["mean"]["loss"] == pytest.approx(statistics.fmean(losses))
    assert printed["std"]["loss"] == pytest.approx(statistics.stdev(losses))
    again = tputui("folds", "line.toml", "--name", "cv", "--no-ui", cwd=folder)
    assert again.code == 0, again.err
    head, *rows = again.out.splitlines()
    assert head.split() == ["fold", "run", "state", "best", "epoch", "loss"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "mean", "std"]
    assert len(list((folder / "runs").iterdir())) == 3


def test_folds_rejects_data_without_folds_and_explicit_fold(folder: Path) -> None:
    (folder / "digits.toml").write_text('task = "digits"\nepochs = 1\n[data]\nbatch_per_core = 8\n')
    assert "found no folds in this data" in one_sentence(tputui("folds", "digits.toml", cwd=folder))
    result = tputui("folds", "line.toml", "--set", "data.fold=1", cwd=folder)
    assert result.code == 2
    assert "folds trains every fold" in one_sentence(result)
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_a_signal_saves_and_stops_the_current_fold_and_starts_no_other(folder: Path, runs: Path) -> None:
    long = (folder / "line.toml").read_text().replace("epochs = 2", "epochs = 1000000")
    (folder / "long.toml").write_text(long)
    words = ["tputui", "folds", str(folder / "long.toml"), "--runs-dir", str(runs), "--name", "cv"]

    # The terminal is closed. Then the same command continues, and is ended by SIGTERM.
    terminal = Terminal(["env", "--chdir", str(folder), sys.executable, "-P", "-m", *words])
    terminal.until(lambda shown: b"epoch 2" in shown, DEADLINE_S)
    terminal.close()
    assert terminal.program.wait(DEADLINE_S) == 4
    first, second = runs / "cv-fold-0", runs / "cv-fold-0-2"
    assert processes_of(first) == []
    again = forked.PipedProcess("tests.forked_tree", words, cwd=folder, env=os.environ)
    try:
        wait_for(lambda: second.is_dir() and events_in(second, "worker-0", ev.EpochEnded), "an epoch")
        again.send_signal(signal.SIGTERM)
        printed, narrated = again.communicate(timeout=DEADLINE_S)
    finally:
        again.kill()

    assert again.returncode == 4
    assert "SIGTERM: requested save and stop" in narrated
    assert "the same command with --name cv continues" in narrated
    assert printed.splitlines()[-3].split()[:3] == ["0", "cv-fold-0-2", "stopped"]
    assert sorted(run_dir.name for run_dir in runs.iterdir()) == ["cv-fold-0", "cv-fold-0-2"]
    for run_dir, by in ((first, "SIGHUP"), (second, "SIGTERM")):
        assert processes_of(run_dir) == []
        (seen,) = {event.request for event in events_in(run_dir, "worker-0", ev.RequestSeen)}
        (ended,) = events_in(run_dir, "supervisor-0", ev.RunEnded)
        assert (ended.outcome, ended.exit_code) == ("stopped", 4)
        saved = events_in(run_dir, "worker-0", ev.CheckpointSaved)[-1]
        (trained,) = events_in(run_dir, "worker-0", ev.TrainingEnded)
        assert saved.step == trained.step
        assert by in "".join(path.read_text() for path in (run_dir / "requests").glob(f"*{seen}*"))

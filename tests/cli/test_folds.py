"""`tputui folds`: every fold in turn, and a table over them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.engine.workers import LINE

pytestmark = pytest.mark.xla

DEADLINE_S = 240.0
TASK = Path(__file__).parents[1] / "engine" / "mytask.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mytask.py").write_text(TASK.read_text())
    (tmp_path / "line.toml").write_text(LINE)
    return tmp_path


@pytest.mark.slow
def test_every_fold_is_trained_once_and_tabulated(folder: Path) -> None:
    result = tputui("folds", "line.toml", "--name", "cv", "--json", cwd=folder, deadline_s=DEADLINE_S)
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

"""`tputui predict` and `tputui export`: the run's own figures, whole files, refusals in one sentence."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import forked
from tests.cli.helpers import CommandResult, one_sentence
from tests.engine.workers import HERE, Run, make, runs_to_end
from tputui.cli.main import main
from tputui.telemetry import events as ev

pytestmark = [pytest.mark.xla, pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")]

SMALL = ["epochs=2", "device.cores=2", "model.channels=4", "data.batch_per_core=32", "optim.lr=0.01"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Digits, trained by the engine on two cores for two epochs."""
    return runs_to_end(make(tmp_path_factory.mktemp("runs"), "trained", SMALL))


def tputui(*words: str | Path, cwd: Path | None = None) -> CommandResult:
    """Runs `tputui WORDS` to its end with torch imported, without a terminal."""
    done = forked.run("tests.forked_tree", "tputui", *map(str, words), cwd=cwd)
    return CommandResult(done.returncode, done.stdout, done.stderr)


class Predicted(NamedTuple):
    """What one command wrote."""

    result: CommandResult
    out: Path
    """File of the predictions, alone in its directory."""


@pytest.fixture(scope="module")
def of_valid(trained: Run, tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    """Predictions of the validation examples."""
    folder = tmp_path_factory.mktemp("valid")
    result = tputui("predict", trained.dir, "--split", "valid", cwd=folder)
    return Predicted(result, folder / "predictions.csv")


@pytest.fixture(scope="module")
def of_file(trained: Run, tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    """Predictions of the labelled file."""
    source, folder = tmp_path_factory.mktemp("mine") / "mine.csv", tmp_path_factory.mktemp("file")
    digits_csv(source, labelled=True)
    result = tputui("predict", trained.dir, source, "--out", "out.csv", cwd=folder)
    return Predicted(result, folder / "out.csv")


def test_metrics_equal_the_validation_of_the_run(trained: Run, tmp_path: Path) -> None:
    result = tputui("predict", trained.dir, "--split", "valid", "--batch", "7", "--json", cwd=tmp_path)
    assert result.code == 0, result.err
    printed = json.loads(result.out)
    best = [epoch for epoch in trained.all(ev.EpochEnded) if epoch.best][-1]
    assert printed["rows"] == best.valid["loss"].count == 360
    assert printed["figures"]["loss"] == pytest.approx(best.valid["loss"].avg, rel=1e-5)
    assert printed["figures"]["accuracy"] == pytest.approx(best.valid["accuracy"].avg, rel=1e-12)
    assert printed["own_figure"] == {"loss": pytest.approx(best.valid["loss"].avg)}


def test_text_output_has_rows_path_and_both_metrics(of_valid: Predicted) -> None:
    result = of_valid.result
    assert result.code == 0
    # A slow command prints its progress.
    assert all("of 360 rows" in line for line in result.err.splitlines())
    rows, weights, figures, own = result.out.splitlines()
    assert rows.startswith("360 rows in ")
    assert rows.endswith(f"on the CPU, written to {of_valid.out}")
    assert weights.endswith("checkpoints/best.pt")
    assert figures.split()[::2] == ["loss", "accuracy"]
    assert own.startswith("validation of the run: loss ")
    assert [path.name for path in of_valid.out.parent.iterdir()] == ["predictions.csv"], (
        "something half-written was left"
    )


def test_existing_output_needs_force(trained: Run, tmp_path: Path) -> None:
    (tmp_path / "predictions.csv").write_text("mine")
    again = tputui("predict", trained.dir, "--split", "valid", cwd=tmp_path)
    assert again.code == 2
    assert one_sentence(again) == (
        f"tputui: {tmp_path}/predictions.csv: exists; choose another --out, or overwrite it with --force"
    )
    assert (tmp_path / "predictions.csv").read_text() == "mine"
    assert tputui("predict", trained.dir, "--split", "valid", "--force", cwd=tmp_path).code == 0
    assert (tmp_path / "predictions.csv").read_text().startswith("example,digit,")


def digits_csv(path: Path, *, labelled: bool) -> None:
    """The first 30 digits as a user would have them in a file, with their labels or without."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels, labels = digits.data[:30].astype(int), digits.target[:30].tolist()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"p{index}" for index in range(64)] + ["label"] * labelled)
        for row, label in zip(pixels.tolist(), labels, strict=True):
            writer.writerow(row + [label] * labelled)


def test_labelled_file_gets_metrics(of_file: Predicted) -> None:
    from sklearn.datasets import load_digits

    labels, result = load_digits().target[:30].tolist(), of_file.result
    assert result.code == 0, result.err
    with of_file.out.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["example"]) for row in rows] == list(range(30))
    right = sum(int(row["digit"]) == label for row, label in zip(rows, labels, strict=True))
    assert f"accuracy {right / 30:.6g}" in result.out
    assert right > 15, "two epochs distinguish digits better than chance"


def test_unlabelled_file_gets_same_predictions_no_metrics(trained: Run, of_file: Predicted, tmp_path: Path) -> None:
    digits_csv(tmp_path / "bare.csv", labelled=False)
    without = tputui("predict", trained.dir, "bare.csv", "--out", "-", "--batch", "30", cwd=tmp_path)
    assert without.out == of_file.out.read_text()
    assert without.out.splitlines()[0] == "example,digit,probability"
    assert 'tputui: No labels in input: metrics skipped (no "labels")' in without.err


def test_last_and_best_weights_differ(trained: Run, tmp_path: Path) -> None:
    result = tputui("predict", trained.dir, "--split", "valid", "--weights", "last", "--json", cwd=tmp_path)
    printed = json.loads(result.out)
    assert printed["weights"].endswith("last.pt")
    assert printed["own_figure"] is None, "the figure in a checkpoint is the best so far, not this one's"
    last = trained.all(ev.EpochEnded)[-1]
    assert printed["figures"]["loss"] == pytest.approx(last.valid["loss"].avg, rel=1e-5)


def test_checkpoint_file_is_sufficient(trained: Run, of_valid: Predicted, tmp_path: Path) -> None:
    shutil.copyfile(trained.dir / "checkpoints" / "best.pt", tmp_path / "sent.pt")
    alone = tputui("predict", "sent.pt", "--split", "valid", "--out", "-", cwd=tmp_path)
    assert alone.code == 0, alone.err
    assert alone.out == of_valid.out.read_text()


def test_exported_weights_work_without_tputui_or_run(trained: Run, of_file: Predicted, tmp_path: Path) -> None:
    import torch

    from engine.tasks.digits import convnet

    exported = tputui("export", trained.dir, "--to", "mine.pt", cwd=tmp_path)
    assert exported.code == 0, exported.err
    assert "read back and compared" in exported.out
    # As documented: weights.json beside weights.pt.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.json", "mine.pt"]
    for page in (tputui("export", "--help").out, (HERE.parents[1] / "docs" / "workloads.md").read_text()):
        assert "weights.json" in page
        assert ".pt.json" not in page
    model = convnet(channels=4, dropout=0.1)
    model.load_state_dict(torch.load(tmp_path / "mine.pt", weights_only=True))
    digits_csv(tmp_path / "mine.csv", labelled=False)
    alone = tputui("predict", "mine.pt", "mine.csv", "--out", "-", cwd=tmp_path)
    assert alone.code == 0, alone.err
    assert alone.out == of_file.out.read_text()
    pixels = torch.tensor([[float(cell) for cell in line.split(",")]
                           for line in (tmp_path / "mine.csv").read_text().splitlines()[1:]])  # fmt: skip
    with torch.inference_mode():
        digits = model.eval()((pixels / 16).view(-1, 1, 8, 8)).argmax(dim=1).tolist()
    assert [int(line.split(",")[1]) for line in alone.out.splitlines()[1:]] == digits


def test_the_runtime_is_never_imported(trained: Run, tmp_path: Path) -> None:
    weights = trained.dir / "checkpoints" / "last.pt"
    words = ["--weights", str(weights), "--run-dir", str(trained.dir), "--split", "valid", "--out", "out.csv"]
    done = forked.run("tests.engine.runtime_free", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "False"


def refusal(*words: str | Path, cwd: Path) -> str:
    result = tputui(*words, cwd=cwd)
    assert result.code == 2, result
    assert result.out == ""
    assert not (cwd / "predictions.csv").exists()
    return one_sentence(result)


def test_mismatched_input_is_rejected_in_one_sentence(trained: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    result = refusal("predict", trained.dir, "bad.csv", cwd=tmp_path)
    assert result == f"tputui: {tmp_path / 'bad.csv'}: an array of [1, 2] is not a list of 8 x 8 images"
    folder = refusal("predict", trained.dir, tmp_path, cwd=tmp_path)
    assert folder == f'tputui: {tmp_path}: a folder; the task "digits" reads a file'
    assert "choose another --out" in refusal(
        "predict", trained.dir, "--split", "valid", "--out", "no/where.csv", cwd=tmp_path
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nosuchrun", "--split", "valid"], "no such run"),
        (["untrained", "--split", "valid"], "the run has no weights"),
        (["untrained", "--split", "valid", "--weights", "last"], "the run has no last weights"),
        (["untrained", "x.csv", "--weights", "x.pt"], "x.pt: no such file; use best, last or a path"),
        (["untrained"], "give INPUT"),
        (["untrained", "bad.csv", "--split", "valid"], "not both"),
        (["untrained", "bad.csv", "--batch", "0"], "is not a whole number of 1 or more"),
    ],
)
def test_invalid_arguments_are_rejected_before_starting(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "untrained", SMALL)
    assert main(["--runs-dir", str(tmp_path), "predict", *words]) == 2
    result = capsys.readouterr()
    assert result.out == ""
    assert why in result.err
    assert len(result.err.splitlines()) == 1


def test_closed_reader_ends_quietly(trained: Run, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tputui", "predict", str(trained.dir), "--split", "train", "--out", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.stderr is not None
        # On a slow machine, progress is printed too.
        assert re.sub(rb"tputui: [\d,]+ of 1,437 rows\n", b"", process.stderr.read()) == b""
    assert process.returncode == 0

"""Labels of feature rows in a user's `.npy` files, through the real engine on two virtual cores."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine.workers import Run, make, runs_to_end
from tputui.telemetry import events as ev

torch = pytest.importorskip("torch")

from engine.checkpoint import weights  # noqa: E402
from engine.commands import predict  # noqa: E402
from engine.commands.protocol import ProgressWriter  # noqa: E402
from engine.data import arrays  # noqa: E402
from engine.data.options import ArrayData  # noqa: E402
from engine.errors import Refused  # noqa: E402
from engine.models.mlp import Mlp  # noqa: E402
from engine.tasks.tabular import Tabular, TabularData, TabularModel  # noqa: E402

NUM_ROWS, NUM_FEATURES = 240, 6
CONFIG = """
task = "tabular"
epochs = 3
[data]
source = "{folder}/x.npy"
labels_file = "{folder}/y.npy"
batch_per_core = 16
folds_by = "stratified"
[optim]
name = "adamw"
lr = 0.02
lr_scaling = "none"
[device]
cores = 2
[report]
every_batches = 4
"""


@pytest.fixture
def features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> npt.NDArray[np.float64]:
    """Features far from 0 with unequal deviations in x.npy; labels of three classes in y.npy; binary in b.npy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    values: npt.NDArray[np.float64] = np.random.default_rng(0).normal(size=(NUM_ROWS, NUM_FEATURES))
    np.save("y.npy", np.digitize(values[:, 0], (-0.5, 0.5)))
    np.save("b.npy", (values[:, :2] > (0, 1)).astype(np.int64))
    values *= 10.0 ** np.arange(-2, NUM_FEATURES - 2)
    values += 1e3 * np.arange(NUM_FEATURES)
    np.save("x.npy", values)
    return values


def trained(parent: Path, *overrides: str, exit_code: int = 0) -> Run:
    """A finished worker."""
    return runs_to_end(
        make(parent, "tabular", list(overrides), text=CONFIG.replace("{folder}", str(parent))), exit_code
    )


def predicted(run: Run, **arguments: Any) -> dict[str, Any]:
    """The reports of a prediction with the best weights."""
    at = {
        "force": True,
        "source": None,
        "split": None,
        "batch": 50,
        "out": str(run.dir / "out.csv"),
        "form": "csv",
        **arguments,
    }
    best = run.dir / "checkpoints" / "best.pt"
    return predict.predict(
        predict.PredictRequest(weights=best, run_dir=run.dir, **at), ProgressWriter(os.open(os.devnull, os.O_WRONLY))
    )


@pytest.mark.xla
def test_it_learns_classes_and_predicts_a_file_of_features(features: npt.NDArray[np.float64], tmp_path: Path) -> None:
    run = trained(tmp_path)
    epochs = run.all(ev.EpochEnded)
    assert epochs[-1].train["loss"].avg < 0.7 * epochs[0].train["loss"].avg
    assert {"auc", "ap", "auc 0", "auc 1", "auc 2"} <= epochs[-1].scores.keys()
    assert epochs[-1].scores["auc"] > 0.8
    result = predicted(run, split="valid")
    assert result["figures"]["loss"] == pytest.approx(result["own_figure"]["loss"], rel=1e-4)
    best = next(epoch for epoch in reversed(epochs) if epoch.best)
    wanted = {name: reading.avg for name, reading in best.valid.items()} | best.scores
    assert result["figures"] == pytest.approx(wanted, rel=1e-4)
    # The validation rows, given as the user's files, evaluate to the same values.
    valid = (
        Tabular()
        .load(TabularData(source=f"{tmp_path}/x.npy", labels_file=f"{tmp_path}/y.npy", folds_by="stratified"), 0)
        .valid
    )
    assert isinstance(valid, arrays.Arrays)
    np.save(tmp_path / "held.npy", features[valid.which])
    np.save(tmp_path / "held_labels.npy", np.load(tmp_path / "y.npy")[valid.which])
    held = predicted(run, source=tmp_path / "held.npy", labels=tmp_path / "held_labels.npy")
    assert held["figures"] == pytest.approx(wanted, rel=1e-4)
    np.save(tmp_path / "new.npy", features[:50].astype(np.float32))
    new = predicted(run, source=tmp_path / "new.npy")
    assert (new["rows"], new["figures"]) == (50, None)
    assert new["figures_reason"].startswith("No labels in input: metrics skipped")
    with (run.dir / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    hits = sum(int(row["class"]) == label for row, label in zip(rows, np.load(tmp_path / "y.npy"), strict=False))
    assert len(rows) == 50
    assert hits > 30, "a third would be chance"
    assert sum(float(rows[0][f"probability {label}"]) for label in range(3)) == pytest.approx(1, abs=1e-6)
    np.save(tmp_path / "narrow.npy", features[:5, :4])
    with pytest.raises(Refused, match=r"narrow\.npy has 4 features per row, .*x\.npy has 6"):
        predicted(run, source=tmp_path / "narrow.npy")


@pytest.mark.xla
def test_linear_model_learns_rare_labels_and_skips_bad_row(features: npt.NDArray[np.float64], tmp_path: Path) -> None:
    features[17, 3] = np.nan
    np.save("x.npy", features)
    keys = [
        f"data.labels_file={tmp_path}/b.npy",
        "data.label_kind=binary",
        'data.label=["up", "high"]',
        "data.balanced=true",
    ]
    run = trained(tmp_path, *keys, "model.hidden=[]", "data.max_bad_rows=1")
    epochs = run.all(ev.EpochEnded)
    assert epochs[-1].train["loss"].avg < epochs[0].train["loss"].avg
    assert epochs[-1].scores.keys() == {"auc", "ap", "auc up", "auc high"}
    (skipped,) = run.all(ev.ExampleSkipped)
    assert (skipped.where, skipped.why) == (f"{tmp_path}/x.npy row 17", "the features hold NaN or infinity")
    state = weights.read(run.dir / "checkpoints" / "best.pt").state
    assert {name for name in state if name.startswith("layers")} == set()


@pytest.mark.xla
def test_bad_row_without_allowance_ends_training(features: npt.NDArray[np.float64], tmp_path: Path) -> None:
    features[17, 3] = np.inf
    np.save("x.npy", features)
    run = trained(tmp_path, exit_code=3)
    assert "x.npy row 17: the features hold NaN or infinity" in run.one(ev.TrainingEnded).reason


def test_features_are_standardised_by_training_rows_only(features: npt.NDArray[np.float64]) -> None:
    features[:, 5] = 0.1
    features[3, 0] = 1e300
    np.save("x.npy", features)
    data = TabularData(source="x.npy", labels_file="y.npy")
    task = Tabular()
    splits = task.load(data, 0)
    net = task.model(TabularModel(), data)
    which = np.setdiff1d(splits.train.which, [3])  # type: ignore[attr-defined]
    assert len(which) < len(splits.train), "the row with a number too large for float32 is among those that train"
    mean, std = (net.state_dict()[name].numpy() for name in ("mean", "std"))
    assert np.allclose(mean, features[which].mean(axis=0))
    assert np.allclose(std[:5], features[which, :5].std(axis=0))
    assert std[5] == 1, "rounding must not pass for the spread of a feature that never changes"


@pytest.mark.parametrize("kind", [">f4", ">i2", "<u4", "uint8", "float16", "bool", "float64"])
def test_every_type_of_number_is_taken(features: npt.NDArray[np.float64], kind: str) -> None:
    held = (np.arange(NUM_ROWS * NUM_FEATURES).reshape(NUM_ROWS, NUM_FEATURES) % 2).astype(kind)
    np.save("x.npy", held)
    np.save("y.npy", (np.arange(NUM_ROWS) % 2).astype(kind))
    splits = arrays.load(ArrayData(source="x.npy", labels_file="y.npy"), 0)
    batch = splits.train.fetch(np.arange(4))
    assert batch["features"].float().tolist() == [[0, 1, 0, 1, 0, 1]] * 4
    assert batch["label"].tolist() == (splits.train.which[:4] % 2).tolist()  # type: ignore[attr-defined]
    assert Mlp(NUM_FEATURES, (), 2)(batch["features"]).shape == (4, 2)


def test_balanced_classes_weigh_the_same_in_the_loss(features: npt.NDArray[np.float64]) -> None:
    np.save("y.npy", (np.arange(NUM_ROWS) % 12 == 0).astype(np.int64))
    task = Tabular()
    data = TabularData(source="x.npy", labels_file="y.npy", balanced=True, folds_by="stratified")
    label = task.load(data, 0).train.fetch(np.arange(NUM_ROWS * 4 // 5))["label"]
    loss = task.outcomes({"logits": torch.zeros(len(label), 2)}, {"label": label})["loss"]
    assert float(loss[label == 1].sum()) == pytest.approx(float(loss[label == 0].sum()), rel=1e-5)


@pytest.mark.parametrize(("labels", "kind"), [("y.npy", "class"), ("b.npy", "binary")])
def test_the_loss_of_a_guess_is_that_of_the_frequencies_of_the_labels(
    features: npt.NDArray[np.float64], labels: str, kind: Any
) -> None:
    task, data = Tabular(), TabularData(source="x.npy", labels_file=labels, label_kind=kind, folds_by="stratified")
    task.configure(data, TabularModel())
    train = task.load(data, 0).train
    label = train.fetch(np.arange(len(train)))["label"]
    if kind == "class":
        logits = torch.log(torch.bincount(label) / len(label)).expand(len(label), -1)
    else:
        logits = torch.logit(label.float().mean(0)).expand(len(label), -1)
    loss = task.outcomes({"logits": logits}, {"label": label})["loss"]
    assert task.guess_loss == pytest.approx(float(loss.mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": "x.xlsx"}, "data.source: name a table (.csv"),
        ({"source": "x.csv"}, "data.labels_file: a table has columns"),
        ({"features": ["a"]}, "data.features: a .npy file has no columns"),
        ({"labels_file": ""}, "data.labels_file: name the .npy file of the labels"),
        ({"labels_file": "b.npy"}, 'label_kind = "class" takes one column, and 2 are named'),
        ({"labels_file": "none.npy"}, "none.npy: no such file"),
    ],
)
def test_unusable_columns_are_rejected_with_key(
    features: npt.NDArray[np.float64], keys: dict[str, Any], message: str
) -> None:
    options = TabularData(**{"source": "x.npy", "labels_file": "y.npy", **keys})
    with pytest.raises((Refused, ValueError, OSError)) as caught:
        Tabular().sizes(options, 0)
    assert message in str(caught.value)

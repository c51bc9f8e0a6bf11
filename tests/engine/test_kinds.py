"""Feature tables, regression and texts of several classes, each configured without code."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from engine import run_plan
from engine.commands import describe, predict
from engine.commands.protocol import ProgressWriter
from engine.process import hardware
from engine.task import Plan, Splits
from tests.engine.workers import Run, make, runs_to_end
from tputui import config
from tputui.telemetry import events as ev

NUM_ROWS = 240
TABLE = """
task = "tabular"
epochs = 8
[data]
source = "{folder}/houses.csv"
label = "price"
label_kind = "float"
id = "house"
group = "street"
folds_by = "group"
batch_per_core = 16
[optim]
lr = 0.01
lr_scaling = "none"
[device]
cores = 2
[report]
every_batches = 4
"""
TEXTS = """
task = "sentiment"
epochs = 1
[data]
source = "{folder}/letters.csv"
label = "topic"
label_kind = "class"
length = 6
max_words = 30
batch_per_core = 8
[model]
embedding = 4
hidden = 4
[device]
cores = 1
"""
HERE = hardware.Machine("CPU", 0, 0, "a test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """houses.csv and .parquet: a price far from 0 that follows two columns; letters.csv: texts of three topics."""
    path = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(0)
    area, rooms = rng.uniform(40, 200, NUM_ROWS).round(1), rng.integers(1, 7, NUM_ROWS)
    frame = pl.DataFrame(
        {
            "house": [f"h{number}" for number in range(NUM_ROWS)],
            "area": area,
            "street": rng.integers(0, 40, NUM_ROWS),
            "rooms": rooms,
            "price": 100_000 + 2_000 * area + 15_000 * rooms,
        }
    )
    frame.write_csv(path / "houses.csv")
    frame.write_parquet(path / "houses.parquet")
    words = {"sport": "goal ball team", "law": "court judge claim", "food": "bread salt oven"}
    rows = [f"{text},{topic}" for topic, text in words.items() for _ in range(20)]
    (path / "letters.csv").write_text("text,topic\n" + "\n".join(rows) + "\n")
    return path


def planned(text: str, folder: Path, *overrides: str) -> Plan:
    parsed = config.parse(text.replace("{folder}", str(folder)), "t.toml", list(overrides))
    return run_plan.make(parsed, HERE, "t.toml")


def loaded(made: Plan) -> Splits:
    return made.task.load(made.data, made.config.seed)


def problem(text: str, folder: Path, *overrides: str) -> str:
    parsed = config.parse(text.replace("{folder}", str(folder)), "t.toml", list(overrides))
    (found,) = describe.check(parsed, HERE, "t.toml").problems
    return found.sentence


def one_step(made: Plan) -> dict[str, Any]:
    """Outcomes and scores of a few validation examples under fresh weights."""
    splits = loaded(made)
    torch.manual_seed(0)
    model = made.task.model(made.model, made.data).eval()
    batch = splits.valid.fetch(np.arange(len(splits.valid)))
    with torch.no_grad():
        predictions = made.task.predict(model, batch)
        outcomes = made.task.outcomes(predictions, batch)
        judged = {name: tensor.numpy() for name, tensor in made.task.judged(predictions, batch).items()}
    assert set(outcomes) == set(made.task.meters)
    assert all(values.shape == (len(splits.valid),) for values in outcomes.values())
    arrays = {name: tensor.numpy() for name, tensor in predictions.items()}
    return {"outcomes": outcomes, "scores": made.task.score(judged), "columns": made.task.columns(arrays)}


@pytest.mark.parametrize("name", ["houses.csv", "houses.parquet"])
def test_features_are_the_columns_that_no_other_key_names(folder: Path, name: str) -> None:
    train = loaded(planned(TABLE, folder, f"data.source={folder}/{name}")).train
    batch = train.fetch(np.array([0, 1]))
    frame = pl.read_parquet(folder / "houses.parquet")
    row = train.which[0]  # type: ignore[attr-defined]
    assert batch["features"][0].tolist() == pytest.approx([frame["area"][int(row)], frame["rooms"][int(row)]])
    assert batch["label"].shape == (2, 1)
    named = planned(TABLE, folder, f"data.source={folder}/{name}", 'data.features=["rooms"]')
    assert loaded(named).train.fetch(np.array([0]))["features"].shape == (1, 1)


def test_csv_and_parquet_split_equally(folder: Path) -> None:
    one, other = (loaded(planned(TABLE, folder, f"data.source={folder}/houses.{s}")) for s in ("csv", "parquet"))
    assert np.array_equal(one.valid.which, other.valid.which)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,2,0\n,2,1\n", "t.csv row 3, column a: the cell is empty"),
        ("1,2,0\n3,big,1\n", "t.csv row 3, column b: big is not a finite number"),
        ("1,2,0\n3,inf,1\n", "t.csv row 3, column b: inf is not a finite number"),
        ("1,2,0\n3,NaN,1\n", "t.csv row 3, column b: NaN is not a finite number"),
        ("1,red,0\n3,blue,1\n", 'the column "b" holds text, not numbers; name the numeric columns in data.fea'),
    ],
)
def test_non_numeric_cell_is_rejected_by_row_and_column(tmp_path: Path, rows: str, message: str) -> None:
    rest = "5,green,1\n" if "red" in rows else "5,6,1\n"
    (tmp_path / "t.csv").write_text(f"a,b,price\n{rows}" + rest * 40)
    plain = ['data.id=""', 'data.group=""', "data.folds_by=kfold", f"data.source={tmp_path}/t.csv"]
    assert message in problem(TABLE, tmp_path, *plain).replace(f"{tmp_path}/", "")


def test_empty_table_and_unknown_columns_are_rejected(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "houses.csv").write_text("")
    assert "is empty; its first row must name the columns" in problem(TABLE, tmp_path)
    (tmp_path / "houses.csv").write_text("house,area,street,rooms,price\n")
    assert "has no usable row" in problem(TABLE, tmp_path)
    assert 'did you mean "rooms"?' in problem(TABLE, folder, 'data.features=["romos"]')
    assert "data.balanced" in problem(TABLE, folder, "data.balanced=true")
    assert "data.labels_file" in problem(TABLE, folder, "data.labels_file=y.npy")
    assert "its figures: loss, mae, rmse, r2" in problem(TABLE, folder, "checkpoint.monitor=auc")


def test_targets_are_standardised_but_reported_in_units(folder: Path) -> None:
    found = one_step(planned(TABLE, folder))
    # Fresh weights predict about the mean: a loss about 1, whatever the unit of the label.
    assert 0.3 < float(found["outcomes"]["loss"].mean()) < 4
    assert float(found["outcomes"]["mae"].mean()) > 10_000
    assert set(found["scores"]) == {"rmse", "r2"}
    assert found["scores"]["rmse"] >= float(found["outcomes"]["mae"].mean())
    assert 50_000 < float(found["columns"]["predicted price"].mean()) < 900_000


def test_multi_class_texts_need_only_configuration(folder: Path) -> None:
    found = one_step(planned(TEXTS, folder))
    assert {"auc", "ap", "auc food", "auc law", "auc sport"} == set(found["scores"])
    assert set(found["columns"]) == {"class", "probability food", "probability law", "probability sport"}
    assert set(found["columns"]["class"]) <= {"food", "law", "sport"}


@pytest.mark.xla
def test_price_table_trains_and_predicts_from_other_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run: Run = runs_to_end(make(folder, "houses", [], text=TABLE.replace("{folder}", str(folder))))
    epochs = run.all(ev.EpochEnded)
    assert epochs[-1].scores["r2"] > max(0.8, epochs[0].scores["r2"])
    frame = pl.read_parquet(folder / "houses.parquet")
    new = frame.head(50).select("rooms", "house", "price", pl.lit("x").alias("note"), "area")
    new.write_csv(folder / "new.csv")
    request = predict.PredictRequest(
        weights=run.dir / "checkpoints" / "last.pt",
        run_dir=run.dir,
        source=folder / "new.csv",
        split=None,
        batch=20,
        out=str(folder / "out.csv"),
        form="csv",
        force=True,
    )
    result = predict.predict(request, ProgressWriter(os.open(os.devnull, os.O_WRONLY)))
    assert result["figures"]["r2"] > 0.8
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == new["house"].to_list()
    distance = np.abs(np.array([float(row["predicted price"]) for row in rows]) - new["price"].to_numpy())
    assert distance.mean() == pytest.approx(result["figures"]["mae"], rel=1e-4)

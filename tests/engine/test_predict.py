"""Predictions in this process: batch sizes, output formats, and refusals."""

from __future__ import annotations

import csv
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine import no_checkpoints
from tests.engine.predicting import predicted, refused, saved
from tests.engine.workers import LINE

pytestmark = [pytest.mark.xla, pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")]
torch = pytest.importorskip("torch")
pytest.importorskip("polars")


@pytest.fixture(autouse=True)
def _place_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Loading weights changes the working directory; the test runs it in a separate process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_metrics_and_rows_do_not_depend_on_batch_size(tmp_path: Path) -> None:
    run_dir = saved(tmp_path, "model.channels=4")
    result = {size: predicted(run_dir, f"{size}.csv", split="valid", batch=size) for size in (1, 7, 64, 1000)}
    rows = {size: list(csv.reader((tmp_path / f"{size}.csv").read_text().splitlines()))[1:] for size in result}
    for size in (1, 7, 64):
        assert result[size]["figures"]["loss"] == pytest.approx(result[1000]["figures"]["loss"], rel=1e-6)
        assert result[size]["figures"]["accuracy"] == result[1000]["figures"]["accuracy"]
        assert [row[:2] for row in rows[size]] == [row[:2] for row in rows[1000]]
    assert result[7]["rows"] == len(rows[7]) == 360
    assert (result[7]["step"], result[7]["own_figure"]) == (9, {"loss": 1.5})


def test_training_and_validation_examples_are_disjoint(tmp_path: Path) -> None:
    run_dir = saved(tmp_path, "model.channels=4", "data.valid_fraction=0.5")
    train = predicted(run_dir, split="train")
    assert (train["rows"], train["own_figure"]) == (898, None)
    assert predicted(run_dir, split="valid")["rows"] == 899


def test_csv_json_lines_and_arrays_agree(tmp_path: Path) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    run_dir = saved(tmp_path, "model.channels=4")
    np.save(tmp_path / "images.npy", load_digits().images[:20])
    for name, form in (("a.csv", "csv"), ("a.jsonl", "jsonl"), ("a.npz", "npz")):
        predicted(run_dir, name, form, source=tmp_path / "images.npy", batch=6)
    table = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    with np.load(tmp_path / "a.npz") as raw:
        assert raw["logits"].shape == (20, 10)
        likeliest = raw["logits"].argmax(axis=1).tolist()
    assert [int(row["digit"]) for row in table] == [line["digit"] for line in lines] == likeliest
    assert [float(row["probability"]) for row in table] == [line["probability"] for line in lines]
    assert [line["example"] for line in lines] == list(range(20))


def test_non_numeric_columns_pass_and_wide_are_numbered(tmp_path: Path) -> None:
    import numpy as np

    from engine.commands.predict import open_table

    for form in ("csv", "jsonl"):
        with open_table(str(tmp_path / form), form) as table:
            table.add(np.arange(2), {"x": np.array([np.nan, 0.1], np.float32), "y": np.array([[1, 2], [3, 4]])})
    assert (tmp_path / "csv").read_text() == "example,x,y_0,y_1\n0,nan,1,2\n1,0.1,3,4\n"
    first, second = (tmp_path / "jsonl").read_text().splitlines()
    assert first == '{"example": 0, "x": "NaN", "y_0": 1, "y_1": 2}'
    assert json.loads(second)["x"] == 0.1


def test_too_wide_predictions_are_rejected_without_file(tmp_path: Path) -> None:
    import numpy as np

    from engine.commands.predict import open_table
    from engine.errors import Refused

    with (
        pytest.raises(Refused, match=r'"mask" has 9,216 values per example.*use --out FILE.npz'),
        open_table(str(tmp_path / "wide.csv"), "csv") as table,
    ):
        table.add(np.arange(1), {"mask": np.zeros((1, 96, 96))})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "no rows; the first row names the columns, and each row below is an image"),
        ("a,b\n", "no rows; the first row names the columns, and each row below is an image"),
        ("a,b\n1,2\n", "an array of [1, 2] is not a list of 8 x 8 images"),
        ("a,b\n1\n", "row 1 has 1 cells where the header has 2"),
        ("a,b\n1,x\n", "row 1: could not convert string to float: 'x'"),
        (",".join("p" * 64) + ",label\n" + "1," * 64 + "11\n", "row 1: the label is not a digit from 0 to 9"),
        (",".join("p" * 64) + "\n" + "1," * 63 + "17\n", "row 1: pixel 64 is not from 0 to 16"),
    ],
)
def test_mismatched_file_is_rejected_by_row(tmp_path: Path, content: str, why: str) -> None:
    run_dir = saved(tmp_path, "model.channels=4")
    (tmp_path / "mine.csv").write_text(content)
    assert refused(run_dir, source=tmp_path / "mine.csv") == f"{tmp_path / 'mine.csv'}: {why}"


WORDS = """
task = "sentiment"
epochs = 1
[data]
source = "{source}"
length = 8
max_words = 40
batch_per_core = 4
[model]
embedding = 4
hidden = 4
[device]
cores = 1
"""


def test_texts_use_the_vocabulary_in_the_weights(tmp_path: Path) -> None:
    rows = [f"{'good fine super' if label else 'bad poor dull'} film {label},{label}\n" for label in (0, 1) * 6]
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(rows))
    run_dir = saved(tmp_path, text=WORDS.format(source=tmp_path / "train.csv"))
    (tmp_path / "mine.csv").write_text("text\ngood fine super film 1\nbad poor dull film 0\nnever seen words\n")
    for size in (1, 3):
        assert predicted(run_dir, f"{size}.csv", source=tmp_path / "mine.csv", batch=size)["rows"] == 3
    good, bad, unknown = (tmp_path / "3.csv").read_text().splitlines()[1:]
    assert len({line.split(",")[1] for line in (good, bad, unknown)}) == 3
    assert predicted(run_dir, split="valid")["rows"] == 3


def test_task_without_file_input_states_alternatives(tmp_path: Path) -> None:
    run_dir = saved(tmp_path, text=LINE)
    assert predicted(run_dir, split="valid")["rows"] == 40
    said = refused(run_dir, source=tmp_path / "mine.csv")
    assert (
        said == 'input: the task "mytask:Line" cannot predict files: it does not define inputs(); --split valid works'
    )


def test_split_prediction_skips_allowed_bad_rows(tmp_path: Path) -> None:
    import numpy as np

    features = np.random.default_rng(0).normal(size=(30, 2))
    features[[3, 4]] = np.nan
    np.save(tmp_path / "x.npy", features)
    np.save(tmp_path / "y.npy", np.arange(30) % 2)
    text = f"""
task = "tabular"
epochs = 1
[data]
source = "{tmp_path}/x.npy"
labels_file = "{tmp_path}/y.npy"
batch_per_core = 2
[device]
cores = 1
"""
    strict = saved(tmp_path, "data.max_bad_rows=1", text=text, name="strict")
    said = refused(strict, split="train", batch=5)
    assert said == f"{tmp_path}/x.npy row 4: the features hold NaN or infinity"
    run_dir = saved(tmp_path, "data.max_bad_rows=2", text=text)
    result = [predicted(run_dir, f"{split}.csv", split=split, batch=5) for split in ("train", "valid")]
    assert sum(one["rows"] for one in result) == 28
    assert all(np.isfinite(one["figures"]["loss"]) for one in result)
    assert "row 3: the features hold NaN" in refused(run_dir, source=tmp_path / "x.npy")


def test_no_text_of_predictions_as_csv_is_a_formula(tmp_path: Path) -> None:
    import numpy as np

    from engine.commands.predict import open_table

    files = np.array(["=cmd()", "-a.png", "b.png", "-0.5"])
    with open_table(str(tmp_path / "a.csv"), "csv") as table:
        table.add(np.arange(4), {"file": files, "score": np.array([-1.5, -0.5, 1.0, -np.inf])})
    assert (tmp_path / "a.csv").read_text() == (
        "example,file,score\n0,'=cmd(),-1.5\n1,'-a.png,-0.5\n2,b.png,1.0\n3,-0.5,-inf\n"
    )


def test_unusable_weights_state_reason(tmp_path: Path) -> None:
    run_dir = saved(tmp_path, "model.channels=4")
    (tmp_path / "noise.pt").write_bytes(b"noise")
    torch.save({"a": 1}, tmp_path / "other.pt")
    wider = saved(tmp_path, "model.channels=8", name="wider") / "checkpoints" / "best.pt"
    assert "noise.pt: cannot be read as weights" in refused(run_dir, split="valid", weights=tmp_path / "noise.pt")
    assert "neither a checkpoint nor a state dict" in refused(run_dir, split="valid", weights=tmp_path / "other.pt")
    assert "size mismatch for features.0.weight" in refused(run_dir, split="valid", weights=wider)
    assert "no such file" in refused(run_dir, split="valid", weights=tmp_path / "gone.pt")


def test_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    run_dir = saved(tmp_path, "model.channels=4")
    for kind, content in no_checkpoints.FILES.items():
        path = tmp_path / f"{kind}.pt"
        path.write_bytes(content)
        sentence = refused(run_dir, split="valid", weights=path)
        assert sentence.startswith(f"weights: {path}: ")
        assert "\n" not in sentence
        assert "weights_only" not in sentence


def test_class_in_a_weights_file_is_named(tmp_path: Path) -> None:
    run_dir = saved(tmp_path, "model.channels=4")
    path = tmp_path / "model.pt"
    path.write_bytes(no_checkpoints.FILES["saved-class"])
    assert refused(run_dir, split="valid", weights=path) == (
        f"weights: {path}: cannot be read as weights: it contains tests.engine.no_checkpoints.Greeting, "
        "and only tensors and plain values are loaded from a file"
    )


def test_bare_state_dict_has_no_configuration(tmp_path: Path) -> None:
    from engine.checkpoint import weights
    from engine.commands.export import export
    from engine.errors import Refused

    run_dir = saved(tmp_path, "model.channels=4")
    result = export(run_dir / "checkpoints" / "best.pt", run_dir, tmp_path / "mine.pt")
    os.chdir(tmp_path)
    assert (result["step"], result["tensors"]) == (9, 14)
    alone = weights.read(tmp_path / "mine.pt")
    assert (alone.step, alone.figure) == (9, 1.5)
    weights.network(weights.workload(weights.origin(alone, None), None), alone)
    os.chdir(tmp_path)
    (tmp_path / "mine.json").unlink()
    with pytest.raises(Refused, match="contains no configuration; name its run"):
        weights.origin(weights.read(tmp_path / "mine.pt"), None)


def test_export_overwrites_only_its_own_files(tmp_path: Path) -> None:
    from engine.commands.export import export
    from engine.errors import Refused

    run_dir = saved(tmp_path, "model.channels=4")
    (tmp_path / "config.json").write_text('{"mine": 1}')
    for name, why in (
        ("config.pt", "is not a description of weights and would be overwritten"),
        ("x.json", "are .pt or"),
    ):
        with pytest.raises(Refused, match=why):
            export(run_dir / "checkpoints" / "best.pt", run_dir, tmp_path / name)
        assert not (tmp_path / name).exists()
    assert (tmp_path / "config.json").read_text() == '{"mine": 1}'
    (tmp_path / "precious.pt").write_bytes(b"mine")
    with pytest.raises(Refused, match=r"exists and was not written by export \(precious\.json is missing\)"):
        export(run_dir / "checkpoints" / "best.pt", run_dir, tmp_path / "precious.pt")
    assert (tmp_path / "precious.pt").read_bytes() == b"mine"
    for _ in range(2):
        export(run_dir / "checkpoints" / "best.pt", run_dir, tmp_path / "own.pt")


def test_safetensors_round_trip_or_are_rejected(tmp_path: Path) -> None:
    from engine.checkpoint import weights
    from engine.commands.export import export
    from engine.errors import Refused

    run_dir, target = saved(tmp_path, "model.channels=4"), tmp_path / "mine.safetensors"
    source = run_dir / "checkpoints" / "best.pt"
    if not weights.has_safetensors():
        with pytest.raises(Refused, match="the package safetensors is not installed"):
            export(source, run_dir, target)
        assert not target.exists()
        return
    export(source, run_dir, target)
    found, wanted = weights.read(target).state, weights.read(source).state
    assert all(torch.equal(found[name], wanted[name]) for name in found.keys() | wanted.keys())

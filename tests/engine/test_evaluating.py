"""Evaluation of a user's files equals validation: same names and arithmetic for every source."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from pathlib import Path

import pytest

from tests.engine.predicting import predicted, refused, saved

pytestmark = pytest.mark.xla
np = pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("polars")
Image = pytest.importorskip("PIL.Image")

CLASSES = ("bird", "cat", "dog")
IMAGES = """
task = "image_labels"
epochs = 1
[data]
source = "{source}"
size = [32, 32]
batch_per_core = 4
{keys}
[model]
net = "thin"
width = 0.1
[device]
cores = 1
"""
MAPS = IMAGES.replace("image_labels", "mask_depth").replace('net = "thin"\nwidth = 0.1', 'encoder = "thin"\nwidth = 4')
TEXTS = IMAGES.replace("image_labels", "sentiment").replace("size = [32, 32]", "length = 8\nmax_words = 40")
TEXTS = TEXTS.replace('net = "thin"\nwidth = 0.1', "embedding = 4\nhidden = 4")


@pytest.fixture(autouse=True)
def _place_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Loading weights changes the working directory; the test runs it in a separate process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows that were written."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def draw(path: Path, seed: int) -> None:
    """A small image that is unique for its seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def table(path: Path, header: str, rows: list[str]) -> Path:
    """A CSV."""
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def photos(folder: Path, splits: tuple[str, ...] = ("train", "train", "train", "valid", "test")) -> Path:
    """30 images with an uneven class and two binary labels each, an id, and a split."""
    rows = []
    for number in range(30):
        draw(folder / "pixels" / f"{number}.png", number)
        label = CLASSES[(number * number) % 3 if number % 7 else 2]
        split = splits[number % len(splits)]
        rows.append(f"p{number:02d},pixels/{number}.png,{label},{number % 2},{int(number % 5 == 0)},{split}")
    return table(folder / "all.csv", "name,image,label,odd,fifth,split", rows)


def part(source: Path, split: str, drop: tuple[str, ...] = ("split",)) -> Path:
    """The rows of one split as a separate table, without some columns."""
    with source.open(newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["split"] == split]
    columns = [name for name in kept[0] if name not in drop]
    lines = [",".join(row[name] for name in columns) for row in kept]
    return table(source.with_name(f"{split}-{len(drop)}.csv"), ",".join(columns), lines)


CLASS_KEYS = 'split_column = "split"\nid = "name"\n'
BINARY_KEYS = 'split_column = "split"\nlabel = ["odd", "fifth"]\nlabel_kind = "binary"\nbalanced = true\n'


@pytest.mark.parametrize("keys", [CLASS_KEYS, CLASS_KEYS + "balanced = true\n", BINARY_KEYS])
def test_labelled_table_gets_validation_metrics(tmp_path: Path, keys: str) -> None:
    source = photos(tmp_path)
    run_dir = saved(tmp_path, text=IMAGES.format(source=source, keys=keys))
    valid = predicted(run_dir, split="valid")
    given = predicted(run_dir, "given.csv", source=part(source, "valid"))
    assert valid["rows"] == given["rows"] == 6
    assert given["figures"] == pytest.approx(valid["figures"], rel=1e-6, nan_ok=True)
    assert {"loss", "accuracy", "auc", "ap"} <= given["figures"].keys()
    assert [row for row in rows_of(tmp_path / "given.csv") if row.pop("example")] == [
        row for row in rows_of(tmp_path / "out.csv") if row.pop("example")
    ]


def test_ids_and_files_are_written_without_labels(tmp_path: Path) -> None:
    source = photos(tmp_path)
    run_dir = saved(tmp_path, text=IMAGES.format(source=source, keys=CLASS_KEYS))
    prediction = predicted(run_dir, source=part(source, "test", drop=("split", "label")))
    assert prediction["figures"] is None
    assert prediction["figures_reason"] == 'No labels in input: metrics skipped (no "label")'
    assert [(row["id"], row["file"]) for row in rows_of(tmp_path / "out.csv")] == [
        (f"p{number:02d}", f"pixels/{number}.png") for number in range(4, 30, 5)
    ]


def test_split_test_evaluates_rows_marked_test(tmp_path: Path) -> None:
    source = photos(tmp_path)
    run_dir = saved(tmp_path, text=IMAGES.format(source=source, keys=CLASS_KEYS))
    split = predicted(run_dir, "split.csv", split="test")
    given = predicted(run_dir, "given.csv", source=part(source, "test"))
    assert split["rows"] == given["rows"] == 6
    assert split["figures"] == given["figures"]
    assert (tmp_path / "split.csv").read_text() == (tmp_path / "given.csv").read_text()
    untested = photos(tmp_path / "untested", splits=("train", "valid"))
    other = saved(tmp_path, text=IMAGES.format(source=untested, keys=CLASS_KEYS), name="other")
    assert 'no row has "test" in column split' in refused(other, split="test")
    plain = saved(tmp_path, text=IMAGES.format(source=untested, keys=""), name="plain")
    assert "data.split_column is not set, so there is no test split" in refused(plain, split="test")


def test_missing_or_unknown_label_names_its_row(tmp_path: Path) -> None:
    source = photos(tmp_path)
    run_dir = saved(tmp_path, text=IMAGES.format(source=source, keys=CLASS_KEYS))
    rows = ["p0,pixels/0.png,cat", "p1,pixels/1.png,", "p2,pixels/2.png,dog"]
    header = "name,image,label"
    said = refused(run_dir, source=table(tmp_path / "gaps.csv", header, rows))
    assert said == (
        f"{tmp_path}/gaps.csv row 3, column label: the label is empty and others are not; label every row, or remove "
        "all labels to predict without metrics"
    )
    wrong = table(tmp_path / "wrong.csv", header, [rows[0], "p1,pixels/1.png,horse"])
    assert f'{wrong} row 3, column label: "horse" is not one of the classes bird, cat, dog' in refused(
        run_dir, source=wrong
    )
    blank = table(tmp_path / "blank.csv", header, ["p0,pixels/0.png,", "p1,pixels/1.png,"])
    assert predicted(run_dir, source=blank)["figures"] is None


def test_folder_names_are_labels_and_file_names_are_written(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("valid", 2), ("test", 3)):
        for place, label in enumerate(CLASSES):
            for number in range(count):
                draw(tmp_path / "set" / split / label / f"{number}.png", 100 * count + 10 * place + number)
    run_dir = saved(tmp_path, text=IMAGES.format(source=tmp_path / "set", keys=""))
    valid = predicted(run_dir, split="valid")
    given = predicted(run_dir, "given.csv", source=tmp_path / "set" / "valid")
    assert given["figures"] == pytest.approx(valid["figures"], rel=1e-6)
    assert [row["file"] for row in rows_of(tmp_path / "given.csv")][:3] == ["bird/0.png", "bird/1.png", "cat/0.png"]
    assert predicted(run_dir, split="test")["rows"] == 9
    flat = tmp_path / "flat"
    flat.mkdir()
    shutil.copy(tmp_path / "set" / "test" / "cat" / "0.png", flat / "a.png")
    prediction = predicted(run_dir, "flat.csv", source=flat)
    assert prediction["figures"] is None
    assert [row["file"] for row in rows_of(tmp_path / "flat.csv")] == ["a.png"]
    (flat / "dog").mkdir()
    shutil.copy(flat / "a.png", flat / "dog" / "b.png")
    assert "a.png: the label is empty and others are not" in refused(run_dir, source=flat)
    # The same class folders below any other folders.
    assert predicted(run_dir, source=tmp_path / "set")["rows"] == 27


def test_tfrecords_are_evaluated_if_they_hold_the_label(tmp_path: Path) -> None:
    from tests.engine.data.files import write_records

    def records(numbers: range, *, labelled: bool) -> list[dict[str, object]]:
        found = []
        for number in numbers:
            pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            with io.BytesIO() as encoded:
                Image.fromarray(pixels).save(encoded, "png")
                record: dict[str, object] = {"image": encoded.getvalue(), "name": f"r{number}".encode()}
            found.append({**record, "label": number % 3} if labelled else record)
        return found

    write_records(tmp_path / "train.tfrec", records(range(12), labelled=True))
    keys = 'id = "name"\nnum_classes = 3\nfeatures = {image = "byte", label = "int"}\n'
    run_dir = saved(tmp_path, text=IMAGES.format(source=tmp_path / "train.tfrec", keys=keys))
    write_records(tmp_path / "mine.tfrec", records(range(20, 26), labelled=True))
    write_records(tmp_path / "bare.tfrec", records(range(20, 26), labelled=False))
    labelled = predicted(run_dir, source=tmp_path / "mine.tfrec")
    bare = predicted(run_dir, "bare.csv", source=tmp_path / "bare.tfrec")
    assert labelled["figures"].keys() == predicted(run_dir, "valid.csv", split="valid")["figures"].keys()
    assert bare["figures"] is None
    assert [(row["id"], row["file"], row["record"]) for row in rows_of(tmp_path / "bare.csv")][:2] == [
        ("r20", "bare.tfrec", "0"),
        ("r21", "bare.tfrec", "1"),
    ]


def test_masks_and_depths_of_an_input_are_evaluated(tmp_path: Path) -> None:
    rows = []
    for number in range(10):
        draw(tmp_path / f"{number}.png", number)
        noise = np.random.default_rng(50 + number)
        mask = noise.integers(0, 2, (8, 8), dtype=np.uint8) * 255
        Image.fromarray(mask).save(tmp_path / f"m{number}.png")
        np.save(tmp_path / f"d{number}.npy", noise.uniform(0.5, 2, (8, 8)).astype(np.float32))
        rows.append(f"{number}.png,m{number}.png,d{number}.npy,{'valid' if number < 4 else 'train'}")
    source = table(tmp_path / "frames.csv", "image,mask,depth,split", rows)
    run_dir = saved(tmp_path, text=MAPS.format(source=source, keys='split_column = "split"'))
    valid = predicted(run_dir, split="valid")
    assert set(valid["figures"]) == {"loss", "mask_loss", "depth_loss", "iou", "depth_mae"}
    given = predicted(run_dir, "given.csv", source=part(source, "valid"))
    assert given["figures"] == pytest.approx(valid["figures"], rel=1e-6)
    bare = predicted(run_dir, "bare.csv", source=part(source, "valid", drop=("split", "mask", "depth")))
    assert (bare["rows"], bare["figures"]) == (4, None)
    short = table(tmp_path / "short.csv", "image,mask,depth", ["0.png,m0.png,d0.npy", "1.png,gone.png,d1.npy"])
    assert f"{short} row 3, column mask: there is no file {tmp_path}/gone.png" in refused(run_dir, source=short)


def test_texts_with_labels_are_evaluated(tmp_path: Path) -> None:
    splits = ("train", "train", "valid", "test")
    rows = [f"{'good fine' if number % 3 else 'bad dull'} film {number},{number % 2},{splits[number % 4]}"
            for number in range(24)]  # fmt: skip
    source = table(tmp_path / "texts.csv", "text,label,split", rows)
    run_dir = saved(tmp_path, text=TEXTS.format(source=source, keys='split_column = "split"'))
    valid = predicted(run_dir, split="valid")
    given = predicted(run_dir, "given.csv", source=part(source, "valid"))
    # Half of the texts are positive, so the AUC is defined, but the six of a split may be of one kind.
    assert given["figures"] == pytest.approx(valid["figures"], rel=1e-6, nan_ok=True)
    assert [row["row"] for row in rows_of(tmp_path / "given.csv")] == [str(number) for number in range(2, 8)]
    assert [row["row"] for row in rows_of(tmp_path / "out.csv")] == [str(number) for number in range(4, 26, 4)]
    assert predicted(run_dir, split="test")["rows"] == 6


def test_existing_file_needs_force(tmp_path: Path) -> None:
    source = photos(tmp_path)
    run_dir = saved(tmp_path, text=IMAGES.format(source=source, keys=CLASS_KEYS))
    (tmp_path / "out.csv").write_text("mine")
    said = refused(run_dir, split="valid", force=False)
    assert said == f"{tmp_path}/out.csv: exists; choose another --out, or overwrite it with --force"
    assert (tmp_path / "out.csv").read_text() == "mine"
    (tmp_path / "folder").mkdir()
    assert "is not a regular file" in refused(run_dir, out="folder", split="valid", force=True)
    assert predicted(run_dir, split="valid", force=True)["rows"] == len(rows_of(tmp_path / "out.csv")) == 6


def test_best_weights_initialise_a_run_with_matching_head(tmp_path: Path) -> None:
    import torch

    from engine.checkpoint import weights
    from engine.models.resnet import ResNet
    from engine.models.weights import load, new_head

    source = photos(tmp_path)
    first = saved(tmp_path, text=IMAGES.format(source=source, keys=CLASS_KEYS)) / "checkpoints" / "best.pt"
    second = saved(
        tmp_path, "seed=5", f"model.weights={first}", text=IMAGES.format(source=source, keys=""), name="second"
    )
    started = weights.read(second / "checkpoints" / "best.pt").state
    assert all(torch.equal(started[name], value) for name, value in weights.read(first).state.items())
    net = ResNet("thin", 5, 6)
    head = net.fc.weight.clone()
    load(net, first, "fc")
    assert torch.equal(net.conv1.weight, started["conv1.weight"])
    assert torch.equal(net.fc.weight, head)
    (said,) = new_head(net)
    assert said == (
        f"model.weights: the last layer of {first} does not fit and is newly initialised: fc.weight is [3, 48], "
        "expected [5, 48], fc.bias is [3], expected [5]"
    )
    # The initial weights file is not needed to use the trained weights.
    first.unlink()
    assert predicted(second, split="valid")["rows"] > 0

"""Folders, arrays and TFRecord files give the same rows as a table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from engine.data import arrays, images, sources, tfrecord
from engine.data.options import ArrayData, ImageData
from engine.errors import BadExample
from tests.engine.data.files import write_image, write_records


def png(value: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), value, dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


def records(count: int) -> list[dict[str, Any]]:
    return [
        {"image": png(number), "target": number % 2, "name": f"r{number}".encode(), "age": number / 2}
        for number in range(count)
    ]


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for number in range(10):
        write_image(tmp_path / ("cat" if number < 6 else "dog") / f"{number}.jpg", number)
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    rows = sources.open_rows(ImageData(source=str(tmp_path)))
    assert rows.label_names == ("cat", "dog")
    assert rows.labels is not None
    assert rows.labels.tolist() == [0] * 6 + [1] * 4
    assert rows.names.place(0) == str(tmp_path / "cat" / "0.jpg")
    assert sources.sizes(ImageData(source=str(tmp_path), folds_by="stratified", valid_fraction=0.5), 0) == (5, 5)


def test_a_folder_with_folders_for_the_splits(tmp_path: Path) -> None:
    for part, count in {"train": 4, "valid": 2, "test": 3}.items():
        for number in range(count):
            write_image(tmp_path / part / ("cat" if number % 2 else "dog") / f"{number}.png", number)
    wanted = ImageData(source=str(tmp_path))
    assert sources.sizes(wanted, 0) == (4, 2)
    assert sources.num_folds(wanted) == 0


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no folders of images named by class"):
        sources.sizes(ImageData(source=str(tmp_path)), 0)
    with pytest.raises(FileNotFoundError, match=r"no such (folder|file)"):
        sources.sizes(ImageData(source=str(tmp_path / "none")), 0)


def test_unreadable_image_in_folder_is_named_by_path(tmp_path: Path) -> None:
    for number in range(4):
        write_image(tmp_path / "cat" / f"{number}.png", number)
        write_image(tmp_path / "dog" / f"{number}.png", number)
    (tmp_path / "dog" / "2.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    splits = images.load(ImageData(source=str(tmp_path), size=(4, 4), valid_fraction=0.25), 0)
    found = []
    for split in (splits.train, splits.valid):
        for index in range(len(split)):
            try:
                split.fetch(np.array([index]))
            except BadExample as bad:
                found.append(bad.where)
    assert found == [str(tmp_path / "dog" / "2.png")]


def test_concurrent_readers_do_not_duplicate_records(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrec", records(5))
    write_records(tmp_path / "b.tfrec", records(3))
    wanted = ImageData(source=str(tmp_path / "*.tfrec"), label="target", size=(4, 5), valid_fraction=0.5)
    for _ in range(2):
        splits = images.load(wanted, 0)
        pixels = [
            int(split.fetch(np.array([index]))["image"][0, 0, 0, 0])
            for split in (splits.train, splits.valid)
            for index in range(len(split))
        ]
        assert sorted(pixels) == [0, 0, 1, 1, 2, 2, 3, 4]


def test_records_give_labels_ids_and_numbers(tmp_path: Path) -> None:
    source = write_records(tmp_path / "a.tfrecord", records(4))
    rows = sources.open_rows(
        ImageData(source=source, label=["age"], label_kind="float", features={"target": "int", "age": "float"})
    )
    assert rows.labels is not None
    assert rows.labels.ravel().tolist() == [0, 0.5, 1, 1.5]
    named = sources.open_rows(ImageData(source=source, label="target", id="name"))
    assert named.ids == ["r0", "r1", "r2", "r3"]


def test_negative_numbers_and_packed_lists_are_read() -> None:
    # An int64 list written packed and a float list written packed, as TensorFlow writes them.
    from tests.engine.data.files import field, varint

    one = field(1, field(1, b"n") + field(2, field(3, field(1, varint(-5)))))
    two = field(1, field(1, b"x") + field(2, field(2, field(1, np.float32(1.5).tobytes()))))
    encoded = field(1, one + two)
    assert dict(tfrecord.example(memoryview(encoded), 0, len(encoded))) == {"n": -5, "x": 1.5}


def test_tiny_image_that_looks_like_text_is_read(tmp_path: Path) -> None:
    rows = records(4)
    for number, row in enumerate(rows):
        row["image"] = b"P6 5 4 255\n" + bytes([65 + number]) * 60
    source = write_records(tmp_path / "a.tfrec", rows)
    splits = images.load(ImageData(source=source, label="target", size=(4, 5), valid_fraction=0.5), 0)
    batches = [split.fetch(np.arange(2))["image"] for split in (splits.train, splits.valid)]
    assert sorted(int(image[0, 0, 0]) for batch in batches for image in batch) == [65, 66, 67, 68]


def test_tfrecord_reader_agrees_with_the_library(tmp_path: Path) -> None:
    library = pytest.importorskip("tfrecord")
    writer = library.TFRecordWriter(str(tmp_path / "a.tfrecord"))
    for row in records(3):
        writer.write(
            {
                "image": (row["image"], "byte"),
                "target": (row["target"], "int"),
                "age": (row["age"], "float"),
                "name": (row["name"], "byte"),
            }
        )
    writer.close()
    splits = images.load(
        ImageData(source=str(tmp_path / "a.tfrecord"), label="target", id="name", size=(4, 5), valid_fraction=0.4), 0
    )
    assert len(splits.train) + len(splits.valid) == 3
    assert len(tfrecord.index(tmp_path / "a.tfrecord")) == 3


def test_bad_records_are_named(tmp_path: Path) -> None:
    rows = records(3)
    del rows[1]["target"]
    source = write_records(tmp_path / "a.tfrec", rows)
    with pytest.raises(ValueError, match=r"a\.tfrec record 1, feature target: the cell is empty"):
        sources.open_rows(ImageData(source=source, label="target"))
    with pytest.raises(ValueError, match=r"a\.tfrec record 0, feature target: the feature holds int, not float"):
        sources.open_rows(ImageData(source=source, label="target", features={"target": "float"}))
    with pytest.raises(ValueError, match=r'has no feature "targt" \(data.label\); did you mean "target"'):
        sources.open_rows(ImageData(source=source, label="targt"))
    whole = Path(source).read_bytes()
    (tmp_path / "a.tfrec").write_bytes(whole[:-20])
    with pytest.raises(ValueError, match="cut short in record 2"):
        sources.open_rows(ImageData(source=source, label="target"))
    (tmp_path / "a.tfrec").write_bytes(b"x" + whole)
    with pytest.raises(ValueError, match="not a TFRecord file, or it is damaged in record 0"):
        sources.open_rows(ImageData(source=source, label="target"))


def test_an_unreadable_image_in_a_record_is_named(tmp_path: Path) -> None:
    rows = records(4)
    rows[2]["image"] = b"\xff\xd8\xff\xe0 cut"
    source = write_records(tmp_path / "a.tfrec", rows)
    rows_read = sources.open_rows(ImageData(source=source, label="target", size=(4, 5)))
    from engine.data.images import ImageCache

    with pytest.raises(BadExample, match=r"a\.tfrec record 2, feature image: the image cannot be decoded"):
        ImageCache(rows_read, ImageData(size=(4, 5))).fetch(np.arange(4))


@pytest.fixture
def saved(tmp_path: Path) -> ArrayData:
    """Twenty rows of three features, each with a label and a group."""
    np.save(tmp_path / "x.npy", np.arange(60, dtype=np.float64).reshape(20, 3))
    np.save(tmp_path / "y.npy", np.arange(20) % 3)
    np.save(tmp_path / "g.npy", np.arange(20) // 2)
    return ArrayData(
        source=str(tmp_path / "x.npy"),
        labels_file=str(tmp_path / "y.npy"),
        groups_file=str(tmp_path / "g.npy"),
        folds_by="group",
    )


def test_arrays_are_fetched_with_their_labels(saved: ArrayData) -> None:
    splits = arrays.load(saved, 0)
    assert sources.sizes(saved, 0) == (len(splits.train), len(splits.valid))
    batch = splits.train.fetch(np.array([3, 0, 3]))
    assert batch["features"].shape == (3, 3)
    rows = (batch["features"][:, 0] / 3).long()
    assert (rows % 3 == batch["label"]).all()
    given = arrays.inputs(saved, Path(saved.source)).fetch(np.array([19]))
    assert given["features"].tolist() == [[57, 58, 59]]
    assert given["label"].tolist() == [1]
    bare = arrays.inputs(msgspec.structs.replace(saved, labels_file=""), Path(saved.source))
    assert "label" not in bare.fetch(np.array([19]))


def test_bad_arrays_are_named(saved: ArrayData, tmp_path: Path) -> None:
    labels = np.arange(20) % 3
    labels[4] = -2
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(ValueError, match=r"y\.npy row 4, column label: -2 is not a class"):
        arrays.load(saved, 0)
    np.save(tmp_path / "y.npy", labels[:7])
    with pytest.raises(ValueError, match=r"has 7 rows and .* has 20"):
        arrays.load(saved, 0)
    np.save(tmp_path / "y.npy", np.zeros(20, dtype=int))
    features = np.zeros((20, 3), dtype=np.float32)
    features[11, 1] = np.nan
    np.save(tmp_path / "x.npy", features)
    splits = arrays.load(saved, 0)
    assert isinstance(splits.train, arrays.Arrays)
    with pytest.raises(BadExample, match="row 11: the features hold NaN"):
        arrays.inputs(saved, Path(saved.source)).fetch(np.arange(20))
    for split in (splits.train, splits.valid):
        assert len(split.fetch(np.array([0]))["label"]) == 1


def test_a_file_of_a_fetched_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUTUI_DATA", str(tmp_path))
    (tmp_path / "counted").mkdir()
    (tmp_path / "counted/SOURCE.txt").write_text("set: counted, recipe 2\nlicence: MIT\n")
    np.save(tmp_path / "counted/rows.npy", np.arange(12).reshape(6, 2))
    np.save(tmp_path / "counted/labels.npy", np.array([0, 1] * 3))
    options = ArrayData(source="set:counted/rows.npy", labels_file="set:counted/labels.npy")
    assert sum(sources.sizes(options, 0)) == 6


@pytest.mark.parametrize("source", [None, "set: another, recipe 1\n"], ids=["absent", "another"])
def test_a_set_that_was_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None) -> None:
    monkeypatch.setenv("TPUTUI_DATA", str(tmp_path))
    (tmp_path / "ct").mkdir()
    if source is not None:
        (tmp_path / "ct/SOURCE.txt").write_text(source)
    with pytest.raises(ValueError, match="the data set ct was not fetched; run `tputui data fetch ct`"):
        sources.sizes(ImageData(source="set:ct/train.csv"), 0)

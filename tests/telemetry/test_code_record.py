"""The record of the code of a run: changes, script, packages and environment variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from tests.deadline import DEADLINE_S
from tputui.telemetry import code_record
from tputui.telemetry.code_record import CodeRecord, NoCodeRecord, collect, python_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
TOKEN = "ghp_0123456789abcdefghij0123456789"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(autouse=True)
def _programs_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_record, "GIT_TIMEOUT_S", DEADLINE_S)
    monkeypatch.setattr(code_record, "PYTHON_TIMEOUT_S", DEADLINE_S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("rate = 1\n")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@needs_git
def test_changes_are_recorded_as_a_patch_that_applies(repository: Path) -> None:
    assert collect(repository).diff == ""
    (repository / "train.py").write_text("rate = 2\n")
    (repository / "notes.txt").write_text("untracked")
    record = collect(repository, ["python", "train.py"])
    assert "-rate = 1\n+rate = 2\n" in record.diff
    assert record.diff_bytes == len(record.diff)
    assert (record.untracked, record.num_untracked, record.script) == (["notes.txt"], 1, None)

    git(repository, "checkout", "-q", "train.py")
    subprocess.run(["git", "apply"], cwd=repository, input=record.diff.encode(), check=True)
    assert (repository / "train.py").read_text() == "rate = 2\n"


@needs_git
def test_large_changes_are_cut(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_record, "DIFF_BYTES_MAX", 1_000)
    (repository / "train.py").write_text("rate = 2\n" * 1_000)
    record = collect(repository)
    assert len(record.diff) == 1_000
    assert record.diff_bytes > 9_000
    assert any("the first 1,000 kept" in line for line in code_record.lines(record))


@needs_git
def test_secrets_in_changes_script_and_variables_are_masked(repository: Path) -> None:
    (repository / "train.py").write_text(f"token = '{TOKEN}'\n")
    (repository / "new.py").write_text(f"token = '{TOKEN}'\n")
    environ = {**os.environ, "HF_TOKEN": TOKEN, "WANDB_API_KEY": "x" * 40, "MY_PRIVATE": "7", "XLA_FLAGS": "--a=1"}
    record = collect(repository, ["python", "new.py"], environ)
    text = msgspec.json.encode(record).decode()
    assert TOKEN not in text
    assert "x" * 40 not in text
    assert "MY_PRIVATE" not in text
    assert record.environment["XLA_FLAGS"] == "--a=1"
    assert record.script is not None
    assert record.script.text == "token = '[redacted]'\n"


def test_script_without_repository_is_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    record = collect(tmp_path, [sys.executable, "train.py", "--lr", "1"])
    assert record.diff_why == "not a git repository"
    assert record.script == code_record.UntrackedScript(path="train.py", text="print(1)\n")


def test_packages_are_those_of_the_interpreter_of_the_command(tmp_path: Path) -> None:
    assert collect(tmp_path).packages["tputui"] == metadata.version("tputui")
    venv.create(tmp_path / "env", with_pip=False)
    (tmp_path / "json.py").write_text("raise SystemExit('not the json of Python')")
    python = str(tmp_path / "env" / "bin" / "python")
    record = collect(tmp_path, [python, "train.py"])
    assert (record.packages, record.packages_why) == ({}, None)
    launcher = tmp_path / "env" / "bin" / "torchrun"
    launcher.write_text(f"#!{python}\n")
    launcher.chmod(0o755)
    assert python_of([str(launcher), "train.py"], tmp_path) == python
    record = collect(tmp_path, ["sh", "-c", "true"])
    assert (record.packages, record.packages_why) == ({}, "the command is not a Python program")


def test_record_of_a_run_is_read_back_and_damage_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoCodeRecord, match="older version"):
        code_record.read(tmp_path)
    record = collect(tmp_path)
    code_record.save(tmp_path, record)
    assert code_record.read(tmp_path) == record
    (tmp_path / code_record.FILE).write_text('{"packages": 3}')
    with pytest.raises(NoCodeRecord, match=r"code\.json: cannot be read: "):
        code_record.read(tmp_path)
    assert code_record.summary(tmp_path) is None


def test_summaries_differ_where_the_code_does(tmp_path: Path) -> None:
    for name, record in (
        ("a", CodeRecord(diff="x", packages={"torch": "2.9.0"}, environment={"XLA_FLAGS": "1"})),
        ("b", CodeRecord(diff="y", packages={"torch": "2.9.0"}, environment={})),
    ):
        (tmp_path / name).mkdir()
        code_record.save(tmp_path / name, record)
    one, two = (code_record.summary(tmp_path / name) for name in "ab")
    assert one is not None
    assert two is not None
    assert {key for key in one if one[key] != two[key]} == {"uncommitted changes", "environment"}

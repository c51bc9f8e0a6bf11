"""`tputui runs`, and runs that are another user's."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.another_user import needs_root, shut_run
from tests.deadline import DEADLINE_S
from tputui.cli.main import main
from tputui.formatting import short_age
from tputui.telemetry import run_labels, rundir


def test_table_has_one_line_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.write_run(tmp_path, run="whole")
    recorded.write_run(tmp_path, run="found-dead", ended=False)

    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0

    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["RUN", "STATE", "EPOCH", "STEP", "TRAIN", "LOSS", "AGE", "CORES", "CONFIG"]
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells["whole"][:3] == ["done", "3/3", "66"]
    assert cells["whole"][5:] == ["8", "digits.toml"]
    assert cells["found-dead"][0] == "lost"


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ("python train.py" + " --lr 0.1" * 20, "  python train.py --l"),
        ("/home/" + "long/" * 30 + "a.toml", "long/a.toml"),
    ],
)
def test_lines_are_not_wrapped_in_a_terminal(config: str, shown: str, tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, run="whole")
    manifest = msgspec.structs.replace(rundir.read_manifest(run_dir), config_path=config)
    (run_dir / rundir.MANIFEST).write_bytes(rundir.encode_manifest(manifest))
    run_labels.change(run_dir, tags=["baseline"])

    def printed(columns: int, stdout: int) -> None:
        command = [sys.executable, "-m", "tputui", "runs", "--runs-dir", str(tmp_path)]
        subprocess.run(
            command, stdout=stdout, env={**os.environ, "COLUMNS": str(columns)}, check=True, timeout=DEADLINE_S
        )

    ours, theirs = pty.openpty()
    try:
        printed(100, theirs)
        head, line = os.read(ours, 65_536).decode().splitlines()
    finally:
        os.close(ours)
        os.close(theirs)
    assert len(line) <= 100
    assert line.endswith("  baseline")
    assert head.index("LABELS") == line.index("baseline")
    assert shown in line
    with (tmp_path / "out").open("w+") as file:
        printed(100, file.fileno())
        assert config in (tmp_path / "out").read_text(), "whole for other programs"


def test_json_lists_the_same_runs(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json", "--runs-dir", str(recorded_run.parent)]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run"], row["dir"], row["state"], row["step"]) == ("digits-1", str(recorded_run), "done", 66)
    losses = [loss for step in range(45, 67) for loss in recorded.losses(step)]
    assert row["loss"] == pytest.approx(sum(losses) / len(losses)), "the mean of the last epoch, since it has ended"


def test_empty_list_explains_how_to_start_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPUTUI_RUNS", str(tmp_path / "later"))
    for words, why in (
        (["runs"], f"{tmp_path}/later does not exist yet; the first run creates it"),
        (["runs", "--runs-dir", str(tmp_path)], f"no runs in {tmp_path} yet; start one with `tputui run CONFIG`"),
    ):
        assert main(words) == 0
        result = capsys.readouterr()
        assert result.out == ""
        assert why in result.err


def test_a_file_is_no_directory_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    assert main(["--runs-dir", str(path), "runs"]) == 2
    assert capsys.readouterr().err == f"tputui: --runs-dir {path}: not a directory\n"
    monkeypatch.setenv("TPUTUI_RUNS", str(path))
    assert main(["runs"]) == 2
    assert capsys.readouterr().err == f"tputui: {path}: not a directory\n"


@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"], ["attach"], []])
def test_missing_runs_directory_is_rejected(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--runs-dir", str(tmp_path / "none"), *words]) == 2
    assert capsys.readouterr().err == f"tputui: --runs-dir {tmp_path / 'none'}: no such directory\n"


def test_damaged_run_is_listed_with_escaped_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "worker-0.jsonl").write_bytes(b"garbage")
    (run_dir / "run.json").write_bytes(b"{")
    run_dir.rename(tmp_path / "evil\x1b[2Jname")

    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0

    out = capsys.readouterr().out
    assert "evil" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("seconds", "words"), [(-3, "0s"), (59.9, "59s"), (60, "1m"), (7200, "2h"), (86_400 * 12, "12d")]
)
def test_age_uses_its_largest_unit(seconds: float, words: str) -> None:
    assert short_age(seconds) == words


@pytest.fixture
def others_run(tmp_path: Path) -> Iterator[Path]:
    """A run of root, while this process is another user."""
    with shut_run(tmp_path) as run_dir:
        yield run_dir


@needs_root
@pytest.mark.parametrize("command", ["show", "stop", "check", "attach"])
def test_run_of_another_user_is_rejected_in_one_sentence(
    command: str, others_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(others_run)]) == 2

    result = capsys.readouterr()
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert "this run is another user's" in result.err


@needs_root
def test_a_run_of_another_user_is_listed_as_such(others_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--runs-dir", str(others_run.parent)]) == 0

    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[:2] == ["digits-1", "unreadable"]
    assert line.endswith("another user's; ask them for a copy of its directory")


@needs_root
def test_attach_skips_runs_of_another_user(others_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--runs-dir", str(others_run.parent)]) == 2

    assert "no run is running in" in capsys.readouterr().err


def test_own_unreadable_run_is_not_another_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shut_run(tmp_path, owned=True) as run_dir:
        assert main(["show", str(run_dir)]) == 2
        assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    result = capsys.readouterr()
    assert "yours, but its permissions shut you out; chmod u+rwx opens it" in result.err
    assert result.out.splitlines()[1].endswith("chmod u+rwx opens it")

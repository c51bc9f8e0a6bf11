"""Logs are found by the names of files, as what one opens: a folder if its files are read together, else a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import recorded
from tputui.log_import.scan import Bounds, FoundLog, find_logs
from tputui.logs.formats import files_of
from tputui.user_config import LogSource

EVENTS = "events.out.tfevents.1.host"


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step,loss\n1,2\n")


def found(root: Path, name: str = "lab", bounds: Bounds = Bounds()) -> dict[str, FoundLog]:  # noqa: B008
    return {log.name: log for log in find_logs([LogSource(root, name)], bounds=bounds).logs}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([f"tb/a/{EVENTS}", f"tb/b/{EVENTS}"], {"lab/tb/a": "TensorBoard", "lab/tb/b": "TensorBoard"}),
        ([f"k/train/{EVENTS}", f"k/validation/{EVENTS}"], {"lab/k": "TensorBoard"}),
        ([f"s/{EVENTS}", f"s/pair_a/{EVENTS}", "s/hparams.csv"], {"lab/s": "TensorBoard"}),
        ([EVENTS], {"lab": "TensorBoard"}),
        (
            ["wandb/offline-run-1-a/run-a.wandb", "wandb/offline-run-1-a/files/x.csv"],
            {"lab/wandb/offline-run-1-a": "W&B"},
        ),
        (["logs/version_0/metrics.csv"], {"lab/logs/version_0": "CSV"}),
        (["e/a.csv", "e/b.jsonl"], {"lab/e/a.csv": "CSV", "lab/e/b.jsonl": "JSON lines"}),
        (
            ["hf/checkpoint-5/trainer_state.json", "hf/checkpoint-9/trainer_state.json", "hf/all.parquet"],
            {"lab/hf": "Hugging Face", "lab/hf/all.parquet": "parquet"},
        ),
        ([f"hf/runs/1/{EVENTS}", "hf/checkpoint-5/trainer_state.json"], {"lab/hf/runs/1": "TensorBoard"}),
        (["n/data/1.parquet", "n/data/2.parquet"], {"lab/n/data": "parquet"}),
        ([".cache/a.csv", "notes.txt", "a.csv.bak"], {}),
    ],
)
def test_layouts_of_other_programs(tmp_path: Path, files: list[str], expected: dict[str, str]) -> None:
    write(tmp_path, *files)
    logs = found(tmp_path)
    assert {name: log.form for name, log in logs.items()} == expected
    for log in logs.values():
        assert files_of(log.path), "what is listed can be opened"


def test_runs_are_not_logs_and_files_beside_them_are(tmp_path: Path) -> None:
    recorded.write_run(tmp_path, run="digits-1")
    write(tmp_path / "digits-1", "losses.csv")
    write(tmp_path, "table.csv", f"board/{EVENTS}")
    assert found(tmp_path, "").keys() == {"table.csv", "board"}


def test_a_log_below_two_folders_is_listed_once_and_links_do_not_loop(tmp_path: Path) -> None:
    write(tmp_path, "a/x.csv")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link").symlink_to(tmp_path / "a", target_is_directory=True)
    scan = find_logs([LogSource(tmp_path, "one"), LogSource(tmp_path / "a", "two")])
    assert len(scan.logs) == 1
    assert scan.limits == []


@pytest.mark.parametrize(
    ("bounds", "limit"),
    [
        (Bounds(entries=20), "only the first 20 files and folders were searched for logs"),
        (Bounds(logs=5), "only the newest 5 of 41 logs are listed"),
        (Bounds(depth=2), "folders more than 2 levels deep were not searched for logs"),
        (Bounds(seconds=0), "only what was read within 0 s was searched for logs"),
    ],
)
def test_a_search_is_bounded_and_says_so(tmp_path: Path, bounds: Bounds, limit: str) -> None:
    write(tmp_path, *(f"{number}.csv" for number in range(40)), "a/b/c/deep.csv")
    os.utime(tmp_path / "7.csv", (2e9, 2e9))
    scan = find_logs([LogSource(tmp_path, "lab")], bounds=bounds)
    assert scan.limits == [f"{tmp_path}: {limit}"]
    assert len(scan.logs) < 41
    if bounds.logs == 5:
        assert scan.logs[0].path == tmp_path / "7.csv"


def test_a_folder_that_is_missing_has_no_logs(tmp_path: Path) -> None:
    assert find_logs([LogSource(tmp_path / "none", "x")]).logs == []

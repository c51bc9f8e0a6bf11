"""Opening an untrusted run executes none of its code, in any location and with any content."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.engine.workers import make

pytestmark = pytest.mark.xla
# Imported here, because it changes the environment.
torch = pytest.importorskip("torch")

CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from tests.engine.mytask import Line as Task
"""
OWN = 'task = "{task}"\nepochs = 1\ndata.batch_per_core = 4\ndevice.cores = 1\n'
LIT = 'task = "lightning"\nepochs = 1\ndata.batch_per_core = 4\nmodel.module = "{task}"\ndevice.cores = 1\n'


@pytest.fixture(autouse=True)
def _process_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Restores the current directory and the import path, which a prediction may change."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in ("evil", "mine", "mine.evil"):
        sys.modules.pop(name, None)


def stuff(tmp_path: Path, task: str, text: str = OWN) -> Path:
    """An untrusted run in `stuff/runs/sent` with weights, surrounded by code that leaves a mark when executed."""
    folder = tmp_path / "stuff"
    run_dir = make(folder / "runs", "sent", text=text.format(task=task), cwd=folder).dir
    state = {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}
    content = {
        "format": 1,
        "fingerprint": {"task": task, "seed": 0},
        "position": {"epoch": 2, "batch": 0, "step": 7, "evaluating": False},
        "learner": {"model": state} if text == OWN else {},
        "state_dict": state,
        "best": 0.5,
    }
    torch.save(content, run_dir / "checkpoints" / "best.pt")
    for place in (folder, folder / "runs", run_dir, run_dir / "checkpoints"):
        (place / "evil.py").write_text(CODE.format(mark=str(tmp_path / "executed")))
    return run_dir


def predict(tmp_path: Path, weights: Path, run_dir: Path | None, *words: str) -> dict[str, Any]:
    """The last line of a prediction in this process."""
    from engine.commands import predict

    run = ["--run-dir", str(run_dir)] if run_dir is not None else []
    output = tmp_path / "reports.jsonl"
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        predict.main(["--weights", str(weights), *run, "--split", "valid", "--report-fd", str(fd), *words])
    finally:
        os.close(fd)
    last: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
    return last


@pytest.mark.parametrize(
    ("task", "stands", "why"),
    [
        ("evil:Task", "home", "there is no module evil in"),
        ("stuff.evil:Task", ".", "is inside the run"),
        ("stuff.runs.sent.evil:Task", ".", "is inside the run"),
        ("runs.sent.evil:Task", "stuff", "is inside the run"),
        ("evil:Task", "stuff/runs/sent", "is inside the run"),
        ("checkpoints.evil:Task", "stuff/runs/sent", "is inside the run"),
    ],
)
@pytest.mark.parametrize("text", [OWN, LIT], ids=["task", "lightning"])
def test_code_is_not_imported_from_a_path_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, task: str, stands: str, why: str
) -> None:
    run_dir = stuff(tmp_path, task.replace("Task", "Module" if text == LIT else "Task"), text)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / stands)
    words = ["--out", "-"] if text == OWN else []
    said = predict(tmp_path, run_dir / "checkpoints" / "best.pt", run_dir, *words)["error"]
    assert why in said
    assert "run this in the folder of that code, or name the folder with --code DIR" in said
    assert "only do it if you trust it" in said
    assert not (tmp_path / "executed").exists()


def test_earlier_run_in_the_process_does_not_permit_imports(tmp_path: Path) -> None:
    from engine.process import user_code

    (tmp_path / "home").mkdir()
    user_code.allow_imports_from(tmp_path / "home", tmp_path / "another")
    run_dir = stuff(tmp_path, "stuff.evil:Task")
    assert "is inside the run" in predict(tmp_path, run_dir / "checkpoints" / "best.pt", run_dir, "--out", "-")["error"]
    assert not (tmp_path / "executed").exists()


def test_weights_file_imports_no_code_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = stuff(tmp_path, "evil:Task")
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "evil.py").write_text(CODE.format(mark=str(tmp_path / "executed")))
    (run_dir / "checkpoints" / "best.pt").rename(sent / "checkpoint.pt")
    torch.save({"weight": torch.ones(1, 1), "bias": torch.zeros(1)}, sent / "weights.pt")
    config = json.loads((run_dir / "run.json").read_bytes())["config"]
    described = {"format": 1, "config": config, "cwd": str(sent), "weights": "best.pt"}
    (sent / "weights.json").write_text(json.dumps(described))
    monkeypatch.chdir(sent)
    for name in ("weights.pt", "checkpoint.pt"):
        said = predict(tmp_path, sent / name, None)["error"]
        assert "name its folder with --code DIR" in said
        assert not (tmp_path / "executed").exists()
    assert predict(tmp_path, sent / "weights.pt", None, "--code", ".", "--out", "-")["result"]["rows"] == 40
    assert (tmp_path / "executed").exists()


def test_user_code_comes_from_cwd_or_named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = stuff(tmp_path, "mine.evil:Task")
    project = tmp_path / "project"
    (project / "mine").mkdir(parents=True)
    (tmp_path / "stuff" / "evil.py").rename(project / "mine" / "evil.py")
    weights = run_dir / "checkpoints" / "best.pt"
    assert "no module mine.evil" in predict(tmp_path, weights, run_dir)["error"]
    assert "no such folder" in predict(tmp_path, weights, run_dir, "--code", "nowhere")["error"]
    assert predict(tmp_path, weights, run_dir, "--code", "project", "--out", "-")["result"]["rows"] == 40
    monkeypatch.chdir(project)
    for name in ("mine", "mine.evil"):
        monkeypatch.delitem(sys.modules, name)
    assert predict(tmp_path, weights, run_dir, "--out", "-")["result"]["rows"] == 40


def test_run_folder_shadows_no_package_of_built_in_task(tmp_path: Path) -> None:
    run_dir = stuff(tmp_path, "digits")
    mark = f"import pathlib; pathlib.Path({str(tmp_path / 'executed')!r}).touch()"
    for name in ("sklearn", "polars", "engine", "tputui", "numpy", "sitecustomize"):
        (tmp_path / "stuff" / f"{name}.py").write_text(mark)
    said = tputui("predict", run_dir, "--split", "valid", cwd=tmp_path)
    assert said.code == 2
    assert "belongs to another network" in one_sentence(said)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("text", [OWN, LIT], ids=["task", "lightning"])
def test_export_needs_no_code_at_all(tmp_path: Path, text: str) -> None:
    from engine.commands.export import export

    run_dir = stuff(tmp_path, "evil:Task", text)
    result = export(run_dir / "checkpoints" / "best.pt", run_dir, tmp_path / "mine.pt")
    assert (result["step"], result["tensors"]) == (7, 2)
    assert set(torch.load(tmp_path / "mine.pt", weights_only=True)) == {"weight", "bias"}
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(("task", "stands"), [("stuff.runs.sent.evil:Task", "."), ("evil:Task", "stuff/runs/sent")])
def test_launcher_executes_no_code_of_an_earlier_run(tmp_path: Path, task: str, stands: str) -> None:
    stuff(tmp_path, task)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "engine.commands.describe", "--", task],
        cwd=tmp_path / stands,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is inside the run" in done.stderr
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("words", [["show"], ["replay", "--no-ui"], ["check"], ["export"]], ids=" ".join)
def test_no_command_that_opens_a_run_executes_its_code(tmp_path: Path, words: list[str]) -> None:
    run_dir = stuff(tmp_path, "evil:Task")
    command, *options = words
    tputui(command, run_dir, *options, cwd=run_dir.parents[1])
    assert not (tmp_path / "executed").exists()

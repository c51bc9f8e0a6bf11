"""The examples of the guide about frameworks run as they are printed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests import forked, recorded
from tests.deadline import DEADLINE_S
from tests.test_reporter_api import declared, show, the_run
from tests.test_script_hosts import script
from tputui.telemetry import rundir

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "frameworks.md"
EXAMPLES = dict(
    zip(
        ("lightning", "transformers", "accelerate"),
        re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL),
        strict=True,
    )
)


@pytest.mark.xla
@pytest.mark.parametrize("package", EXAMPLES)
def test_examples_of_the_frameworks_run_and_are_shown(tmp_path: Path, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (tmp_path / "example.py").write_text(EXAMPLES[package])
    done = forked.run("example", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "USE_TORCH_XLA": "0"})
    assert done.returncode == 0, done.stderr
    shown = show(the_run(tmp_path))
    assert (shown["state"], shown["steps"], shown["warnings"]) == ("done", 24, [])
    assert shown["cores"][0]["loss"] < 1.0
    assert [epoch["epoch"] for epoch in shown["epochs"]] == [1, 2, 3]
    assert any(view["split"] == "valid" and view["name"] == "loss" for view in [*shown["meters"], *shown["logged"]])


@pytest.mark.slow
def test_example_of_accelerate_reports_every_process_and_serves_requests_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    monkeypatch.setenv("USE_TORCH_XLA", "0")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest("launched"))
    with script(tmp_path, EXAMPLES["accelerate"], [run_dir] * 2, [0, 1]) as ranks:
        for process in ranks:
            process.communicate(timeout=DEADLINE_S)
        assert [process.returncode for process in ranks] == [0, 0]
    assert [declared(run_dir / f"worker-{rank}.jsonl") >= {"checkpoint", "stop"} for rank in (0, 1)] == [True, True]
    assert [(core["step"], core["loss"] < 1.0) for core in show(run_dir)["cores"]] == [(12, True)] * 2

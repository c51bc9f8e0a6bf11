"""The examples of the guide about frameworks run as they are printed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests import forked
from tests.test_reporter_api import show, the_run

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

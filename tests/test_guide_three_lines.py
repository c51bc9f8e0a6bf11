"""The examples of the guides run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import forked
from tests.test_reporter_api import show, the_run

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "three-lines.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
EXPECTED = [(200, 1), (24, 1), (20, 4), (50, 1), (50, 1)]
"""Steps and cores of each example."""


@pytest.mark.xla
@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_examples_of_the_reporter_api_run_and_are_shown(tmp_path: Path, number: int) -> None:
    assert len(EXAMPLES) == len(EXPECTED)
    (tmp_path / "example.py").write_text(EXAMPLES[number])
    environment = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = forked.run("example", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    shown = show(the_run(tmp_path))
    assert shown["state"] == "done"
    assert shown["warnings"] == []
    assert (shown["steps"], len(shown["cores"])) == EXPECTED[number]
    assert shown["cores"][0]["loss"] < 1.0

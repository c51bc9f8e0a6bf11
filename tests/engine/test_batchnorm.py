"""Evaluation with BatchNorm equals that of plain torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.xla, pytest.mark.slow]


@pytest.mark.parametrize("num_cores", ["1", "4"])
def test_running_statistics_and_evaluation_match_torch(num_cores: str) -> None:
    command = [sys.executable, "-m", "tests.engine.bncheck", num_cores]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert any(name.endswith("running_var") for name in result["apart"])
    assert {name: value for name, value in result["apart"].items() if value > 1e-5} == {}
    assert result["evaluation"] < 1e-5
    assert result["late"] == 0

"""Evaluation with BatchNorm equals that of plain torch."""

from __future__ import annotations

import json

import pytest

from tests import forked

pytestmark = [pytest.mark.xla, pytest.mark.slow]


@pytest.mark.parametrize("num_cores", ["1", "4"])
def test_running_statistics_and_evaluation_match_torch(num_cores: str) -> None:
    done = forked.run("tests.engine.bncheck", num_cores)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert any(name.endswith("running_var") for name in result["apart"])
    assert {name: value for name, value in result["apart"].items() if value > 1e-5} == {}
    assert result["evaluation"] < 1e-5
    assert result["late"] == 0

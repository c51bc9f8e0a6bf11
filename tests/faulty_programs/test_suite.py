"""The faults of small programs are found at their lines, and healthy programs have no verdict."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine.workers import make, runs_to_end
from tests.faulty_programs import suite
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import found
from tputui.session import session

RECALL_MIN = 0.95
FAULTY_MIN = {"torch_xla": 30, "jax": 6, "torch_compile": 4}
HEALTHY_MIN = 10
SAMPLES = Path(__file__).parents[2] / "sample_configs"
WITHOUT_FETCHED_DATA = ("digits", "lightning_digits")
FAILS = frozenset({"out_of_memory"})
"""Rules about runs that end with an error."""


def test_there_are_enough_programs_of_each_kind() -> None:
    for framework, least in FAULTY_MIN.items():
        assert sum(bool(suite.faults_of(file)) for file in suite.programs([framework])) >= least
    assert sum(not suite.faults_of(file) for file in suite.programs(["torch_xla"])) >= HEALTHY_MIN


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.skipif(not all(map(find_spec, ("torch_xla", "jax"))), reason="torch_xla or jax is not installed")
def test_faults_are_found_by_line_and_healthy_programs_have_no_verdict(tmp_path: Path) -> None:
    results = list(suite.run(suite.programs(), tmp_path))
    failed = [one.program.name for one in results if one.exit_code and not FAILS & {fault.rule for fault in one.faults}]
    assert not failed
    alarms = [
        (one.program.name, verdict.rule, verdict.text)
        for one in suite.alarms(results)
        for verdict in found(one.verdicts)
    ]
    assert not alarms
    missed = [(one.program.name, *fault) for one in results for fault in one.faults - one.found]
    assert suite.recall(results) >= RECALL_MIN, missed


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize("name", WITHOUT_FETCHED_DATA)
def test_sample_configurations_have_no_verdict(name: str, tmp_path: Path) -> None:
    text = (SAMPLES / f"{name}.toml").read_text()
    run = runs_to_end(make(tmp_path, name, ["epochs=4"], text=text))
    assert [(one.rule, one.text) for one in found(diagnose(session.load(run.dir)))] == []

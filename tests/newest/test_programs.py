"""The observers of torch.compile and JAX find the faults of small programs, and nothing in healthy ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faulty_programs import suite
from tests.newest.launched import run

FRAMEWORKS = {"torch_compile": ("torch.compile", "torch"), "jax": ("JAX", "jax")}
OBSERVED = {
    "recompile": "recompilations with their line, and what changed",
    "graph_break": "graph breaks with their line",
    "compile_limit": "functions that are compiled no more, with the line of the call",
    "sync": "reads that wait for the device, with their line",
    "donation": "donated inputs that cannot be reused, with the line of the call",
    "op_by_op": "operations outside of jit, with their line and number in a step",
    "device_put": "arrays that each step moves or copies again, with their line",
    "replicated": "inputs that every device has a whole copy of, with the line of the call",
}
HEALTHY = "healthy programs without a finding"


def programs() -> list[Any]:
    """All programs, with what each of them shows."""
    made = []
    for file in suite.programs(list(FRAMEWORKS)):
        framework, package = FRAMEWORKS[file.parent.name]
        rules = {fault.rule for fault in suite.faults_of(file)}
        marks = [pytest.mark.supports(framework, package, OBSERVED[rule]) for rule in rules]
        marks = marks or [pytest.mark.supports(framework, package, HEALTHY)]
        made.append(pytest.param(file, id=f"{file.parent.name}-{file.stem}", marks=marks))
    return made


@pytest.mark.parametrize("file", programs())
def test_faults_of_programs_are_found_at_their_lines(file: Path, tmp_path: Path) -> None:
    answers = [one for one in run(tmp_path, file).verdicts() if one["status"] in ("found", "hint")]
    faults = suite.faults_of(file)
    assert {suite.Fault(one["rule"], one["line"], one["status"]) for one in answers} >= faults
    found = {(one["file"], one["line"]) for one in answers if one["status"] == "found"}
    assert found == {(str(file), fault.line) for fault in faults if fault.status == "found"}

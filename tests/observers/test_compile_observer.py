"""The observer of torch.compile finds faults at their lines in real programs, and nothing in healthy ones."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.observers import observed
from tputui.logs import torch_guards
from tputui.telemetry import events as ev

PROGRAMS = observed.PROGRAMS / "torch_compile"
MOVED = """
import os
import torch
import torch._dynamo
from tputui.observers import autoload
del torch._dynamo.utils.NAME
os.environ["TPUTUI_RUN_DIR"] = os.path.abspath("run")
autoload.torch_imported()
"""
"""A torch in which a name has moved since the observer was written."""
COMPILED = """
import torch
import torch._dynamo
torch._dynamo.config.log_compilation_metrics = False
torch.compile(torch.sin, backend="eager")(torch.ones(2))
"""
TWO_MODULES = """
import torch
model = torch.compile(torch.nn.Linear(4, 2), backend="eager")
loss = torch.compile(torch.nn.MSELoss(), backend="eager")
for size in (8, 8, 3):
    loss(model(torch.ones(size, 4)), torch.zeros(size, 2))
"""
SKIPPED = """
import sys
import torch._dynamo.trace_rules
from tputui.observers import sinks
skipped = [torch._dynamo.trace_rules.check(function) for function in (sinks.is_disabled, sinks.at_exit)]
sys.exit(skipped != [True, True])
"""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[ev.Event]:
    """What was observed in all programs, run in one process."""
    return observed.observe(sorted(PROGRAMS.glob("*.py")), tmp_path_factory.mktemp("observed"))


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(PROGRAMS.glob("*.py")), ids=lambda file: file.stem)
def test_programs_are_found_at_their_lines(file: Path, events: list[ev.Event]) -> None:
    found, faults = observed.findings_in(file, events), observed.faults_of(file)
    assert found >= faults
    assert {line for _, line in found} == {line for _, line in faults}


@pytest.mark.slow
def test_changed_inputs_and_reasons_are_named(events: list[ev.Event]) -> None:
    changed = {
        (Path(event.user_frame.file).stem, one.name, one.before, one.now)
        for event in events
        if isinstance(event, ev.CompileObserved) and event.user_frame is not None
        for one in event.changed_inputs or ()
    }
    assert ("shape_change", "batch", "size 16 in dimension 0", "size 17 in dimension 0") in changed
    assert ("python_number", "step", "0", "1") in changed
    breaks = [event for event in events if isinstance(event, ev.GraphBroken)]
    [broken] = [event for event in breaks if not event.in_library]
    assert {
        Path(event.user_frame.file).stem for event in breaks if event.user_frame is not None and event != broken
    } == {"healthy_optimizer"}
    assert (broken.program, broken.reason[:31]) == ("train_step", "Unsupported Tensor.item() call ")
    [limit] = [event for event in events if isinstance(event, ev.CompileLimitReached)]
    assert (limit.program, limit.limit) == ("train_step", 8)
    assert limit.changed_inputs == [
        ev.ChangedInput(name="batch", before="size 23 in dimension 0", now="size 24 in dimension 0")
    ]


@pytest.mark.slow
def test_programs_of_modules_and_backward_passes_are_named(events: list[ev.Event]) -> None:
    healthy = [
        (event.program, event.warm_up)
        for event in events
        if isinstance(event, ev.CompileObserved)
        and event.user_frame is not None
        and event.user_frame.file.endswith("healthy_training.py")
    ]
    assert healthy == [("Sequential", True), ("Sequential (backward)", True)]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("log_compilation_event", ["compilations", "graph breaks", "compile limits"]),
        ("graph_break_reasons", ["graph breaks"]),
    ],
)
def test_a_torch_that_is_not_supported_is_named(name: str, missing: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MOVED.replace("NAME", name))
    [failed] = observed.observe_in_copy(tmp_path / "train.py", tmp_path, TPUTUI_RUN_DIR="")[1:]
    assert isinstance(failed, ev.ObservationFailed)
    assert (failed.package, failed.missing) == ("torch", missing)
    assert failed.version.startswith(version("torch"))
    assert failed.reason == f"AttributeError: module 'torch._dynamo.utils' has no attribute '{name}'"


def test_a_torch_that_reports_no_compilation_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPILED)
    [failed] = observed.observe_in_copy(tmp_path / "train.py", tmp_path)[1:]
    assert isinstance(failed, ev.ObservationFailed)
    assert failed.missing == ["compilations", "graph breaks", "compile limits"]
    assert failed.reason == "torch._dynamo.config.log_compilation_metrics is switched off"


def test_the_changed_input_is_that_of_the_module_which_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO_MODULES)
    made = [one for one in observed.observe([tmp_path / "train.py"], tmp_path) if isinstance(one, ev.CompileObserved)]
    late = {one.program: [change.before for change in one.changed_inputs or ()] for one in made if not one.warm_up}
    assert late == {"Linear": ["size 8 in dimension 0"], "MSELoss": ["size 8 in dimension 0"]}


def test_torch_compiles_no_function_of_ours(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SKIPPED)
    assert observed.observe_in_copy(tmp_path / "train.py", tmp_path) == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", ("x", "dtype Float", "dtype Double")),
        ("tensor 'L['x']' rank mismatch. expected 2, actual 3", ("x", "rank 2", "rank 3")),
        ("1/2: L['n'] == 4                # return x * n  # a.py:3 in f", ("n", "4", "7")),
        ("0/1: not L['self'].training", ("not L['self'].training", "true", "false")),
        ("0/1: L['config'] == 'a'", ("config", "'a'", "another value")),
        ("0/0: G['scale'] == 2", ("scale", "2", "another value")),
        ("0/1: self._modules['drop'].training == True", ("self.drop.training", "True", "another value")),
        (
            "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=1. Guard failed on a parameter, ...",
            ("x", "requires_grad true", "requires_grad false"),
        ),
        ("0/2: GLOBAL_STATE changed: grad_mode ", ("the grad_mode of torch", "one value", "another value")),
        (
            "0/2: GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled ",
            ("the grad_mode and autocast(cpu)_enabled of torch", "one value", "another value"),
        ),
    ],
)
def test_guards_that_failed_are_parsed(reason: str, expected: tuple[str, str, str]) -> None:
    [one] = torch_guards.parse(reason, {"n": 7})
    assert (one.name, one.before, one.now) == expected


@pytest.mark.parametrize(
    "reason",
    [
        "0/0: GLOBAL_STATE changed: grad_mode ",
        "0/1: not L['self'].training",
        "0/1: self._modules['drop'].training == True",
        "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0",
        "0/0: tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU), actual DispatchKeySet(AutogradCPU)",
    ],
)
def test_the_first_compilations_for_other_modes_are_warm_up(reason: str) -> None:
    changed, modes = torch_guards.parse(reason), torch_guards.Modes()
    assert [modes.is_first("1", changed) for _ in range(6)] == [True] * 4 + [False] * 2
    assert modes.is_first("2", changed), "each function has its own"
    assert not modes.is_first("3", torch_guards.parse("0/0: L['steps_in_training'] == 4"))


def test_empty_and_huge_guards_are_harmless() -> None:
    assert torch_guards.parse("") == []
    [one] = torch_guards.parse("0/0: " + "x" * 10**6)
    assert len(one.name) == torch_guards.CHARS_MAX

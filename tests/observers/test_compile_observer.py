"""The observer of torch.compile finds faults at their lines in real programs, and nothing in healthy ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observers import observed
from tputui.logs import torch_guards
from tputui.telemetry import events as ev

PROGRAMS = observed.PROGRAMS / "torch_compile"


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
    [broken] = [event for event in events if isinstance(event, ev.GraphBroken)]
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
    ("reason", "expected"),
    [
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", ("x", "dtype Float", "dtype Double")),
        ("tensor 'L['x']' rank mismatch. expected 2, actual 3", ("x", "rank 2", "rank 3")),
        ("1/2: L['n'] == 4                # return x * n  # a.py:3 in f", ("n", "4", "7")),
        ("0/1: not L['self'].training", ("not L['self'].training", "true", "false")),
        ("0/1: L['config'] == 'a'", ("config", "'a'", "another value")),
    ],
)
def test_guards_that_failed_are_parsed(reason: str, expected: tuple[str, str, str]) -> None:
    [one] = torch_guards.parse(reason, {"n": 7})
    assert (one.name, one.before, one.now) == expected


def test_empty_and_huge_guards_are_harmless() -> None:
    assert torch_guards.parse("") == []
    [one] = torch_guards.parse("0/0: " + "x" * 10**6)
    assert len(one.name) == torch_guards.CHARS_MAX

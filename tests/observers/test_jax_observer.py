"""The observer of JAX finds faults at their lines in real programs on the CPU, and nothing in healthy ones."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.observers import observed
from tputui.telemetry import events as ev

# Importing JAX would change the environment of every later test.
pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
JAX = observed.PROGRAMS / "jax"
EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def _compiles(events: list[ev.Event], file: Path) -> list[ev.CompileObserved]:
    compiles = [event for event in events if isinstance(event, ev.CompileObserved) and not event.warm_up]
    return [event for event in compiles if event.user_frame is not None and event.user_frame.file == str(file)]


def _assert_found(files: list[Path], events: list[ev.Event]) -> None:
    for file in files:
        faults = observed.faults_of(file)
        assert observed.findings_in(file, events) >= faults, file.name
        lines = {line for _, line in faults}
        assert {line for _, line in observed.findings_in(file, events)} == lines, file.name


def test_a_late_compilation_is_found_at_its_line_with_the_input_that_changed(tmp_path: Path) -> None:
    file = JAX / "dtype_flip.py"
    events = observed.observe([file], tmp_path, **EIGHT)
    _assert_found([file], events)
    [late] = _compiles(events, file)
    assert late.changed_inputs == [
        ev.ChangedInput(name="rate", before="f32[]{weak_type=True}", now="f32[]{weak_type=False}")
    ]


@pytest.mark.slow
def test_a_function_defined_anew_and_reads_in_each_step_are_found_at_their_lines(tmp_path: Path) -> None:
    files = [JAX / "new_lambda.py", JAX / "float_each_step.py"]
    events = observed.observe(files, tmp_path, **EIGHT)
    _assert_found(files, events)
    late = _compiles(events, files[0])
    assert sum(event.count for event in late) == 15, "all but the first of 16 steps"
    assert all(event.seconds and event.seconds > 0 for event in late)
    reads = [event for event in events if isinstance(event, ev.SyncObserved)]
    assert {event.operation for event in reads} == {"float()"}
    assert all(event.count == event.steps and event.waited_s > 0 for event in reads), "once per step"
    assert sum(event.count for event in reads) == 300 - 6, "all but those before the first window"
    ended = [event for event in events if isinstance(event, ev.ObservationEnded)]
    [(_, line)] = observed.faults_of(files[1])
    [window] = [event for event in ended if event.why == f"float() in line {line} read a value 6 times"]
    assert window.steps == 12
    assert window.steady_step_s is not None
    assert window.steady_step_s > 0


@pytest.mark.slow
def test_every_faulty_program_is_found_at_its_line_and_no_healthy_one(tmp_path: Path) -> None:
    files = sorted(JAX.glob("*.py"))
    events = observed.observe(files, tmp_path, **EIGHT)
    _assert_found(files, events)
    assert sum(bool(observed.faults_of(file)) for file in files) >= 7

    def changed(name: str) -> list[tuple[str, str, str]]:
        late = _compiles(events, JAX / name)
        return [(one.name, one.before, one.now) for event in late for one in event.changed_inputs or ()]

    assert changed("shape_change.py")[0] == ("batch", "f32[16,8]", "f32[17,8]")
    assert changed("static_argument.py")[0] == ("kwargs['step']", "0", "1")
    assert changed("dtype_flip.py") == [("rate", "f32[]{weak_type=True}", "f32[]{weak_type=False}")]


@pytest.mark.slow
def test_nothing_is_written_without_a_run_or_if_it_is_disabled(tmp_path: Path) -> None:
    assert observed.observe([JAX / "new_lambda.py"], tmp_path, TPUTUI_OBSERVE_OFF="1") == []
    assert list((tmp_path / "run").iterdir()) == []

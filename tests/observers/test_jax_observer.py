"""The observer of JAX finds faults at their lines in real programs on the CPU, and nothing in healthy ones."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.observers import observed
from tputui.session import session
from tputui.telemetry import events as ev

# Importing JAX would change the environment of every later test.
pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
JAX = observed.PROGRAMS / "jax"
MOVED = """
import jax
del jax.monitoring.register_event_duration_secs_listener
from tputui.observers import autoload
autoload.jax_started()
"""
"""A JAX in which a name has moved since the observer was written."""
COUNTED = {"op_by_op", "device_put"}
EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def _compiles(events: list[ev.Event], file: Path) -> list[ev.CompileObserved]:
    compiles = [event for event in events if isinstance(event, ev.CompileObserved) and not event.warm_up]
    return [event for event in compiles if event.user_frame is not None and event.user_frame.file == str(file)]


def _assert_found(files: list[Path], events: list[ev.Event]) -> None:
    for file in files:
        faults = observed.faults_of(file)
        assert observed.findings_in(file, events) >= faults, file.name
        found = observed.findings_in(file, events)
        if faults:
            assert {line for _, line in found} == {line for _, line in faults}, file.name
        else:
            # The first compilations for a few sizes, and the reads of an evaluation, are a hint, if anything; the suite
            # of these programs judges them.
            assert {rule for rule, _ in found} <= {"recompile", "sync"}, file.name


def test_a_late_compilation_is_found_at_its_line_with_the_input_that_changed(tmp_path: Path) -> None:
    file = JAX / "dtype_flip.py"
    events = observed.observe([file], tmp_path, **EIGHT)
    _assert_found([file], events)
    topology = session.load(tmp_path / "run").topology
    assert topology is not None
    assert (topology.device, topology.num_cores) == ("CPU", 8)
    [late] = _compiles(events, file)
    assert late.changed_inputs == [
        ev.ChangedInput(name="rate", before="f32[]{weak_type=True}", now="f32[]{weak_type=False}")
    ]


CALLBACKS = """
import jax, jax.numpy as jnp, numpy as np

def report(loss):
    seen.append(float(loss))

def norm(weights):
    return np.float32(np.linalg.norm(np.asarray(weights)))

@jax.jit
def step(weights):
    jax.debug.callback(report, weights.sum())  # debug.callback
    jax.debug.print("sum {}", weights.sum())  # debug.print
    return weights / jax.pure_callback(norm, jax.ShapeDtypeStruct((), jnp.float32), weights)  # pure_callback

seen, weights = [], jnp.ones((8, 4))
for _ in range(40):
    weights = jax.block_until_ready(step(weights))
jax.effects_barrier()
"""


def test_callbacks_are_named_at_their_lines_and_what_they_read_is_no_read(tmp_path: Path) -> None:
    file = tmp_path / "callbacks.py"
    file.write_text(CALLBACKS)
    seen = [event for event in observed.observe([file], tmp_path) if isinstance(event, ev.SyncObserved)]
    lines = file.read_text().splitlines()
    named = {
        event.operation: lines[event.user_frame.line - 1].rpartition("# ")[2] for event in seen if event.user_frame
    }
    assert named == {
        "jax.debug.callback": "debug.callback",
        "jax.debug.print": "debug.print",
        "pure_callback": "pure_callback",
    }
    counts = {name: sum(event.count for event in seen if event.operation == name) for name in named}
    assert counts == dict.fromkeys(named, 40)


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
    assert window.device == "CPU"
    assert window.steady_step_s is not None
    assert window.steady_step_s > 0


@pytest.mark.slow
def test_every_faulty_program_is_found_at_its_line_and_no_healthy_one(tmp_path: Path) -> None:
    # A process counts the operations of a step once, and one fault may compile at two lines: the suite of these
    # programs runs each by itself and judges the verdicts.
    files = [file for file in sorted(JAX.glob("*.py")) if not COUNTED & {rule for rule, _ in observed.faults_of(file)}]
    files.remove(JAX / "two_functions.py")
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
def test_a_jax_that_is_not_supported_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MOVED)
    [failed] = observed.observe([tmp_path / "train.py"], tmp_path)[1:]
    assert isinstance(failed, ev.ObservationFailed)
    assert (failed.package, failed.version, failed.missing) == ("jax", version("jax"), ["compilations"])
    assert failed.reason.startswith("AttributeError: ")


def test_nothing_is_written_without_a_run_or_if_it_is_disabled(tmp_path: Path) -> None:
    assert observed.observe([JAX / "new_lambda.py"], tmp_path, TPUTUI_OBSERVE_OFF="1") == []
    assert list((tmp_path / "run").iterdir()) == []


ONE_BY_ONE = """
import math, time
import jax, jax.numpy as jnp
from jax._src import dispatch, pjit

def hooks():
    return pjit._pjit_call_impl_python, pjit._get_fastpath_data, dispatch._device_put_impl

@jax.jit
def step(weights):
    return weights * 2

before, compiled = hooks(), []
weights, end, steps = jnp.ones((64, 64)), math.inf, 0
while time.monotonic() < end:
    doubled = step(weights)
    weights = jnp.sqrt(doubled - weights) + jnp.zeros((64, 64))  # operations
    steps += 1
    if steps == 3:
        end = time.monotonic() + SECONDS
        jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
assert hooks() == before
assert not [event for event in compiled if "compile" in event], compiled
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.9, 8])
def test_operations_of_steps_are_counted_without_a_compilation_and_hooks_are_removed(
    tmp_path: Path, seconds: float
) -> None:
    file = tmp_path / "one_by_one.py"
    file.write_text(ONE_BY_ONE.replace("SECONDS", str(seconds)))
    [counted] = [one for one in observed.observe([file], tmp_path) if isinstance(one, ev.DispatchesCounted)]
    assert (counted.program, counted.steps) == ("step", 12)
    [line] = counted.lines
    assert line.user_frame is not None
    assert line.user_frame.line == 1 + ONE_BY_ONE[: ONE_BY_ONE.index("# operations")].count("\n")
    assert line.count % counted.steps == 0
    assert {"sqrt", "subtract", "add"} <= set(line.names)


PREPARES = """
import time
import jax, jax.numpy as jnp

@jax.jit
def prepare(part):
    return part * 2

part, end = jnp.ones((64, 64)), time.monotonic() + 1.5
while time.monotonic() < end:
    part = jnp.sqrt(prepare(part) - part) + jnp.zeros((64, 64))
    time.sleep(0.01)

@jax.jit
def step(weights):
    return weights * 3 + jnp.mean(weights)

weights, end = jnp.ones((8, 8)), time.monotonic() + 8
while time.monotonic() < end:
    weights = step(weights)
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_operations_of_a_preparation_are_not_those_of_the_steps(tmp_path: Path) -> None:
    file = tmp_path / "prepares.py"
    file.write_text(PREPARES)
    [counted] = [one for one in observed.observe([file], tmp_path) if isinstance(one, ev.DispatchesCounted)]
    assert (counted.program, counted.lines) == ("step", [])

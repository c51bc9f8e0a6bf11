"""The observer of torch_xla finds the faults of small programs, by line, and nothing in healthy ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.observers import __name__ as package
from tests.test_reporter_api import of_type, read_events
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import Verdict, found
from tputui.state.reducer import RunState
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

PROGRAMS = Path(__file__).with_name("programs.py")
STEPS = 20

pytestmark = pytest.mark.xla


FEW = ("faulty_reads", "faulty_ragged", "faulty_reads_compiled_early", "faulty_reads_compiled_late")
"""Programs of the default suite; the others take as long again each."""


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ev.Event]]:
    """The events of a few programs."""
    return observe(tmp_path_factory.mktemp("observed"), *FEW)


@pytest.fixture(scope="module")
def all_journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ev.Event]]:
    """The events of every program."""
    return observe(tmp_path_factory.mktemp("all_observed"))


def observe(folder: Path, *programs: str) -> dict[str, list[ev.Event]]:
    """Runs programs, which check themselves that no hook is left when they end."""
    pytest.importorskip("torch_xla")
    env = {"PJRT_DEVICE": "CPU", "PYTHONPATH": os.fspath(PROGRAMS.parents[2]), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = forked.run(f"{package}.programs", str(folder), *programs, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return {path.name: read_events(path / "observer-0.jsonl") for path in sorted(folder.iterdir())}


def faults(program: str) -> dict[str, int]:
    """The lines of the marked faults of a program, by mark."""
    marks: dict[str, int] = {}
    inside = False
    for number, line in enumerate(PROGRAMS.read_text().splitlines(), 1):
        if line.startswith("def "):
            inside = line.startswith(f"def {program}(")
        if inside and (marked := re.search(r"# fault: (.*)", line)):
            marks[marked.group(1)] = number
    return marks


def line(event: Any) -> int:
    assert event.user_frame is not None, event.line_reason
    assert event.user_frame.file == str(PROGRAMS)
    number: int = event.user_frame.line
    return number


def recompiles(events: list[ev.Event]) -> list[ev.CompileObserved]:
    return [event for event in of_type(events, ev.CompileObserved) if not event.warm_up]


def test_every_kind_of_read_is_found_by_line(journals: dict[str, list[ev.Event]]) -> None:
    events = journals["faulty_reads"]
    reads = of_type(events, ev.SyncObserved)
    assert {read.operation: line(read) for read in reads} == faults("faulty_reads")
    assert {(read.count, read.steps) for read in reads} == {(5, 5)}
    assert all(0 < read.waited_s < read.window_s for read in reads)
    [ended] = of_type(events, ev.ObservationEnded)
    assert re.fullmatch(r"\d\.\d transfers from the device a step", ended.why)
    assert 0 < ended.steady_step_s < ended.window_s
    assert ended.device == "CPU"
    assert {one.speedup for one in found(diagnosed(events))} == {None}, "host and device share the CPU"
    assert recompiles(events) == []


def test_a_function_compiled_while_reads_are_observed_is_one_graph(journals: dict[str, list[ev.Event]]) -> None:
    # The programs check their graphs; the lines are known if most of the steps were observed before.
    [marked] = faults("_faulty_reads_and_compiles").values()
    late = found(diagnosed(journals["faulty_reads_compiled_late"]))
    assert [(one.rule, one.line) for one in late] == [("sync", marked)]
    [early] = found(diagnosed(journals["faulty_reads_compiled_early"]))
    assert (early.rule, early.line) == ("sync", None)
    assert re.search(
        r"^torch.compile is in use.*; before it compiled: .item\(\) at programs.py:\d+$", early.line_reason or ""
    )
    assert f":{marked}" in (early.line_reason or "")


@pytest.mark.slow
def test_reads_before_the_sync_compile_in_warm_up_only(all_journals: dict[str, list[ev.Event]]) -> None:
    events = all_journals["faulty_reads_before_sync"]
    [read] = of_type(events, ev.SyncObserved)
    assert {read.operation: line(read)} == faults("faulty_reads_before_sync")
    assert {one.cause for one in of_type(events, ev.CompileObserved)} == {"sync", "value_read"}
    assert recompiles(events) == []


@pytest.mark.slow
def test_fallbacks_are_found_by_operator_and_line(all_journals: dict[str, list[ev.Event]]) -> None:
    events = all_journals["faulty_fallbacks"]
    found = of_type(events, ev.FallbackObserved)
    assert {fallback.operator: line(fallback) for fallback in found} == faults("faulty_fallbacks")
    assert all((one.count, one.transfers) == (5, 10) and 0 < one.seconds < one.window_s for one in found)
    assert of_type(events, ev.SyncObserved) == []


def test_a_ragged_batch_is_explained_when_it_first_compiles(journals: dict[str, list[ev.Event]]) -> None:
    events = journals["faulty_ragged"]
    [late] = recompiles(events)
    marked = faults("faulty_ragged")
    assert line(late) == marked["x"]
    assert late.changed_inputs == [ev.ChangedInput(name="x", before="f32[16,8]", now="f32[5,8]")]
    assert (late.cause, late.step, late.program) == ("sync", 8, "faulty_ragged")
    assert late.seconds is not None
    assert late.seconds > 0
    assert of_type(events, ev.ObservationEnded) == [], "nothing is left to be explained"


@pytest.mark.slow
def test_a_constant_that_changes_is_found_in_the_graph(all_journals: dict[str, list[ev.Event]]) -> None:
    events = all_journals["faulty_constant"]
    late = recompiles(events)
    [(name, number)] = faults("faulty_constant").items()
    explained = [one for one in late if one.changed_inputs]
    assert len(late) == 7
    assert len(explained) == 4, "of the 5 steps in the window the first one has none to compare with"
    assert {change.name for one in explained for change in one.changed_inputs or []} == {name}
    assert [line(one) for one in late[2:]] == [number] * 5
    assert [int(change.before) - int(change.now) for one in explained for change in one.changed_inputs or []] == [1] * 4


@pytest.mark.slow
def test_reads_without_any_sync_compile_in_every_step(all_journals: dict[str, list[ev.Event]]) -> None:
    events = all_journals["faulty_no_sync"]
    late = recompiles(events)
    [number] = faults("faulty_no_sync").values()
    assert {one.cause for one in late} == {"value_read"}
    assert {line(one) for one in late[1:]} == {number}
    [read] = of_type(events, ev.SyncObserved)
    assert (line(read), read.count, read.compiled) == (number, 5, 5)


@pytest.mark.slow
def test_healthy_programs_give_no_alarm(all_journals: dict[str, list[ev.Event]]) -> None:
    events = all_journals["healthy_all"]
    kinds = {type(event) for event in events}
    assert kinds == {ev.JournalOpened, ev.CompileObserved, ev.ProgramObserved, ev.XlaMetricsRead}
    assert recompiles(events) == []
    totals = of_type(events, ev.XlaMetricsRead)[-1]
    assert (totals.recompiles, totals.fallbacks) == (0, {})
    assert totals.compiles == sum(one.count for one in of_type(events, ev.CompileObserved))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ("faulty_ragged", "recompile"),
        ("faulty_constant", "recompile"),
        ("faulty_no_sync", "recompile"),
        ("faulty_reads", "sync"),
        ("faulty_reads_before_sync", "sync"),
        ("faulty_fallbacks", "fallback"),
    ],
)
def test_verdicts_name_the_marked_lines(all_journals: dict[str, list[ev.Event]], program: str, rule: str) -> None:
    verdicts = found(diagnosed(all_journals[program]))
    assert {one.line for one in verdicts if one.rule == rule} == set(faults(program).values())
    assert all(one.file == str(PROGRAMS) and (one.lost_s or 0.0) > 0 and one.fix for one in verdicts)


@pytest.mark.slow
def test_healthy_programs_have_no_verdict(all_journals: dict[str, list[ev.Event]]) -> None:
    assert found(diagnosed(all_journals["healthy_all"])) == ()


def diagnosed(events: list[ev.Event]) -> tuple[Verdict, ...]:
    state = RunState()
    for seq, event in enumerate(events):
        state.apply("observer-0", seq, event)
    return diagnose(build_snapshot(state, ViewerContext(now=events[-1].t, run="run", dir="/runs/run")))


def test_programs_are_described_once(journals: dict[str, list[ev.Event]]) -> None:
    [program] = of_type(journals["faulty_ragged"], ev.ProgramObserved)
    assert program.inputs == [ev.TensorSpec(dtype="f32", shape=[16, 8])]
    assert [(one.m, one.k, one.n, one.count) for one in program.matmuls] == [(16, 8, 4, 1), (8, 16, 4, 1)]
    assert program.num_operations > 10

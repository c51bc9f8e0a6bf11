"""The observer of torch_xla finds the faults of small programs, by line, and nothing in healthy ones."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.deadline import DEADLINE_S
from tests.observers import __name__ as package
from tests.observers.observed import observe_in_copy
from tests.test_reporter_api import of_type, read_events
from tputui.diagnosis.diagnose import diagnose, diagnose_rehearsal
from tputui.diagnosis.rehearsal import steps_of
from tputui.diagnosis.verdict import Verdict, found
from tputui.session import session
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.text import show_page
from tputui.text.show_page import to_show
from tputui.ui.base.alarms import alarms_of

PROGRAMS = Path(__file__).with_name("programs.py")
LAUNCHED = Path(__file__).with_name("launched.py")
STEPS = 20

pytestmark = pytest.mark.xla


FEW = (
    "faulty_reads",
    "faulty_ragged",
    "faulty_reads_compiled_early",
    "faulty_reads_compiled_late",
    "faulty_mask",
    "faulty_power",
    "faulty_sync_within_a_call",
    "faulty_time_steps",
    "healthy_time_steps",
)
"""Programs of the default suite; the others take as long again each."""
COUNTED = {"counted_plain": 4, "counted_reported": 6, "counted_of_two_ranks": 12}
"""Programs that count, with the number of their compilations after warm-up, over all ranks."""


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
    done = forked.run(f"{package}.programs", str(folder), *programs, env=env, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    journals = {path.name: path / "observer-0.jsonl" for path in sorted(folder.iterdir())}
    return {name: read_events(journal) for name, journal in journals.items() if journal.exists()}


@pytest.fixture(scope="module")
def counted_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose programs write what torch_xla itself counted in them."""
    folder = tmp_path_factory.mktemp("counted")
    observe(folder, *COUNTED, "counted_without_a_device")
    return folder


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


def test_a_sync_within_the_forward_pass_is_an_extra_execution(journals: dict[str, list[ev.Event]]) -> None:
    [verdict] = found(diagnosed(journals["faulty_time_steps"]))
    assert verdict.rule == "extra_execution"
    assert verdict.text.startswith("a step runs 5 programs in place of 1")
    assert found(diagnosed(journals["healthy_time_steps"])) == ()


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


def test_a_number_passed_to_an_operator_of_torch_has_its_line(journals: dict[str, list[ev.Event]]) -> None:
    [verdict] = [one for one in found(diagnosed(journals["faulty_power"])) if one.rule == "recompile"]
    assert (verdict.line, verdict.function) == (faults("faulty_power")["constant of pow"], "change")
    assert re.search(r"constant of pow [\d.]+ -> [\d.]+$", verdict.text), verdict.text


def test_a_boolean_mask_is_one_verdict_at_its_line(journals: dict[str, list[ev.Event]]) -> None:
    events = journals["faulty_mask"]
    verdicts = found(diagnosed(events))
    assert [one.rule for one in verdicts] == ["recompile"], verdicts
    [verdict] = verdicts
    assert (verdict.line, verdict.function) == (faults("faulty_mask")["nonzero"], "kept")
    assert "the result of nonzero " in verdict.text
    assert "torch.where(mask, x, 0)" in verdict.fix
    assert any("nonzero runs on the host CPU" in one for one in verdict.evidence)
    compiling_s = sum(one.seconds or 0.0 for one in recompiles(events))
    assert (verdict.lost_s or 0.0) >= compiling_s > 0, "the fallback counts as well"


@pytest.mark.slow
def test_what_a_read_compiles_after_a_mask_is_the_same_fault(all_journals: dict[str, list[ev.Event]]) -> None:
    verdicts = found(diagnosed(all_journals["faulty_mask_that_is_read"]))
    [recompile] = [one for one in verdicts if one.rule == "recompile"]
    assert recompile.line == faults("faulty_mask_that_is_read")["masked_select"]
    assert {one.rule for one in verdicts} <= {"recompile", "sync"}


@pytest.mark.slow
def test_a_mask_on_batches_of_other_shapes_is_not_their_cause(all_journals: dict[str, list[ev.Event]]) -> None:
    late = recompiles(all_journals["faulty_lengths_with_a_mask"])
    explained = {change.name for one in late if one.cause == "sync" for change in one.changed_inputs or []}
    assert "x" in explained
    assert not [name for name in explained if name.startswith(ev.RESULT_OF)]


def test_a_sync_within_a_call_of_torch_ends_as_without_observation(journals: dict[str, list[ev.Event]]) -> None:
    events = journals["faulty_sync_within_a_call"]
    assert of_type(events, ev.WarningRaised) == []
    assert "constant of roll" in {change.name for one in recompiles(events) for change in one.changed_inputs or []}


@pytest.mark.slow
@pytest.mark.parametrize("program", ["faulty_power", "faulty_layer_norm", "faulty_threshold", "faulty_slice"])
def test_numbers_that_libraries_pass_on_are_found_in_the_graph(
    all_journals: dict[str, list[ev.Event]], program: str
) -> None:
    late = recompiles(all_journals[program])
    [(name, number)] = faults(program).items()
    explained = [one for one in late if one.changed_inputs]
    assert explained
    assert {change.name for one in explained for change in one.changed_inputs or []} == {name}
    assert {line(one) for one in explained} == {number}


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
    assert all(one.file == str(PROGRAMS) and one.fix for one in verdicts)
    # How long a read waits is not lost where host and device share the CPU.
    assert all((one.lost_s or 0.0) > 0 for one in verdicts if one.rule != "sync")


@pytest.mark.slow
def test_a_batch_of_another_size_is_a_hint_at_its_line(all_journals: dict[str, list[ev.Event]]) -> None:
    [late] = [one for one in diagnosed(all_journals["faulty_ragged"]) if one.rule == "recompile"]
    assert (late.status, [late.line]) == ("hint", list(faults("faulty_ragged").values()))


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


@pytest.mark.parametrize(("program", "recompiles"), COUNTED.items())
def test_counters_are_those_of_torch_xla_in_every_view(counted_runs: Path, program: str, recompiles: int) -> None:
    run_dir = counted_runs / program
    counted = Counter[str]()
    for file in run_dir.glob("metrics-*.json"):
        counted.update(json.loads(file.read_text()))
    snapshot = session.load(run_dir)
    verdicts = diagnose(snapshot)
    shown = to_show(snapshot)["xla"]
    assert (shown["compiles"], shown["executes"]) == (counted["compiles"], counted["executes"])
    assert (shown["transfers_to_device"], shown["transfers_from_device"]) == (counted["to"], counted["from"])
    assert (shown["scalar_reads"], shown["recompiles"]) == (counted["reads"], recompiles)
    assert snapshot.xla_history[-1].compiles == counted["compiles"]
    [line] = [line for line in show_page.show_text(snapshot).splitlines() if line.startswith("xla ")]
    assert f"{counted['compiles']} compiles in" in line
    assert f"{counted['executes']} executions" in line
    assert f"recompiles {recompiles} after warm-up" in line
    assert [alarm.key for alarm in alarms_of(snapshot) if "recompile" in alarm.key] == [f"recompiles {recompiles}"]
    again = [int(found[1]) for one in verdicts if (found := re.search(r"compiles again (\d+) times", one.text))]
    assert sum(again) == recompiles


def test_a_program_that_only_imports_torch_xla_has_no_counters(counted_runs: Path) -> None:
    snapshot = session.load(counted_runs / "counted_without_a_device")
    assert snapshot.steps > 0
    assert snapshot.xla is None
    assert "xla" not in {line.split(" ")[0] for line in show_page.show_text(snapshot).splitlines()}


def launched(folder: Path, kind: str, steps: int, **variables: str) -> Snapshot:
    """A program that `torch_xla.launch` runs in four threads, as it is observed."""
    if find_spec("torch_xla") is None:
        pytest.skip("needs torch_xla")
    variables = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4", "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    observe_in_copy(LAUNCHED, folder, kind, str(steps), **variables)
    return session.load(folder / "run")


def line_of(mark: str) -> int:
    return 1 + next(place for place, text in enumerate(LAUNCHED.read_text().splitlines()) if f"# fault: {mark}" in text)


def test_a_read_in_one_of_several_threads_is_found_with_its_rank(tmp_path: Path) -> None:
    snapshot = launched(tmp_path, "reads", 32, TPUTUI_OBSERVE="all")
    [verdict] = found(diagnose_rehearsal(snapshot))
    assert (verdict.rule, verdict.line, Path(verdict.file or "").name) == ("sync", line_of("reads"), LAUNCHED.name)
    assert verdict.text == "`.item()` waits for the device in every step on rank 0"
    assert 25 <= steps_of(snapshot) <= 32, "steps of a rank"
    xla = snapshot.xla
    assert xla is not None
    # Each of the four cores compiles its first two steps, and the slower ones later than the others.
    assert (xla.compiles, xla.recompiles, xla.executes) == (8, 0, 4 * 32)
    assert xla.steps is not None
    assert xla.steps.steps <= 32
    assert xla.steps.executes == xla.steps.expected_executes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["healthy", "logs"])
def test_healthy_threads_have_no_verdict(tmp_path: Path, kind: str) -> None:
    snapshot = launched(tmp_path, kind, 120)
    assert found(diagnose(snapshot)) == ()
    assert snapshot.xla is not None
    assert (snapshot.xla.compiles, snapshot.xla.recompiles) == (8, 0)


@pytest.mark.slow
def test_recompiles_of_several_threads_have_their_line(tmp_path: Path) -> None:
    snapshot = launched(tmp_path, "ragged", 40)
    verdicts = [one for one in found(diagnose(snapshot)) if one.rule == "recompile"]
    assert {one.line for one in verdicts} == {line_of("ragged")}
    assert any("input x f32[" in one.text for one in verdicts)

"""Compiles, executions and reads of whole runs: totals, sections and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.workers import BETWEEN_CLOCKS_S, HERE, Run, make, runs_to_end
from tputui.session.session import load
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.text import show_page
from tputui.text.lines import LineWriter

pytestmark = [pytest.mark.xla, pytest.mark.slow]

ROOT = HERE.parents[1]
WAITING = """
task = "tests.engine.waiting_step_task:Median"
epochs = 2
[data]
batch_per_core = 8
[optim]
lr = 0.01
lr_scaling = "none"
[report]
every_batches = 4
[device]
cores = 2
"""
STEPS = 32
WARM_UP = 2


def last(run: Run) -> ev.XlaMetricsRead:
    return run.all(ev.XlaMetricsRead)[-1]


def read_by(run: Run) -> tuple[Snapshot, str]:
    """The run as its viewers know it, and the page that `show` prints."""
    snapshot = load(run.dir)
    return snapshot, show_page.show_text(snapshot)


def lines(run: Run) -> list[str]:
    """The lines that `--no-ui` prints of the run."""
    teller = LineWriter()
    return [line for seq, event in enumerate(run.events()) for line in teller.lines("worker-0", seq, event)]


@pytest.fixture(scope="module")
def median(runs_dir: Path) -> Run:
    """Takes a median in each step, on two cores of one process."""
    return runs_to_end(make(runs_dir, "median", text=WAITING, cwd=ROOT))


@pytest.fixture(scope="module")
def reading(runs_dir: Path) -> Run:
    """Reads a value in each step, on two cores of a process each."""
    options = ["task=tests.engine.waiting_step_task:Reading", "device.strategy=replica"]
    return runs_to_end(make(runs_dir, "reading", options, text=WAITING, cwd=ROOT))


def test_compiles_inside_trace_are_recompiles_in_every_view(median: Run) -> None:
    read = last(median)
    assert read.fallbacks["median"] > STEPS
    assert read.recompiles >= STEPS - WARM_UP, "a step compiles once more where the median wants its values"
    assert read.compiles - read.recompiles <= 10
    snapshot, page = read_by(median)
    assert snapshot.xla is not None
    assert snapshot.xla.is_never_recompiled is False
    assert f"recompiles {read.recompiles} after warm-up" in page
    assert any(f"; {read.recompiles} in all after warm-up" in line for line in lines(median))


def test_the_time_of_those_compiles_is_charged_to_compile(median: Run) -> None:
    epochs = median.all(ev.EpochEnded)
    assert sum(epoch.sections_s["compile"] for epoch in epochs) == pytest.approx(last(median).compile_s, rel=0.2)
    assert all(epoch.sections_s["compile"] > 0 for epoch in epochs), "both are marked as epochs that compiled"
    for begun, ended in zip(median.all(ev.EpochStarted), epochs, strict=True):
        assert min(ended.sections_s.values()) >= 0
        assert sum(ended.sections_s.values()) == pytest.approx(ended.t - begun.t, rel=0.01, abs=BETWEEN_CLOCKS_S)
        assert sum(ended.trace_s.values()) <= ended.sections_s["trace"] + 0.01


def test_compile_every_step_warns_a_few_times(median: Run) -> None:
    warnings = [event.text for event in median.all(ev.WarningRaised)]
    of_steps = [text for text in warnings if text.startswith('program "step", run ')]
    assert 1 <= len(of_steps) <= 5
    assert of_steps[0].startswith('program "step", run 3: 1 program compiled inside its trace, before its sync (')
    assert "; seen in that trace: median on the host CPU" in of_steps[0]
    assert not any("has changed" in text for text in warnings)
    [excess] = [text for text in warnings if "executions a step" in text]
    assert excess.startswith(
        "3.0 executions a step where 1 is expected; on the host CPU because they have no lowering: median"
    )


def test_only_scalar_reads_of_the_task_are_counted(reading: Run) -> None:
    read = last(reading)
    valid_steps = reading.one(ev.TrainingPlanned).valid_steps
    assert read.scalar_reads == STEPS + 2 * valid_steps
    assert read.transfers_from_device == read.engine_reads + read.scalar_reads
    counted = STEPS - WARM_UP
    assert read.steps == ev.StepPrograms(
        steps=counted, executes=3 * counted, expected_executes=2 * counted, scalar_reads=counted
    )
    assert read.recompiles == 0


def test_extra_reads_and_executions_warn_once(reading: Run) -> None:
    _, page = read_by(reading)
    assert "3.0 a step where 2 are expected" in page
    assert "1.0 scalars a step (.item(), float(), if tensor)" in page
    [warning] = [event.text for event in reading.all(ev.WarningRaised) if "executions a step" in event.text]
    assert warning.startswith(
        "3.0 executions a step where 2 are expected; 1.0 scalar reads a step (.item(), float(), if tensor); "
        "the host has waited "
    )
    assert sum(f"warning: {warning}" == line for line in lines(reading)) == 1


def test_only_the_first_rank_warns(reading: Run) -> None:
    assert "executions a step" not in (reading.dir / "rank-1.jsonl").read_text()


def test_diagnosis_names_the_lines_of_the_task(median: Run, reading: Run) -> None:
    source = ROOT / "tests" / "engine" / "waiting_step_task.py"
    numbers = {line.strip(): number for number, line in enumerate(source.read_text().splitlines(), 1)}
    of_median = next(number for line, number in numbers.items() if "torch.median(" in line)
    fallback = median.one(ev.FallbackObserved)
    code = source.read_text().splitlines()[of_median - 1].strip()
    frame = ev.CodeFrame(file=str(source), line=of_median, function="outcomes", owner="user", code=code)
    assert fallback.user_frame == frame
    assert (fallback.operator, fallback.count, fallback.steps) == ("aten::median", 5, 5)
    late = [event for event in median.all(ev.CompileObserved) if not event.warm_up]
    assert sum(event.count for event in late) == last(median).recompiles
    assert {event.user_frame for event in late} <= {None, fallback.user_frame}
    assert late[0].line_reason is not None
    read = reading.one(ev.SyncObserved)
    assert read.user_frame is not None
    assert (read.operation, read.user_frame.line) == (".item()", numbers['outcomes["loss"].mean().item()'])
    assert (read.count, read.steps) == (5, 5)
    assert [event for event in reading.all(ev.CompileObserved) if not event.warm_up] == []


def test_a_constant_of_the_task_that_changes_is_found_by_line(runs_dir: Path) -> None:
    options = ["task=tests.engine.waiting_step_task:Shifting", "epochs=1"]
    run = runs_to_end(make(runs_dir, "shifting", options, text=WAITING, cwd=ROOT))
    source = ROOT / "tests" / "engine" / "waiting_step_task.py"
    numbers = {line.strip(): number for number, line in enumerate(source.read_text().splitlines(), 1)}
    late = [event for event in run.all(ev.CompileObserved) if not event.warm_up]
    explained = [event for event in late if event.changed_inputs]
    assert {event.cause for event in late} == {"sync"}
    assert late[0].line_reason is not None
    assert len(explained) >= 3
    assert {event.user_frame.file for event in explained if event.user_frame is not None} == {str(source)}
    lines = {event.user_frame.line for event in explained if event.user_frame is not None}
    assert lines <= {number for text, number in numbers.items() if "torch.roll(" in text}
    assert {change.name for event in explained for change in event.changed_inputs or []} >= {"constant of roll"}
    assert {one.program for one in run.all(ev.ProgramObserved)} == {"step"}
    assert sum(event.count for event in late) == last(run).recompiles


def test_garbage_collections_of_a_run_are_reported_with_their_time(tmp_path: Path) -> None:
    text = WAITING.replace("waiting_step_task:Median", "collecting_task:CollectedLine")
    options = ["epochs=1", "data.num_train=512", "data.workers=0"]
    run = runs_to_end(make(tmp_path, "collecting", options, text=text, cwd=ROOT))
    reports = run.all(ev.ProgressReported)
    assert reports[-1].step == 512 // 16
    # Later batches may be read ahead of the first step, before which nothing is counted, and after the last report.
    assert sum(report.collections[2] for report in reports) >= 8
    assert all(report.collections_s[2] > 0 for report in reports if report.collections[2])

"""The line of a report."""

from __future__ import annotations

import math

import msgspec
import pytest

from tests.recorded import T0, opened, steps_recorded, worker_events
from tputui.telemetry import events as ev
from tputui.text.lines import LineWriter

PROGRESS = ev.ProgressReported(
    t=T0 + 2, epoch=1, epoch_step=1, step=1, step_s=0.1, examples_per_s=640.0, lr=0.1, report_steps=1
)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([math.nan, math.nan], "train loss NaN on all cores"),
        ([math.nan, math.inf, math.inf], "train loss: no core finite (1 NaN, 2 inf)"),
        ([math.inf, -math.inf], "train loss: no core finite (1 -inf, 1 inf)"),
        ([1.0, math.nan], "train loss NaN (1.0000 core 0 .. 1.0000 core 0, 1 not finite)"),
    ],
)
def test_non_finite_losses_are_printed_as_such(losses: list[float], words: str) -> None:
    writer = LineWriter()
    events = [opened(T0, "worker"), steps_recorded(T0 + 1, 1, [losses]), PROGRESS]
    lines = [line for seq, event in enumerate(events) for line in writer.lines("worker-0", seq, event)]
    assert words in (lines + writer.flush())[-1].split("  ")


def progress(step: int, *, epoch: int = 1) -> ev.ProgressReported:
    return msgspec.structs.replace(PROGRESS, t=T0 + step, epoch=epoch, epoch_step=step, step=step)


def meters(step: int, loss: float, *, epoch: int = 1) -> ev.MetersReported:
    reading = ev.MeterReading(val=loss, avg=loss, sum=loss, count=1)
    return ev.MetersReported(
        t=T0 + step, epoch=epoch, step=step, split="train", meters={"loss": reading}, reduced="mean over examples"
    )


def printed(*events: ev.Event, timestamps: bool = False, process: str = "worker-0") -> list[str]:
    writer = LineWriter(timestamps=timestamps)
    recorded_events = [opened(T0, process.partition("-")[0]), *events]
    lines = [line for seq, event in enumerate(recorded_events) for line in writer.lines(process, seq, event)]
    return lines + writer.flush()


@pytest.mark.parametrize("meters_first", [False, True])
def test_values_of_a_line_are_of_one_step(meters_first: bool) -> None:
    events: list[ev.Event] = []
    for step, loss in ((1, 4.0), (2, 3.0)):
        report = [progress(step), meters(step, loss + 0.25)]
        events += [steps_recorded(T0 + step, step, [[loss]]), *(reversed(report) if meters_first else report)]
    columns = [line.split("  ") for line in printed(*events)]
    assert [column[1:4] for column in columns] == [
        ["step 1", "train loss 4.0000", "avg loss 4.2500"],
        ["step 2", "train loss 3.0000", "avg loss 3.2500"],
    ]


def test_of_many_averages_the_first_are_printed_and_the_others_counted() -> None:
    reading = ev.MeterReading(val=0.5, avg=0.5, sum=0.5, count=1)
    names = [f"layer{number}/grad_norm" for number in range(60)] + ["loss"]
    many = ev.MetersReported(
        t=T0 + 5, epoch=1, step=5, split="train", meters=dict.fromkeys(names, reading), reduced="mean"
    )
    (line,) = printed(steps_recorded(T0 + 4, 5, [[2.0]]), progress(5), many)
    averages = line.partition("avg ")[2].split("  ")[0]
    assert averages.startswith("loss 0.5000, layer0/grad_norm 0.5000, ")
    assert averages.endswith(" +55")
    assert averages.count("0.5000") == 6


def test_averages_of_the_epoch_before_are_not_printed() -> None:
    lines = printed(
        steps_recorded(T0 + 22, 22, [[2.0]]), progress(22), meters(22, 2.5),
        steps_recorded(T0 + 23, 23, [[1.0]]), progress(23, epoch=2),
    )  # fmt: skip
    assert "avg" in lines[0]
    assert lines[1].split("  ")[:3] == ["epoch 2", "step 23", "train loss 1.0000"]
    assert "avg" not in lines[1]


def test_losses_of_another_step_are_not_printed() -> None:
    (line,) = printed(steps_recorded(T0 + 4, 4, [[2.0]]), progress(5), meters(5, 2.5))
    assert line.split("  ")[1:3] == ["step 5", "avg loss 2.5000"]


def test_report_without_meters_precedes_later_events() -> None:
    lines = printed(
        steps_recorded(T0 + 1, 1, [[2.0]]), progress(1), ev.WarningRaised(t=T0 + 2, text="the disk is full")
    )
    assert lines[0].split("  ")[1] == "step 1"
    assert lines[1] == "warning: the disk is full"


def test_ranks_that_report_the_same_are_printed_once() -> None:
    epoch = ev.EpochEnded(
        t=T0 + 5, epoch=1, step=3, train={}, valid={}, train_s=1.0, valid_s=0.0, sections_s={}, lr=0.1, best=False
    )
    ends = [ev.TrainingEnded(t=T0 + 6, outcome=outcome, step=3, reason="why") for outcome in ("done", "failed")]
    writer = LineWriter()
    writers = ("worker-0", "worker-1", "worker-2", "logs-0")
    for name in writers:
        role, _, index = name.partition("-")
        writer.lines(name, 0, opened(T0, role, host_index=int(index)))
    lines = [
        line
        for seq, event in enumerate([epoch, ends[0]], start=1)
        for name in writers
        for line in writer.lines(name, seq, event)
    ]
    assert [sum(text in line for line in lines) for text in ("epoch 1 ended", "training done")] == [1, 1]
    assert any("training failed" in line for line in writer.lines("worker-1", 3, ends[1]))


def test_timestamps_are_those_of_the_events() -> None:
    lines = printed(
        steps_recorded(T0 + 1, 1, [[2.0]]), progress(1), ev.WarningRaised(t=T0 + 62, text="late"),
        ev.WarningRaised(t=math.nan, text="timeless"), timestamps=True,
    )  # fmt: skip
    assert [line.split("  ")[0] for line in lines[:2]] == ["2025-10-09T08:53:21Z", "2025-10-09T08:54:22Z"]
    assert len(lines) == 3


def test_traceback_repeated_in_the_log_is_printed_once() -> None:
    traceback = "Traceback (most recent call last):\n  File x\nValueError: bad"
    lines = printed(
        ev.FailureRaised(t=T0, error="ValueError", message="bad", traceback=traceback, phase="data", step=7),
        ev.TrainingEnded(t=T0, outcome="failed", step=7, reason="ValueError: bad"),
        *(ev.LogWritten(t=T0 + 1, line=line) for line in ["loading", *traceback.splitlines(), "  File x"]),
    )
    assert [line for line in lines if "File x" in line] == ["      File x", "worker-0 |   File x"]
    assert [line for line in lines if "ValueError: bad" in line] == [
        "error: training failed in step 7 while waiting for data: ValueError: bad",
        "    ValueError: bad",
    ]
    assert "worker-0 | loading" in lines


def test_failure_repeats_no_output_that_was_printed_before_it() -> None:
    traceback = "Traceback (most recent call last):\n  File x\nValueError: bad"
    raised = ev.FailureRaised(t=T0, error="ValueError", message="bad", traceback=traceback, phase="data", step=7)
    reported = ev.FailureReported(
        t=T0 + 2, process="worker-0", pid=7, kind="killed", error="SIGKILL", message="gone", phase="executing", step=7,
        log=["loading", "step 7"], stack="", silent=True,
    )  # fmt: skip
    output = [ev.LogWritten(t=T0, line=line) for line in ["loading", "step 7", *traceback.splitlines()]]

    assert [line for line in printed(*output, raised) if "File x" in line] == ["worker-0 |   File x"]
    assert "      File x" in printed(output[0], raised)
    of_command = ev.FailureRaised(t=T0, error="ValueError", message="bad", traceback=traceback, phase="unknown", step=0)
    assert [line for line in printed(*output, of_command) if "ValueError: bad" in line] == [
        "worker-0 | ValueError: bad"
    ]
    assert "error: training failed: ValueError: bad" in printed(output[0], of_command)
    assert "last lines printed before" not in printed(*output, reported, process="supervisor-0")
    lines = printed(output[0], reported, process="supervisor-0")
    assert lines[lines.index("last lines printed before") + 1 :][:2] == ["    loading", "    step 7"]


def test_what_every_host_reports_of_the_run_is_printed_once() -> None:
    writer, lines = LineWriter(), list[str]()
    for process in ("supervisor-1", "supervisor-0"):
        host = int(process[-1])
        for seq, event in enumerate(
            [
                opened(T0, "supervisor", host),
                ev.RunStarted(t=T0 + 1, run="pod", config={}, argv=["tputui", "run"]),
                ev.RunEnded(t=T0 + 9, outcome="done", exit_code=0, reason="3 epochs trained"),
            ]
        ):
            lines += writer.lines(process, seq, event)
    assert lines == ["run pod started: tputui run", "run done: 3 epochs trained"]


def test_a_run_that_ended_without_a_reason_is_printed_without_a_colon() -> None:
    for reason in ("", "done"):
        writer = LineWriter()
        writer.lines("supervisor-0", 0, opened(T0, "supervisor"))
        ended = ev.RunEnded(t=T0 + 9, outcome="done", exit_code=0, reason=reason)
        assert writer.lines("supervisor-0", 1, ended) == ["run done"]


def test_a_restart_is_printed_with_the_steps_that_are_trained_again() -> None:
    again = msgspec.structs.replace(opened(T0 + 7, "worker"), generation=1)
    (plan,) = (event for event in worker_events() if isinstance(event, ev.TrainingPlanned))
    before, after = (msgspec.structs.replace(plan, t=t, first_step=step) for t, step in ((T0, 1), (T0 + 8, 5)))
    lines = printed(before, *(steps_recorded(T0 + step, step, [[1.0]]) for step in range(1, 7)), again, after)
    (line,) = [line for line in lines if line.startswith("restart")]
    assert line == "restart 1: training continues with step 5; 2 steps trained again"


def test_a_clock_that_was_measured_after_the_first_events_was_not_set_back() -> None:
    writer = LineWriter()
    events = [
        opened(T0 + 90, "supervisor", 1),
        ev.WarningRaised(t=T0 + 91, text="first"),
        # From here on its times are corrected by 90 s.
        ev.WarningRaised(t=T0 + 2, text="second"),
        ev.WarningRaised(t=T0 + 3, text="third"),
    ]
    lines = [line for seq, event in enumerate(events) for line in writer.lines("supervisor-1", seq, event)]
    assert lines == ["warning: first", "warning: second", "warning: third"]

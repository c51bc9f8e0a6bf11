"""The text that panels draw, without an app."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from tests.recorded import T0, opened, steps_recorded
from tests.ui import made
from tests.ui.fake_launch_service import MEMORY
from tputui import formatting as fmt
from tputui.compare.compare import compare
from tputui.state.chart_data import NonFinite, OutlierView
from tputui.state.reducer import RunState
from tputui.state.snapshot import DevicesView, RequestView, Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry.events import CoreSample, EpochStarted, ProgressReported, RequestKind, StepPrograms
from tputui.text.lines import LineWriter
from tputui.text.show_page import show_text, to_show
from tputui.ui.base import status_text
from tputui.ui.base.alarms import alarms_of
from tputui.ui.charts.chart_view import ChartView, Window
from tputui.ui.monitor.arrangement import DIAGNOSIS, HOSTS, PANELS, arrange
from tputui.ui.monitor.body import PANEL_TYPES
from tputui.ui.monitor.cores import CoreHistory, CoresPanel
from tputui.ui.monitor.epochs import SECTION_GLYPHS, EpochsPanel, bar_scale_s
from tputui.ui.monitor.header import Header
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.memory import MemoryPanel
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.pace import PacePanel
from tputui.ui.monitor.startup import checklist
from tputui.ui.monitor.xla import XlaPanel
from tputui.ui.render.lines import Line, Span, clean, crop, fit, printed, width_of, wrap
from tputui.ui.runs.rows import row_of
from tputui.ui.runs.table import summary_text
from tputui.ui.terminal.output_filter import to_ascii
from tputui.ui.widgets.panel import Box, RunPanel

ALL: list[Callable[[], Snapshot]] = [
    made.running,
    made.starting,
    made.empty,
    made.finished,
    made.failed,
    made.diverged,
    made.outlying,
    lambda: made.running(1),
    lambda: made.running(2048),
]


def drawn(panel: type[RunPanel[Any]], snapshot: Snapshot, width: int = 60, height: int = 20) -> str:
    """The text of a panel."""
    drawing = panel().draw(panel.pick(snapshot), width, height)
    return joined([*drawing.head, *drawing.rows])


def joined(lines: list[Line]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("panel", PANEL_TYPES)
def test_no_snapshot_and_no_size_breaks_a_panel(panel: type[RunPanel[Any]], make: Callable[[], Snapshot]) -> None:
    snapshot = make()
    for width, height in [(1, 1), (10, 3), (30, 9), (78, 22), (200, 60)]:
        assert isinstance(drawn(panel, snapshot, width, height), str)


@pytest.mark.parametrize("make", ALL)
def test_no_snapshot_breaks_the_header(make: Callable[[], Snapshot]) -> None:
    header = Header()
    header.show(make(), replaying=False)
    for width in (1, 20, 80, 200):
        assert len(header.paint(width, 4)) == 4


@pytest.mark.parametrize("panel", PANEL_TYPES[:-1])
def test_starting_is_described_in_one_panel(panel: type[RunPanel[Any]]) -> None:
    said = drawn(panel, made.starting(), width=120)
    assert ("imports, data and model" in said) == (panel is LossPanel)
    assert " yet" in said or panel is LossPanel


def test_startup_checklist_follows_the_phases() -> None:
    def steps(**changes: Any) -> list[tuple[str, int | None]]:
        return [(step.state, step.seconds) for step in checklist(made.changed(made.starting(), **changes))]

    waiting = ("waiting", None)
    assert steps(phase=None, created=made.NOW - 2.5) == [("running", 2), waiting, waiting, waiting]
    assert steps() == [("done", None), ("running", 4), waiting, waiting]
    begun = EpochStarted(epoch=1, first_step=1, t=made.NOW - 12)
    built = {"plan": made.running().plan, "epoch_starts": [begun], "started": made.NOW - 20}
    compiling = steps(phase="compiling", phase_s=11.0, **built)
    assert compiling == [("done", None), ("done", 8), ("running", 12), waiting]
    assert steps(phase="executing", phase_s=1.0, **built)[2:] == [("done", None), ("running", 1)]
    assert steps(phase="data", phase_s=3.0, **built)[2:] == [waiting, ("running", 3)]
    assert checklist(made.running()) == ()
    assert checklist(made.changed(made.starting(), condition="failed")) == ()


def test_startup_checklist_describes_what_was_built() -> None:
    run = made.changed(made.starting(), plan=made.running().plan, topology=made.running().topology, phase="compiling")
    said = drawn(LossPanel, run, width=120)
    assert "starting  8 TPU cores" in said
    assert "1,437 + 360 examples" in said


def test_empty_panel_of_ended_run_states_it() -> None:
    snapshot = made.changed(made.starting(), condition="lost")
    assert "no meter; the run has ended" in drawn(MetersPanel, snapshot, width=100)


def reported_by_logs_only() -> Snapshot:
    """A run of a user's command, whose steps are known from its logs."""
    run = made.running(2)
    assert run.topology is not None
    assert run.throughput is not None
    topology = replace(run.topology, device="unknown", strategy="unknown", num_cores=2)
    history = [replace(point, examples_per_s=math.nan, step_s=0.25) for point in run.throughput.history]
    return made.changed(
        run,
        phase="unknown",
        plan=None,
        topology=topology,
        throughput=replace(run.throughput, history=history, examples_per_s=math.nan),
        meters=[],
        xla=None,
        cores=[replace(core, phase="unknown") for core in run.cores],
    )


def test_unknown_phase_plan_and_batch_of_a_command_are_not_invented() -> None:
    run = reported_by_logs_only()
    assert f"step {run.steps:,}" in header_text(run)
    assert " step " in header_text(run)
    assert "2 cores" in header_text(run)
    assert "unknown cores" not in header_text(run)
    assert "phase not reported" not in header_text(run)
    assert "running" in drawn(CoresPanel, run)
    pace = drawn(PacePanel, run)
    assert "examples/s" not in pace
    ended = made.changed(run, condition="done")
    assert ended.throughput is not None
    steady = f"steady  {fmt.step_time(ended.throughput.steady_step_s)}/step"
    assert steady in drawn(PacePanel, ended), "the speed that the header and the comparison have"
    assert "nan" not in pace.lower()
    assert drawn(MetersPanel, run).strip() == "no meter yet: the command has reported none"
    assert drawn(XlaPanel, run).strip() == "no XLA counter yet: the command has reported none"


def header_text(snapshot: Snapshot, width: int = 160, *, replaying: bool = False) -> str:
    header = Header()
    header.show(snapshot, replaying=replaying)
    return joined([fit(line, width) for line in header.paint(width, 4)])


def test_header_describes_the_run() -> None:
    said = header_text(made.running())
    for part in (
        "digits-20251009-100000",
        "RUNNING",
        "executing",
        "updated < 1 s ago",
        "epoch 3/4",
        "step 330/440",
        "75 %",
        "ETA 3 s",
        "13.1 ms/step",
        "4,885 examples/s",
        "lr 0.004",
        "\u2605 best valid loss 0.4500 (epoch 2)",
        "8 TPU cores \u00b7 spmd bf16",
        "batch 8/core x 8 = 64",
        "checkpoint saved at step 220, 353 KiB, 50.0 ms, checkpoints/step-00000220.pt",
    ):
        assert part in said


def test_the_header_fits_80_cells_with_its_figures() -> None:
    said = header_text(made.running(), 80)
    assert "4,885 ex/s \u00b7 lr 0.004 \u00b7 \u2605 best valid loss 0.4500 (epoch 2)" in said
    assert "ETA 3 s" in said


def test_every_condition_has_word_and_sign() -> None:
    signs = {(sign.mark, sign.word) for sign in status_text.CONDITIONS.values()}
    assert len(signs) == 7
    for condition, sign in status_text.CONDITIONS.items():
        assert f"{sign.mark} {sign.word}" in header_text(made.changed(made.running(), condition=condition))


def test_alarms_are_in_the_header() -> None:
    said = header_text(made.diverged())
    for part in (
        "30 NaN/inf from core 3, step 301",
        "1 damaged region, 2 events lost",
        "12 steps dropped",
        "7 recompiles",
    ):
        assert part in said


@pytest.mark.parametrize(("condition", "word"), [("running", "RUNNING NaN"), ("done", "DONE NaN")])
def test_nan_warning_is_permanent_and_names_its_start(condition: str, word: str) -> None:
    bad = [NonFinite(core=core, step=1, metric="loss", value=math.nan) for core in range(8)]
    run = made.changed(made.running(), condition=condition, non_finite=bad, num_non_finite=880)
    said = header_text(run)
    assert f"\u25b2 {word}" in said
    assert "880 NaN/inf from all 8 cores, step 1" in said
    assert status_text.sign_of(run.condition, 880).tone == "warn"


@pytest.mark.parametrize("condition", ["running", "done", "lost"])
@pytest.mark.parametrize("width", [80, 160])
def test_unreadable_parts_are_named_in_the_header(condition: str, width: int) -> None:
    run = made.changed(made.running(), condition=condition, troubles=["the run's directory /runs/b is gone"])
    warned = made.changed(run, warnings=["the losses of epoch 2 could not be kept"], requests=[])
    assert "\u25b2 the run's directory /runs/b is gone" in header_text(warned, width)


def test_an_awaited_receipt_comes_before_alarms() -> None:
    request = msgspec.structs.replace(made.running().requests[0], state="seen", applied_step=None, t=made.NOW - 500)
    said = header_text(made.changed(made.diverged(), requests=[request]))
    assert said.index("seen while evaluating") < said.index("NaN/inf")


@pytest.mark.parametrize("ahead_s", [0, 600, -600])
def test_receipt_comes_before_alarms_for_a_minute_of_the_run(ahead_s: float) -> None:
    """Also if the clock of the viewer that made the request is ahead of the clock of the run."""

    def is_first(ago: float) -> bool:
        asked = request(t=made.NOW - ago - 1 + ahead_s, answered_t=made.NOW - ago)
        said = header_text(made.changed(made.diverged(), requests=[asked]))
        return said.index("checkpoint saved at st") < said.index("30 NaN/inf")

    assert is_first(50)
    assert not is_first(70)


def test_age_of_newest_event_increases_on_screen() -> None:
    assert "updated 1 min ago" in header_text(made.changed(made.running(), newest_fact=made.NOW - 90))


def request(**changes: Any) -> RequestView:
    base = made.running().requests[0]
    return msgspec.structs.replace(base, **changes)


def test_receipts() -> None:
    asked = request(state="requested", seen_phase=None)
    assert status_text.receipt(asked, []) == "checkpoint: requested; no answer from the run yet"
    assert status_text.receipt(request(state="seen"), []) == "checkpoint: seen while evaluating"
    assert status_text.receipt(request(state="seen", seen_phase="unknown"), []) == "checkpoint: seen"
    refused = request(state="refused", why="it ends already", kind="stop_now")
    assert status_text.receipt(refused, []) == "stop at once: seen while evaluating -> refused: it ends already"
    stopped = request(kind="stop", path=None, applied_step=9)
    assert status_text.receipt(stopped, []) == "stopped at step 9"


@pytest.mark.parametrize("kind", get_args(RequestKind))
def test_header_shows_the_answer_to_every_kind_of_request(kind: RequestKind) -> None:
    answered = request(kind=kind, state="applied", applied_step=840, path="written/by-the-run", seen_phase="executing")
    said = header_text(made.changed(made.running(), requests=[answered]))
    assert "at step 840, written/by-the-run" in said
    waiting = header_text(made.changed(made.running(), requests=[request(kind=kind, state="seen")]))
    assert f"{status_text.REQUEST_NAMES[kind]}: seen while evaluating" in waiting


def test_cores_show_loss_step_and_state() -> None:
    said = drawn(CoresPanel, made.outlying(), width=54, height=12)
    assert "5  1.9000 \u25b4" in said
    assert "\u25b2 stalled: data 1 min" in said
    assert said.count("\u25cf executing") == 7


@pytest.mark.parametrize("width", [36, 40, 44])
def test_state_of_a_stalled_core_is_whole_in_a_narrow_panel(width: int) -> None:
    run = made.outlying()
    run = made.changed(run, cores=[replace(core, phase="executing") for core in run.cores])
    lines = [line for line in drawn(CoresPanel, run, width=width, height=12).splitlines() if "stalled" in line]
    assert [line.rpartition("\u25b2")[2].strip() for line in lines] == ["stalled 1 min"]
    assert len(lines[0].rstrip()) <= width


def test_the_frame_names_the_outlier() -> None:
    drawing = CoresPanel().draw(CoresPanel.pick(made.outlying()), 34, 12)
    assert drawing.note == "core 5 high since step 121"


def test_slow_core_is_named_in_every_form_of_the_panel() -> None:
    run = made.with_slow_core()
    table = drawn(CoresPanel, run, width=60, height=12)
    assert "time" in table.splitlines()[0]
    assert "26.6 ms  \u25b2 33 % slower" in table
    assert table.count("20.0 ms  \u25cf executing") == 7
    assert CoresPanel().draw(CoresPanel.pick(run), 70, 12).note == "core 5: 33 % slower than the others for 180 steps"
    assert CoresPanel().draw(CoresPanel.pick(run), 47, 12).note == "core 5: 33 % slower for 180 steps"
    strip = CoresPanel().draw(CoresPanel.pick(run), 78, 2)
    assert "core 5: 33 % slower" in strip.note
    for many, width, height in ((64, 60, 14), (2048, 60, 16)):
        assert "\u25b2 core 5: 33 % slower" in drawn(CoresPanel, made.with_slow_core(many), width=width, height=height)


def test_alarm_names_the_slow_core() -> None:
    alarms = alarms_of(made.with_slow_core())
    assert [alarm.text for alarm in alarms if "slower" in alarm.text] == ["core 5: 33 % slower since step 121"]


def test_enlarged_cores_say_why_no_time_is_known() -> None:
    panel = CoresPanel()
    part = CoresPanel.pick(made.changed(made.running(), compute_reason="not available under spmd"))
    assert panel.draw(part, 60, 12).note == "8 cores"
    panel.add_class("-maximised")
    assert panel.draw(part, 60, 12).note == "8 cores, per-core times: not available under spmd"


def test_a_core_low_among_2048_is_named() -> None:
    cores = made.cores(2048)
    cores[1033] = msgspec.structs.replace(cores[1033], loss=0.001)
    odd = OutlierView(core=1033, by=-0.09, first_step=300, last_step=330)
    said = drawn(CoresPanel, made.changed(made.running(2048), cores=cores, outlier=odd), width=60, height=16)
    assert "\u25be core 1033: 0.0010" in said


def test_core_map_shows_every_group_and_problem() -> None:
    cores = made.cores(2048)
    cores[7] = msgspec.structs.replace(cores[7], loss=math.nan)
    cores[2000] = msgspec.structs.replace(cores[2000], condition="stalled")
    said = drawn(CoresPanel, made.changed(made.running(2048), cores=cores), width=60, height=16)
    assert "NaN/inf: core 7" in said
    assert "stalled: core 2000" in said
    body = said.splitlines()[2:]
    assert len(body) <= 14
    assert sum(line.count("\u2716") for line in body) == 1
    assert sum(line.count("\u25b2") for line in body) == 1
    assert "4 cores, the worst shown" in said or "one block per 4 cores" in said


def test_64_cores_have_a_block_each() -> None:
    said = drawn(CoresPanel, made.running(64), width=34, height=10)
    blocks = [line.split()[1:] for line in said.splitlines()[2:]]
    assert [len(row) for row in blocks] == [8] * 8


def test_meters_show_val_avg_sum_count_and_reduction() -> None:
    said = drawn(MetersPanel, made.running(), width=120)
    head, loss, accuracy, *rest = said.splitlines()
    assert [title.strip() for title in head.split("  ") if title] == [
        *("meter", "train avg", "valid avg", "\u2605 epoch 2", "train last", "valid last"),
        *("train sum", "valid sum", "train count", "valid count"),
    ]
    assert loss.split() == [
        "loss",
        "0.4132",
        "\u2605",
        "0.4501",
        "0.4500",
        "0.4049",
        "0.4411",
        "363.62",
        "162.04",
        "880",
        "360",
    ]
    assert accuracy.split()[1:3] == ["-", "\u2605"]
    assert "avg: mean over examples, 8 cores" in rest[0]


def test_meters_wrap_columns_in_full_screen() -> None:
    panel = MetersPanel()
    panel.set_class(True, "-maximised")
    drawing = panel.draw(MetersPanel.pick(made.running()), 60, 20)
    assert "valid count" in joined([*drawing.head, *drawing.rows])
    assert drawing.note == "train epoch 3, valid epoch 2"


def test_epochs_show_every_section_in_full_screen() -> None:
    panel = EpochsPanel()
    panel.set_class(True, "-maximised")
    drawing = panel.draw(EpochsPanel.pick(made.running()), 78, 30)
    said = joined(drawing.lines(0, 2, 30))
    for title in ("train loss", "valid accuracy", "train s", "valid s", "lr", "data", "compile", "evaluate", "other"):
        assert title in said
    assert "2 \u2605 best" in said


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (200, 50)])
def test_values_of_many_epochs_are_below_their_titles(width: int, height: int) -> None:
    """With more epochs than fit, all columns scroll together, the newest epochs first."""
    panel = EpochsPanel()
    panel.set_class(True, "-maximised")
    panel.show(EpochsPanel.pick(made.changed(made.running(), epochs=made.epochs(60))))
    for rows, newest in ((0, 60), (-7, 53)):
        panel.scroll_rows(rows)
        lines = [joined([line])[1:-1] for line in panel.paint(width, height)]
        heads = [index for index, line in enumerate(lines) if line.split()[:1] == ["epoch"]]
        assert sum("train loss" in line for line in lines) == 1
        assert sum("trace" in lines[index] for index in heads) == 1
        for start, stop in zip(heads, [*heads[1:], len(lines)], strict=True):
            epochs = [int(line.split()[0]) for line in lines[start:stop] if line.split() and line.split()[0].isdigit()]
            assert epochs[-1] == newest
            assert epochs == list(range(epochs[0], newest + 1))


def test_epochs_count_hidden_columns() -> None:
    drawing = EpochsPanel().draw(EpochsPanel.pick(made.running()), 40, 3)
    assert drawing.note == "+14 columns (enter)"


@pytest.mark.parametrize(
    ("width", "note"),
    [
        (84, "train epoch 3, valid epoch 2, +2 columns (enter)"),
        (56, "train epoch 3, valid epoch 2, +5"),
        (40, "ep 3 / 2, +6"),
    ],
)
def test_meters_count_hidden_columns_in_the_frame(width: int, note: str) -> None:
    drawing = MetersPanel().draw(MetersPanel.pick(made.running()), width, 8)
    assert drawing.note == note


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (90, "predicted 408 KiB a core of 2.7 GiB: activations 300 KiB, optimizer 100 KiB"),
        (70, "predicted 408 KiB a core of 2.7 GiB: activations 300 KiB, \u2026"),
        (50, "predicted 408 KiB a core of 2.7 GiB"),
        (34, "predicted 408 KiB of 2.7 GiB"),
        (26, "predicted 408 KiB"),
    ],
)
def test_estimated_memory_has_units_at_any_width(width: int, expected: str) -> None:
    run = made.running()
    kib = 1 << 10
    core = msgspec.structs.replace(
        MEMORY,
        total_bytes=408 * kib,
        limit_bytes=int(2.7 * (1 << 30)),
        activations_bytes=300 * kib,
        optimizer_bytes=100 * kib,
        parameters_bytes=1,
        gradients_bytes=1,
        inputs_bytes=1,
        telemetry_bytes=1,
        rematerialised=False,
    )
    predicted = made.changed(run, memory=msgspec.structs.replace(run.memory, predicted=core))
    drawing = MemoryPanel().draw(MemoryPanel.pick(predicted), width, 12)
    assert joined([*drawing.rows]).splitlines()[0].strip() == expected


def scored() -> Snapshot:
    """Epochs with scores and tracing times by part."""
    ended = [
        msgspec.structs.replace(epoch, scores={"auc": 0.9 + 0.01 * epoch.epoch}, trace_s={"forward": 0.12})
        for epoch in made.epochs(2)
    ]
    return made.changed(made.running(), epochs=ended)


def test_compiling_epoch_is_marked_with_steady_time() -> None:
    compiling = msgspec.structs.replace(made.epochs(1)[0], train_s=4.7, valid_s=0.4)
    snapshot = made.changed(made.running(), epochs=[compiling, made.epochs(2)[1]])
    head, _, first, second = drawn(EpochsPanel, snapshot, width=240).splitlines()
    assert [row.split()[:2] for row in (first, second)] == [["1", "\u25c6"], ["2", "\u2605"]]
    at = head.index("steady s") + len("steady s")
    assert (first[:at].split()[-1], second[:at].split()[-1]) == ("2.00", "2.05")
    assert "\u25c6 3.10" in first
    assert "\u25c6" not in second
    assert EpochsPanel().draw(EpochsPanel.pick(snapshot), 70, 9).note.startswith("\u25c6 compiled")


def test_learning_rate_that_is_not_reported_has_no_column() -> None:
    unknown = [msgspec.structs.replace(epoch, lr=math.nan) for epoch in made.epochs(12)]
    head = drawn(EpochsPanel, made.changed(made.running(), epochs=unknown), width=240)
    assert "lr" not in head.split()
    assert "nan" not in head
    page = show_text(made.changed(made.running(), epochs=unknown))
    assert "valid s  lr" not in page
    assert "nan" not in page.lower()
    some = made.changed(made.running(), epochs=[unknown[0], *made.epochs(12)[1:]])
    assert "lr" in drawn(EpochsPanel, some, width=240).split()
    assert "nan" not in drawn(EpochsPanel, some, width=240)


def test_epoch_bar_length_is_duration_by_section() -> None:
    drawing = EpochsPanel().draw(EpochsPanel.pick(made.running()), 112, 9)
    long, short = (joined([row])[112 - 28 - 1 :] for row in drawing.rows)
    assert drawing.head[-2][-1].text == "0 to 5.1 s"
    assert len(long.strip()) == 28
    assert long.count("\u2593") == round(3.1 / 5.12 * 28)
    assert "\u2593" not in short
    assert len(short.strip()) == pytest.approx(2.02 / 5.12 * 28, abs=1)
    legend = joined([drawing.head[-1]]).split()[1::2]
    assert legend == ["data", "trace", "compile", "execute", "report", "evaluate", "save", "other"]
    narrow = joined([EpochsPanel().draw(EpochsPanel.pick(made.running()), 60, 9).head[-1]])
    assert narrow.index("compile") < narrow.index("execute"), "the longest sections, in the same order"


def lines_of(panel: type[RunPanel[Any]], snapshot: Snapshot, width: int, height: int) -> list[str]:
    return drawn(panel, snapshot, width, height).splitlines()


def test_epochs_show_both_losses_before_bars_of_their_sections() -> None:
    head, first, _ = lines_of(EpochsPanel, made.running(), 42, 6)
    epoch = made.running().epochs[0]
    assert head.split()[:5] == ["epoch", "train", "loss", "valid", "loss"]
    assert first.split()[-2:] == [fmt.number(epoch.train["loss"].avg), fmt.number(epoch.valid["loss"].avg)]
    assert "execute" in "".join(lines_of(EpochsPanel, made.running(), 82, 9))


def test_epochs_have_more_columns_below_titles_in_two_lines() -> None:
    upper, head, _, first, second = lines_of(EpochsPanel, made.running(), 82, 9)
    assert upper.split() == ["train", "valid", "valid", "train", "valid"]
    assert head.split()[:7] == ["epoch", "loss", "loss", "accuracy", "examples/s", "s", "s"]
    assert head.index("accuracy") + len("accuracy") == first.index("0.8000") + len("0.8000")
    # 110 steps of 64 examples in 1.63 and 1.64 s.
    assert "4,319" in first
    assert "4,293" in second
    assert lines_of(EpochsPanel, made.running(), 82, 8)[0].split()[:3] == ["epoch", "train", "loss"]


def test_examples_per_second_of_an_epoch_are_those_of_its_steps() -> None:
    run = made.running()
    assert run.plan is not None
    resumed = made.changed(run, plan=replace(run.plan, first_step=56), epochs=made.epochs(1))
    assert "2,160" in drawn(EpochsPanel, resumed, 120)
    third = replace(made.epochs(1)[0], epoch=3, step=330)
    rows = lines_of(EpochsPanel, made.changed(run, epochs=[*made.epochs(1), third]), 120, 20)
    assert "4,319" in rows[-2]
    assert "4,319" not in rows[-1]
    assert "examples/s" not in drawn(EpochsPanel, made.changed(run, plan=None), 120)


def test_epochs_without_compile_are_not_marked() -> None:
    snapshot = made.changed(made.running(), epochs=made.epochs(2)[1:])
    assert "\u25c6" not in drawn(EpochsPanel, snapshot, width=200)
    assert "\u25c6" not in EpochsPanel().draw(EpochsPanel.pick(snapshot), 70, 9).note


def test_scores_follow_validation_meters_trace_parts_last() -> None:
    panel = EpochsPanel()
    panel.set_class(True, "-maximised")
    drawing = panel.draw(EpochsPanel.pick(scored()), 78, 30)
    said = joined([drawing.head[0], *drawing.lines(0, 2, 30)[2:]])
    places = [said.index(title) for title in ("valid accuracy", "valid auc", "train s", "other", "trace forward")]
    assert places == sorted(places)
    assert "0.9200" in said
    assert "0.12" in said


def test_meters_label_scores_of_the_whole_split() -> None:
    said = drawn(MetersPanel, scored(), width=70)
    assert next(line.split()[:3] for line in said.splitlines() if "auc" in line) == ["auc", "-", "0.9200*"]
    assert "* over the whole validation split, not a mean; epoch 2" in said
    assert "*" not in drawn(MetersPanel, made.running(), width=70)


def counted(**figures: int) -> Snapshot:
    """A run with these programs per step after warm-up."""
    run = made.running()
    assert run.xla is not None
    steps = {"steps": 100, "executes": 100, "expected_executes": 100, "scalar_reads": 0, **figures}
    return replace(run, xla=replace(run.xla, steps=StepPrograms(**steps)))


def test_zero_recompiles_is_shown_only_if_known() -> None:
    clear = drawn(XlaPanel, counted())
    assert "recompiles  0 after warm-up" in clear
    assert "342 in 4.1 s, 1.0 a step" in clear
    assert "host reads  0 a step" in clear
    assert "recompiles  0 (still warming up)" in drawn(XlaPanel, counted(steps=0, executes=0, expected_executes=0))
    run = made.running()
    assert run.xla is not None
    old = drawn(XlaPanel, replace(run, xla=replace(run.xla, steps=None)))
    assert "0 after warm-up" not in old
    assert "recompiles  0 at syncs, others not counted" in old
    assert "host reads" not in old


def test_extra_executions_and_scalar_reads_are_highlighted() -> None:
    said = drawn(XlaPanel, counted(executes=300, scalar_reads=100), width=70)
    assert "\u25b2 3.0 a step where 1 is expected; 342 in all" in said
    assert "\u25b2 1.0 scalars a step (.item(), float(), if tensor)" in said
    two = drawn(XlaPanel, counted(executes=200, expected_executes=200))
    assert "2.0 a step" in two
    assert "\u25b2" not in two


def test_recompiles_and_fallbacks_are_highlighted() -> None:
    said = drawn(XlaPanel, made.diverged())
    assert "\u25b2 7" in said
    assert "\u25b2 35" in said
    assert said.index("aten::nonzero  31") < said.index("aten::im2col  4")


def test_values_of_tpu_cores_are_columns_of_the_cores_panel_if_they_are_known() -> None:
    cores = [CoreSample(core=core, duty_cycle_percent=90.0 + core, queued_programs=core % 3) for core in range(8)]
    why = "no TPU runtime answers on port 8438"
    read = made.changed(made.running(), devices=DevicesView(t=made.NOW, cores=cores, reason=why, absent=[]))
    said = drawn(CoresPanel, read)
    assert "duty  queued  state" in said
    assert re.search(r"^    7 .* 97 %       1 ", said, re.M)
    assert "duty" not in drawn(CoresPanel, made.running())
    assert f"TPU: {why}" in drawn(MemoryPanel, read)
    unknown = made.changed(read, cores=[])
    assert [line.split() for line in drawn(CoresPanel, unknown).splitlines()[:2]] == [
        ["core", "duty", "queued"], ["0", "90", "%", "0"],
    ]  # fmt: skip


def test_memory_shows_hbm_or_reason() -> None:
    assert "HBM 7       9.7 GiB of 16.0 GiB" in drawn(MemoryPanel, made.running())
    assert "HBM: the CPU device does not tell its memory" in drawn(MemoryPanel, made.finished())


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize(("num_cores", "num_hosts"), [(0, 0), (1, 1), (8, 1), (64, 4), (128, 16), (2048, 256)])
@pytest.mark.parametrize("size", [(80, 19), (80, 18), (120, 31), (160, 40), (200, 45), (60, 13), (110, 26), (300, 80)])
def test_panels_tile_the_body(size: tuple[int, int], num_cores: int, num_hosts: int, failed: bool) -> None:
    width, height = size
    for selected in PANELS:
        boxes = arrange(width, height, selected, failed=failed, num_cores=num_cores, num_hosts=num_hosts).boxes
        assert (selected in boxes) == (selected != HOSTS or num_hosts > 1)
        # Every cell is in a box, and the boxes have no more cells than the body.
        assert cells_in(boxes.values(), width, height) == [b"\1" * width] * height
        assert sum(box.width * box.height for box in boxes.values()) == width * height
        assert all(box.width >= 20 for box in boxes.values())
        assert all(box.height >= (3 if name in ("cores", HOSTS) else 5) for name, box in boxes.items())


def cells_in(boxes: Iterable[Box], width: int, height: int) -> list[bytearray]:
    """The rows of a body, with a one in each cell of a box."""
    rows = [bytearray(width) for _ in range(height)]
    for box in boxes:
        for row in rows[box.y : box.y + box.height]:
            row[box.x : box.x + box.width] = b"\1" * box.width
    return rows


@pytest.mark.parametrize("num_cores", [1, 8, 16, 64, 2048])
def test_cores_wide_chart_and_log_are_visible_at_80x24(num_cores: int) -> None:
    for height in (18, 19):
        boxes = arrange(80, height, "cores", num_cores=num_cores).boxes
        assert set(boxes) == {"cores", "loss", "log"}
        assert boxes["loss"].width == 80
        assert boxes["log"].height - 2 >= 3
    assert set(arrange(80, 18, "meters", num_cores=8).boxes) == {"cores", "loss", "meters"}


def test_log_and_epochs_are_visible_at_100x30() -> None:
    boxes = arrange(100, 24, "cores", num_cores=8).boxes
    assert set(boxes) == {"cores", "loss", "meters", "epochs", "log"}


def test_sparkline_below_each_core_at_200x50() -> None:
    box = arrange(200, 44, "cores", num_cores=8).boxes["cores"]
    said = drawn(CoresPanel, made.running(), box.width - 2, box.height - 2).splitlines()
    sparklines = [line for line in said if line.startswith("      \u2588")]
    assert len(sparklines) == 8
    assert all(line[-1] in "\u2581\u2582" for line in sparklines), "the losses fall"


def test_sparklines_keep_spikes_and_mark_non_finite_losses() -> None:
    columns = made.core_columns(4, steps=160, columns=160)
    columns[80] = made.core_column(81, 81, 4, {2: 9.0})
    columns[120] = made.core_column(121, 121, 4, {3: math.nan})
    history = CoreHistory()
    for width in (160, 20):
        found = history.sparklines(columns, range(4), width, 2)
        text = {core: ["".join(span.text for span in line) for line in lines] for core, lines in found.items()}
        assert all(len(lines) == 2 and len(lines[1]) == width for lines in text.values())
        assert text[2][0].strip()[-1] == "\u2588", "the spike is the highest block"
        assert "\u2716" in text[3][1]
        assert "\u2716" not in text[2][1]
    grown = [*columns, made.core_column(161, 161, 4)]
    assert history.sparklines(grown, range(4), 20, 2) == CoreHistory().sparklines(grown, range(4), 20, 2)
    assert CoreHistory().sparklines([], range(4), 20, 2) == {}


def test_strip_of_cores_shows_every_loss_and_state() -> None:
    said = drawn(CoresPanel, made.outlying(), 78, 2)
    assert "5 1.9000 \u25b4" in said
    assert "6 0.0876  \u2500\u2500\u2500\u2500 \u25b2" in said, "the stalled core has the sign of its state"
    panel = CoresPanel()
    assert panel.draw(panel.pick(made.running()), 78, 2).note == "8 running"


def test_all_panels_are_visible_at_120x36() -> None:
    boxes = arrange(120, 31, "cores", num_cores=8).boxes
    assert set(boxes) == set(PANELS) - {"events", DIAGNOSIS, HOSTS}
    boxes = arrange(120, 31, "events", num_cores=8).boxes
    assert set(boxes) == set(PANELS) - {"log", DIAGNOSIS, HOSTS}


def test_log_and_events_are_side_by_side_at_160x45() -> None:
    assert set(arrange(160, 39, "cores", num_cores=8).boxes) == set(PANELS) - {DIAGNOSIS, HOSTS}


def test_clean_removes_control_characters() -> None:
    assert clean("a\x1b[31mb\x1b[0m\x07c\x9b2Jd\x1b]0;title\x07e\u202ef\tg") == "abcdef  g"
    assert clean("\u2764\ufe0f\u00ad\u061c\U000e0041!") == "\u2764!"
    assert printed("50%\r60%\r") == "60%"
    assert clean("checkpoint a\rb") == "checkpoint ab", "what stands before is not hidden"
    assert clean("plain [bold]text[/]") == "plain [bold]text[/]"
    assert clean("gr\u00fc\u00df \u4f60\u597d") == "gr\u00fc\u00df \u4f60\u597d"


def test_lines_fit_wide_characters() -> None:
    assert crop("\u4f60\u597d\u4f60\u597d", 5) == "\u4f60\u597d\u2026"
    line = [Span("\u4f60\u597d"), Span("ab", "good"), Span("\u4f60")]
    assert all(width_of(fit(line, width)) <= width for width in range(12))
    assert fit(line, 8) == line


def test_wrap_loses_no_word() -> None:
    text = "no report yet: the worker is starting (imports), 4 s"
    for width in (5, 12, 30):
        pieces = wrap(text, width)
        assert all(len(piece) <= width for piece in pieces)
        assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_compiling_epoch_bar_does_not_squeeze_others() -> None:
    assert bar_scale_s([21.0, 1.5, 1.6, 1.4]) == pytest.approx(4.8)
    assert bar_scale_s([2.0, 1.5, 1.6]) == 2.0
    assert bar_scale_s([0.0, 0.0, 1.0]) == 1.0
    first, *others = made.epochs(4)
    slow = msgspec.structs.replace(first, sections_s={**first.sections_s, "compile": 60.0})
    shown = drawn(EpochsPanel, made.changed(made.running(), epochs=[slow, *others]), 90, 9)
    assert [row.rstrip()[-1] == "\u203a" for row in shown.splitlines()[-4:]] == [True, False, False, False]


def test_sections_of_an_epoch_differ_in_ascii_too() -> None:
    glyphs = [glyph for glyph, _ in SECTION_GLYPHS.values()]
    assert len({to_ascii(glyph) for glyph in glyphs}) == len(glyphs)


@pytest.mark.parametrize("loss", [0.000952, 9.52e-05, -1.2345e-05, 123_456.7, 12.3456, -0.00012])
def test_a_loss_never_touches_the_number_of_its_core(loss: float) -> None:
    cores = [msgspec.structs.replace(core, loss=loss) for core in made.cores(130)]
    few = drawn(CoresPanel, made.changed(made.running(), cores=cores[:8]), 40, 12)
    assert all(row.split()[0] == str(core) for core, row in enumerate(few.splitlines()[1:9]))
    many = drawn(CoresPanel, made.changed(made.running(), cores=cores), 60, 60)
    assert all(re.match(r" *\d+ +-?[\d.]+(e[-+]\d+)? ", row) for row in many.splitlines()[1:30])


def test_every_view_shows_the_loss_of_the_newest_step() -> None:
    """List, `runs`, `show`, lines, comparison, chart and cores panel show the loss of the same step, as training."""
    state, writer = RunState(), LineWriter()
    state.apply("worker-0", 0, opened(T0, "worker"))
    writer.lines("worker-0", 0, opened(T0, "worker"))
    for seq in range(1, 1001):
        rows = [[10.0 / (seq * 4 + row)] * 8 for row in range(4)]
        event = steps_recorded(T0 + seq, seq * 4 - 3, rows)
        state.apply("worker-0", seq, event)
        writer.lines("worker-0", seq, event)
    snapshot = build_snapshot(state, ViewerContext(now=T0 + 1001, run="digits", dir="digits"))
    newest = pytest.approx(10.0 / 4003, rel=1e-6)
    assert snapshot.loss[-1].first_step < snapshot.loss[-1].last_step, "the curve's last piece is of several steps"
    assert [core.loss for core in snapshot.cores] == [newest] * 8
    assert snapshot.newest_loss == newest
    row = row_of(Path("digits"), snapshot, complete=True)
    assert row.loss == newest
    shown = fmt.number(10.0 / 4003)
    assert f"train loss {shown}" in summary_text(row)
    assert to_show(snapshot)["train_loss"] == newest
    assert f"train loss   {shown}  mean of 8 cores in step 4,000" in show_text(snapshot)
    progress = ProgressReported(
        t=T0 + 1001, epoch=1, epoch_step=4000, step=4000, step_s=0.1, examples_per_s=640.0, lr=0.1, report_steps=4
    )
    writer.lines("worker-0", 1001, progress)
    assert f"train loss {shown} " in " ".join(writer.flush())
    assert compare([snapshot, snapshot]).runs[0].loss == newest
    panel = LossPanel()
    drawing = panel.draw(LossPanel.pick(snapshot), 100, 20)
    assert f"train {shown} " in "".join(span.text for span in drawing.head[0])


def test_small_charts_and_cores_panel_print_one_loss_for_a_core() -> None:
    run = made.running()
    panel = LossPanel()
    panel.look = ChartView(kind="multiples")

    def shown() -> str:
        drawing = panel.draw(panel.pick(run), 120, 30)
        return "\n".join("".join(span.text for span in line) for line in drawing.rows)

    last = run.core_columns[-1]
    newest, mean = fmt.number(run.cores[3].loss), fmt.number(last.means[3])
    assert newest != mean, "the newest column is the mean of several steps"
    assert f"core 3 {newest}" in shown()
    assert f"   3  {newest}" in drawn(CoresPanel, run, 100, 20)
    panel.look = panel.look._replace(cursor=last.last_step)
    assert f"core 3 {mean}" in shown(), "under the cursor, the mean of its column"
    panel.look = panel.look._replace(cursor=None, window=Window(100, 200))
    assert f"core 3 {newest}" not in shown(), "the newest step is not visible"


def test_acknowledged_alarms_return_only_with_new_ones() -> None:
    def last_line() -> str:
        return "".join(span.text for span in header.paint(140, 4)[3])

    def recompiled(count: int) -> Snapshot:
        assert run.xla is not None
        return made.changed(run, xla=msgspec.structs.replace(run.xla, recompiles=count), requests=[])

    run, header = made.running(), Header()
    header.show(recompiled(1), replaying=False)
    assert "1 recompile " in last_line()
    header.acknowledge()
    assert "recompile" not in last_line()
    assert "newest checkpoint: step 220" in last_line()
    header.show(recompiled(2), replaying=False)
    assert "2 recompiles" in last_line()


def test_header_says_why_a_run_without_a_plan_stalls_once() -> None:
    why = "worker-0 is alive, but has sent nothing for 17 s"
    run = made.changed(made.starting(), condition="stalled", condition_reason=why)
    assert run.plan is None
    assert header_text(run).count(why) == 1


def test_warnings_and_receipts_can_be_acknowledged() -> None:
    def last_line() -> str:
        return "".join(span.text for span in header.paint(140, 4)[3])

    run, header = made.changed(made.running(), warnings=["the host has 2 cores"]), Header()
    header.show(made.changed(run, now=made.NOW + 3600), replaying=False)
    assert "checkpoint saved at step 220" in last_line()
    header.acknowledge()
    assert "newest checkpoint: step 220" in last_line()


def test_receipt_of_a_checkpoint_ends_with_a_newer_one() -> None:
    run = made.running()
    (*_, saved) = run.checkpoints
    assert "checkpoint saved at step 220" in header_text(run)
    later = made.changed(run, checkpoints=[*run.checkpoints, msgspec.structs.replace(saved, step=300, path="c/300")])
    assert "checkpoint saved at step 220" not in header_text(later)
    assert "newest checkpoint: step 300" in header_text(later)


def test_alarm_does_not_hide_the_newest_checkpoint() -> None:
    run = made.changed(made.diverged(), requests=[])
    last = header_text(run, 80).splitlines()[3]
    assert "30 NaN/inf from core 3, step 301" in last
    assert last.endswith("  saved step 220 ")
    calm = made.changed(made.running(), requests=[])
    assert "newest checkpoint: step 220, 353 KiB, 50.0 ms, " in header_text(calm, 80).splitlines()[3]
    warned = made.changed(made.running(), requests=[], warnings=["the host has 2 cores for 8 virtual devices"])
    assert header_text(warned, 80).splitlines()[3].endswith("  saved step 220 ")


def test_notice_does_not_hide_the_alarms() -> None:
    header = Header()
    header.show(made.diverged(), replaying=False)
    header.show_notice("theme: dark")
    for width, alarms in ((80, "\u25b2 4 alarms "), (200, "\u25b2 7 recompiles ")):
        last = joined([header.paint(width, 4)[3]])
        assert last.startswith(" \u276f theme: dark")
        assert last.endswith(alarms)


def test_state_is_a_chip_with_word_and_sign() -> None:
    header = Header()
    for condition, chip in (("running", "chip_good"), ("stalled", "chip_warn"), ("failed", "chip_bad")):
        header.show(made.changed(made.running(), condition=condition), replaying=False)
        sign = status_text.CONDITIONS[condition]  # type: ignore[index]  # one of its keys
        assert Span(f" {sign.mark} {sign.word} ", chip) in header.paint(120, 4)[0]  # type: ignore[arg-type]


def test_xla_counters_over_time_use_the_free_lines() -> None:
    rows = lines_of(XlaPanel, made.running(), 36, 13)
    assert len(rows) == 13
    [at] = [index for index, row in enumerate(rows) if row.startswith(" compile/report")]
    assert rows[at] == " compile/report  up to 3.0 s"
    # The run is 60 s old at its newest report; it compiled before steps 10 and 110, after 11.5 and 26.5 s.
    assert XlaPanel().draw(XlaPanel.pick(made.running()), 36, 13).note == "00:00 to 00:59"
    bars = rows[at + 1][1:]
    assert [cell for cell, block in enumerate(bars) if block != "\u00b7"] == [
        int(11.5 / 59.5 * 34),
        int(26.5 / 59.5 * 34),
    ]
    assert rows[at + 2] == " execute/step  12.4 ms"
    # No steps are known before the first reading, and an evaluation executed 6 programs.
    assert rows[-2] == " programs/step  1.0 to 1.6"
    assert rows[-1].strip("\u2588\u2587\u2586\u2585 ") == ""
    assert rows[:7] == lines_of(XlaPanel, made.running(), 36, 7)


def test_xla_charts_take_the_lines_of_the_full_screen() -> None:
    panel = XlaPanel()
    panel.set_class(True, "-maximised")

    def heights(height: int) -> list[int]:
        rows = [joined([row]) for row in panel.draw(XlaPanel.pick(made.running()), 190, height).rows]
        titles = [index for index, row in enumerate(rows) if row.startswith((" compile/", " execute/", " programs/"))]
        below = next(index for index, row in enumerate(rows) if row.startswith(" at "))
        assert all(row.startswith(" at ") for row in rows[below:])
        return [after - before - 1 for before, after in zip(titles, [*titles[1:], below], strict=True)]

    assert heights(42) == [3, 6, 6], "compilations are a few bars"
    assert heights(24) == [3, 5, 5]


def test_executions_without_room_for_their_number_have_those_per_step() -> None:
    for width, text in ((40, "342 in 4.1 s, 1.0 a step"), (34, "342, 1.0 a step"), (26, "1.0 a step")):
        assert f" executes    {text}" in drawn(XlaPanel, made.running(), width, 8).splitlines()


def test_compiles_are_listed_with_their_time_where_there_is_room() -> None:
    assert lines_of(XlaPanel, made.running(), 36, 30)[-1] == " at 00:10    4 programs compiled in 3.52 s"
    assert " at 00:10" not in drawn(XlaPanel, made.running(), 36, 13)
    assert " at 00:10" not in drawn(XlaPanel, made.changed(made.running(), xla_history=[]), 36, 30)


def test_meters_have_a_curve_where_the_height_allows() -> None:
    bad = replace(made.meter_history()[5], avg={"loss": math.nan})
    history = [*made.meter_history()[:5], bad, *made.meter_history()[6:]]
    run = made.changed(made.running(), epochs=made.epochs(4), meter_history=history)
    rows = lines_of(MetersPanel, run, 64, 9)
    curves = [row for row in rows if re.match(" (loss|accuracy) +(train|valid) ", row)]
    assert [row.split()[:2] for row in curves] == [["loss", "train"], ["loss", "valid"], ["accuracy", "valid"]]
    assert curves[0].count("\u2716") == 1
    assert curves[1].endswith("0.225 to 0.900")
    assert curves[2].rstrip().endswith("0.800 to 0.950")
    # The validation begins with the first epoch, a quarter of the way, and rises.
    blocks = curves[2][len(" accuracy valid ") :].split("  0.8")[0]
    assert blocks.strip() == "".join(sorted(blocks.strip()))
    assert not [row for row in lines_of(MetersPanel, run, 38, 9) if "\u2581" in row]
    assert not [row for row in lines_of(MetersPanel, run, 64, 4) if "\u2581" in row]


def test_curves_over_decades_have_a_log_scale() -> None:
    falling = [replace(point, avg={"loss": 10.0 ** -(index / 8)}) for index, point in enumerate(made.meter_history())]
    shown = drawn(MetersPanel, made.changed(made.running(), meter_history=falling), 64, 9)
    [curve] = [row for row in shown.splitlines() if row.startswith(" loss     train")]
    assert curve.endswith("1.000, log")
    levels = set(curve) & set("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588")
    assert len(levels) == 8

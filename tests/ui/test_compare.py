"""The comparison screen: panels, keys, live runs, the reader, snapshots at three sizes."""

from __future__ import annotations

import itertools
import math
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import textual
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import recorded
from tests.ui import diagnosed, made, paces
from tests.ui.compared import Bench, FakeSource, first_reading
from tests.ui.driving import AppPilot, until
from tests.ui.test_panels import joined
from tests.ui.test_pictures import DRAWN_BY
from tputui.compare.compare import compare
from tputui.config_diff import texts
from tputui.state.snapshot import Snapshot
from tputui.ui.base import keymap
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.compare.compare_view import ComparedPart, CompareReader, CompareView, RunStates
from tputui.ui.compare.curves import (
    ComparedCurvesPanel,
    RunCurve,
    cell_at,
    curves_of,
    draw_chart,
    known_meters,
    position_of,
    position_text,
)
from tputui.ui.compare.screen import PANEL_TYPES, PANELS, CompareBody, CompareScreen, arrange
from tputui.ui.compare.tables import (
    ComparedConfigPanel,
    ComparedFiguresPanel,
    ComparedRunsPanel,
    CompareHeader,
    GridRow,
    grid,
)
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.render.lines import Cell, width_of
from tputui.ui.widgets.panel import Box, Panel

Compare = Callable[..., bool]

SIZES = [(80, 24), (120, 36), (200, 50)]


def part(snapshots: list[Snapshot], **settings: Any) -> ComparedPart:
    """The input of the panels."""
    view = CompareView(len(snapshots))._replace(**settings)
    return ComparedPart(compare(snapshots, view.base), snapshots, view, frozenset())


def drawn(panel: type[Panel[ComparedPart]], shown: ComparedPart, width: int = 100, height: int = 30) -> str:
    """A panel as text."""
    drawing = panel().draw(shown, width, height)
    return joined([*drawing.head, *drawing.rows])


# Panels.


@pytest.mark.parametrize("panel", PANEL_TYPES)
def test_no_runs_and_no_size_break_a_panel(panel: type[Panel[ComparedPart]]) -> None:
    odd = [made.empty(), made.starting(), made.failed(), made.diverged()]
    for snapshots in (paces.pair(), paces.eight(), odd):
        for look in ({}, {"meter": ("valid", "accuracy"), "x": "time"}, {"log": True, "smoothing": 3, "cursor": 9.0}):
            shown = part(snapshots, **look)
            for width, height in [(1, 1), (10, 3), (30, 9), (78, 22), (200, 60)]:
                assert isinstance(drawn(panel, shown, width, height), str)


def test_list_compares_each_run_with_the_base() -> None:
    said = drawn(ComparedRunsPanel, part(paces.eight()), 140)
    lines = said.splitlines()
    assert "vs A" in lines[0]
    assert "12 % \u00b1 4 % faster" in lines[2]
    assert "19 % \u00b1 3 % slower" in lines[3]
    assert "within noise (0 % \u00b1 3 %)" in lines[4]
    assert "64 % of linear" in lines[5]
    assert "too few samples" in lines[6]
    assert "\u2716 failed" in lines[8]


def test_long_name_shows_its_end() -> None:
    said = drawn(ComparedRunsPanel, part(paces.pair()), 78)
    assert "251009-100000" in said
    assert "251009-110000" in said


def test_every_line_has_the_letter_of_its_run_on_it() -> None:
    for meter in (None, ("valid", "loss")):
        said = drawn(ComparedCurvesPanel, part(paces.eight(), meter=meter), 120, 40).splitlines()[2:]
        for letter in "ABCDEFGH":
            assert sum(line.count(letter) for line in said) >= 1, (meter, letter)


@pytest.mark.parametrize(("value", "said"), [(math.nan, "all values are NaN"), (-1.0, "all values are 0")])
def test_empty_chart_states_reason(value: float, said: str) -> None:
    curve = RunCurve(0, [1.0, 2.0], [value, value], [], [])
    drawing = draw_chart([curve], "step", 60, 8, log=True, chosen=0, cursor=None)
    assert drawing is not None
    assert said in joined(drawing.lines)


def test_a_converged_run_has_a_logarithmic_axis_until_the_user_chooses() -> None:
    curve = RunCurve(0, [float(x) for x in range(43)], [3.0, 1.0, 0.5, *[0.001] * 40], [], [])
    for log, is_log in ((None, True), (False, False), (True, True)):
        drawing = draw_chart([curve], "step", 60, 12, log=log, chosen=0, cursor=None)
        assert drawing is not None
        assert drawing.axes.y is not None
        assert drawing.axes.y.log == is_log


def test_no_letter_is_drawn_in_a_gap() -> None:
    curve = RunCurve(0, [0.0, 1.0, 2.0, 3.0], [1.0, math.nan, math.nan, 1.0], [], [1.0, 2.0])
    drawing = draw_chart([curve], "step", 100, 12, log=False, chosen=0, cursor=None)
    assert drawing is not None
    assert joined(drawing.lines).count("A") == 1


def test_each_run_has_its_own_colour() -> None:
    shown = curves_of(paces.eight(), CompareView(8)).curves
    assert len({curve.tone for curve in shown}) == 8


def test_value_lines_have_constant_height() -> None:
    for snapshots in (paces.pair(), paces.eight()):
        heads = [
            ComparedCurvesPanel().draw(part(snapshots, **look), 78, 20).head
            for look in ({}, {"cursor": 100.0}, {"cursor": 1e9}, {"hidden": frozenset({0})})
        ]
        assert len({len(head) for head in heads}) == 1


def test_cursor_reads_every_run_and_states_missing_values() -> None:
    pair = paces.pair()
    pair[1] = made.changed(pair[1], loss=pair[1].loss[:200])
    said = drawn(ComparedCurvesPanel, part(pair, cursor=100.0)).splitlines()[0]
    assert said.split() == [
        "step",
        "100",
        "A",
        f"{pair[0].loss[99].mean:.4f}",
        "B",
        f"{pair[1].loss[99].mean:.4f}",
    ]
    assert drawn(ComparedCurvesPanel, part(pair, cursor=300.0)).splitlines()[0].split()[-1] == "-"


def test_newest_value_is_at_the_newest_step() -> None:
    run = paces.run("a")
    run = made.changed(run, cores=[msgspec.structs.replace(core, loss=0.0123) for core in run.cores])
    assert drawn(ComparedCurvesPanel, part([run, run])).splitlines()[0].split()[:4] == ["last", "step", "A", "0.0123"]
    smooth = curves_of([run, run], CompareView(2, smoothing=4)).curves[0].values[-1]
    said = drawn(ComparedCurvesPanel, part([run, run], smoothing=4)).splitlines()[0]
    assert said.split()[:3] == ["newest", "A", f"{smooth:.4f}"]


def test_non_finite_values_are_marked_and_read() -> None:
    base = made.diverged()
    broken = [*base.loss]
    broken[299] = made.segment(300, [math.nan] * 8)
    shown = part([paces.run("a"), made.changed(base, loss=broken)], cursor=300.0)
    drawing = ComparedCurvesPanel().draw(shown, 100, 20)
    assert "\u2716" in joined([*drawing.rows[-2:]])
    assert "B NaN \u2716" in joined([*drawing.head])


def test_log_axis_counts_hidden_points() -> None:
    pair = paces.pair()
    loss = [msgspec.structs.replace(segment, mean=segment.mean - 1) for segment in pair[1].loss]
    shown = part([pair[0], made.changed(pair[1], loss=loss)], log=True)
    below = sum(segment.mean <= 0 for segment in loss)
    assert f"log axis, {below} points of 0 or less not shown" in ComparedCurvesPanel().draw(shown, 100, 20).note


def test_a_meter_is_charted_by_epoch_on_every_axis() -> None:
    pair = paces.pair()
    assert known_meters(pair) == [("valid", "loss"), ("valid", "accuracy"), ("train", "loss")]
    ends = {
        "epoch": [1, 2, 3, 4],
        "step": [110, 220, 330, 440],
        "examples": [7040, 14080, 21120, 28160],
        "time": [5 + 0.0131 * step for step in (110, 220, 330, 440)],
    }
    for x, places in ends.items():
        first = curves_of(pair, CompareView(2)._replace(meter=("valid", "loss"), x=x)).curves[0]  # type: ignore[arg-type]
        assert first.xs == pytest.approx(places)
        assert first.values == [epoch.valid["loss"].avg for epoch in pair[0].epochs]


def test_training_values_of_the_selected_run_are_behind_a_validation_metric() -> None:
    pair = paces.pair()
    first, second = curves_of(pair, CompareView(2)._replace(meter=("valid", "loss"))).curves
    assert first.train == [epoch.train["loss"].avg for epoch in pair[0].epochs]
    without = ComparedCurvesPanel().draw(part(pair, meter=("valid", "accuracy")), 100, 20)
    assert "train" not in without.note
    shown = ComparedCurvesPanel()
    drawing = shown.draw(part(pair, meter=("valid", "loss"), chosen=1), 100, 20)
    assert "dim: train of B" in drawing.note
    assert any(span.tone == "dim" and span.text.strip("│└─┬┤ ") for line in drawing.rows[:-2] for span in line)
    shown.show(part(pair, meter=("valid", "loss")))
    figures = shown.figures()
    assert [row[-2:] for row in figures.rows] == [
        (epoch.valid["loss"].avg, epoch.train["loss"].avg) for run in pair for epoch in run.epochs
    ]
    assert len(second.train) == len(second.values)
    lacking = [msgspec.structs.replace(epoch, train={}) if epoch.epoch == 2 else epoch for epoch in pair[0].epochs]
    gap = curves_of([made.changed(pair[0], epochs=lacking), pair[1]], CompareView(2)._replace(meter=("valid", "loss")))
    assert math.isnan(gap.curves[0].train[1])


def test_run_without_an_axis_states_reason() -> None:
    one = made.changed(paces.run("a"), plan=None, epoch_starts=[])
    found = curves_of([one, paces.run("b")], CompareView(2)._replace(x="examples"))
    assert [curve.label for curve in found.curves] == ["B"]
    assert found.missing == [("A", "batch size not known yet")]
    neither = part([one, one], x="examples")
    assert "A: batch size not known yet" in drawn(ComparedCurvesPanel, neither)


def test_smoothing_keeps_raw_curve_of_selected_run() -> None:
    shown = curves_of(paces.pair(), CompareView(2)._replace(smoothing=3)).curves
    assert shown[0].raw == [segment.mean for segment in paces.pair()[0].loss]
    rough, smooth = (
        sum(abs(a - b) for a, b in itertools.pairwise(values[200:])) for values in (shown[0].raw, shown[0].values)
    )
    assert smooth < rough / 3


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(st.floats(0, 1e6), st.floats(width=32)), min_size=1, max_size=30), min_size=1,
             max_size=8),
    st.integers(0, 90), st.integers(0, 30), st.booleans(),
)  # fmt: skip
def test_curves_fit_their_area(points: list[list[tuple[float, float]]], width: int, height: int, log: bool) -> None:
    found = []
    for run, pairs in enumerate(points):
        xs = sorted(x for x, _ in pairs)
        values = [value for _, value in pairs]
        found.append(
            RunCurve(run, xs, values, [], [x for x, v in zip(xs, values, strict=True) if not math.isfinite(v)])
        )
    drawing = draw_chart(found, "step", width, height, log=log, chosen=0, cursor=xs[0])
    if drawing is not None:
        assert len(drawing.lines) == height
        assert max(width_of(line) for line in drawing.lines) <= width


@given(st.floats(0, 100), st.floats(1, 1e6), st.integers(1, 300), st.data())
def test_cell_is_found_by_its_position(low: float, span: float, across: int, data: st.DataObject) -> None:
    cell = data.draw(st.integers(0, across - 1))
    assert cell_at(low, low + span, across, position_of(low, low + span, across, cell)) == cell


def test_positions_have_units() -> None:
    assert [
        position_text(90.0, "time"),
        position_text(90.5, "epoch"),
        position_text(1204.0, "step"),
        position_text(51_200.0, "examples"),
    ] == [
        "at 1:30",
        "epoch 90.50",
        "step 1,204",
        "51.2k examples",
    ]


def test_metrics_name_the_best_and_reasons_for_gaps() -> None:
    said = drawn(ComparedFiguresPanel, part(paces.pair()), 160, 60)
    assert "steady step time" in said
    assert "\u2605 0." in next(line for line in said.splitlines() if "valid loss, best" in line)
    assert "A, B: host memory instead of device memory: the CPU device does not tell its memory" in said


def test_only_different_keys_are_listed_with_signs() -> None:
    shown = part(paces.pair())
    drawing = ComparedConfigPanel().draw(shown, 60, 20)
    different, _, equal = joined([*drawing.rows]).partition("Equal")
    assert different.split() == ["A", "B", "optim.lr", "0.0005", "\u2260", "0.001"]
    assert equal.split()[:2] == ["15", "keys"]
    assert "optim.lr " not in equal
    assert drawing.note == "1 of 16 keys differs"
    same = drawn(ComparedConfigPanel, part([paces.run("a"), paces.run("b")]))
    assert same.split()[:8] == ["all", "16", "keys", "are", "equal", "Equal", "16", "keys"]


@pytest.mark.parametrize("width", [78, 118, 158, 198])
def test_equal_keys_are_beside_each_other_and_all_there(width: int) -> None:
    shown = part(paces.pair())
    lines = joined([*ComparedConfigPanel().draw(shown, width, 20).rows]).partition("Equal")[2].splitlines()[1:]
    words = " ".join(lines).split()
    assert all(key in words for key in texts(shown.snapshots[0].config) if key != "optim.lr")
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= 15 // (width // 60 or 1) + 1


def test_the_base_comes_first_in_the_tables() -> None:
    for panel in (ComparedFiguresPanel, ComparedConfigPanel):
        heads = drawn(panel, part(paces.pair(), base=1), 80).splitlines()[0].split()
        assert heads == ["B", "A"]
    assert "\u2260 0.0005" in drawn(ComparedConfigPanel, part(paces.pair(), base=1))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(20, 120))
def test_split_table_repeats_the_base(widths: list[int], width: int) -> None:
    titles = [Cell(letter) for letter, _ in zip("ABCDEFGH", widths, strict=False)]
    lines = grid(titles, [GridRow(Cell("key"), [Cell("x" * size) for size in widths])], width)
    heads = [joined([line]).split() for line in lines[::3]]
    assert all(head[0] == "A" for head in heads)
    assert [letter for head in heads for letter in head[1:]] == [title.text for title in titles[1:]]
    assert max(width_of(line) for line in lines) <= width


@given(st.integers(1, 220), st.integers(1, 60), st.sampled_from(PANELS), st.booleans(), st.integers(2, 8))
def test_panels_tile_the_screen_with_selection_visible(
    width: int, height: int, selected: str, maximised: bool, num_runs: int
) -> None:
    boxes = arrange(width, height, selected, maximised=maximised, num_runs=num_runs)
    assert selected in boxes
    assert sum(box.width * box.height for box in boxes.values()) == width * height
    if not maximised and width >= 50 and height >= 10:
        assert boxes["runs"].y == 0
    assert all(box.x + box.width <= width and box.y + box.height <= height for box in boxes.values())
    assert (Box(0, 0, width, height) in boxes.values()) == (len(boxes) == 1)


# Keys.


def test_every_key_has_an_action_and_a_sentence() -> None:
    for key in keymap.COMPARE:
        name = key.action.partition("(")[0]
        assert name.startswith("app.") or hasattr(CompareScreen, f"action_{name}"), key.action
        assert key.help


def test_the_keys_of_the_runs() -> None:
    bench = Bench(paces.pair())
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("n", lambda: bench.screen.view.chosen == 0),
        ("N", lambda: bench.screen.view.chosen == 1),
        ("n", lambda: bench.screen.view.chosen == 0),
        ("N", lambda: bench.screen.view.chosen == 1),
        ("space", lambda: bench.screen.view.hidden == {1} and "1 curve hidden" in bench.text),
        ("space", lambda: not bench.screen.view.hidden),
        ("space", lambda: bench.screen.view.hidden == {1}),
        ("a", lambda: not bench.screen.view.hidden),
        ("B", lambda: bench.screen.view.base == 1 and "base B digits-20251009-110000" in bench.text),
        ("n", lambda: "A is 8 % \u00b1 4 % slower than B" in bench.text),
        ("u", lambda: "undone: base" in bench.text and bench.screen.view.base == 0),
    ]

    async def script(pilot: AppPilot) -> None:
        assert "B is 8 % \u00b1 4 % faster than A" in bench.text
        for key, holds in steps:
            await pilot.press(key)
            await until(pilot, holds)

    bench.drive(script)


def test_the_last_curve_cannot_be_hidden() -> None:
    bench = Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("space", "n", "space")
        assert bench.screen.view.hidden == {1}
        assert "this is the last visible curve" in bench.text

    bench.drive(script)


def test_the_keys_of_the_chart() -> None:
    bench = Bench(paces.pair())
    steps: list[tuple[str, str]] = [
        ("x", "loss over epoch"),
        ("x", "loss over time from the start"),
        ("x", "loss over examples"),
        ("x", "loss over step"),
        ("l", "loss over step, log axis"),
        ("plus", "log axis, smoothed 0.5"),
        ("plus", "log axis, smoothed 0.8"),
        ("minus", "log axis, smoothed 0.5"),
        ("l", "loss over step, smoothed 0.5"),
        ("m", "valid loss by epoch over step"),
        ("plus", "metrics by epoch are never smoothed"),
        ("m", "valid accuracy by epoch over step"),
        ("M", "valid loss by epoch over step"),
        ("M", "loss over step, smoothed 0.5"),
    ]

    async def script(pilot: AppPilot) -> None:
        for key, said in steps:
            await pilot.press(key)
            assert said in bench.text, key

    bench.drive(script)


def test_a_narrow_chart_is_still_titled() -> None:
    bench = Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("l", "m", "x", "x")
        assert "valid loss by epoch over time from the start" in bench.text
        assert "dim: train of" not in bench.text

    bench.drive(script, size=(80, 24))


def test_hiding_a_curve_moves_no_column() -> None:
    shown = drawn(ComparedRunsPanel, part(paces.pair()), width=78).splitlines()
    hidden = drawn(ComparedRunsPanel, part(paces.pair(), hidden=frozenset({1})), width=78).splitlines()
    assert [len(line) for line in shown] == [len(line) for line in hidden]
    assert "\u2500B\u2500" in shown[2]
    assert "(B)" in hidden[2]


def test_cursor_moves_by_cells_and_esc_removes_it() -> None:
    bench = Bench(paces.pair())
    places: list[float] = []

    async def script(pilot: AppPilot) -> None:
        for key in ("right", "right", "full_stop", "greater_than_sign", "comma", "left", "less_than_sign", "left"):
            await pilot.press(key)
            assert bench.screen.view.cursor is not None
            places.append(bench.screen.view.cursor)
        assert f"step {places[-1]:,.0f} " in bench.text
        await pilot.press("escape")
        assert bench.screen.view.cursor is None
        await pilot.press("left")
        assert bench.screen.view.cursor is not None
        assert bench.screen.view.cursor > 430
        await pilot.press("x")
        assert bench.screen.view.cursor is None

    bench.drive(script)
    cell = places[1] - places[0]
    moved = [(after - before) / cell for before, after in itertools.pairwise(places)]
    assert moved == pytest.approx([1, 1, 10, -1, -1, -10, 0], abs=0.51)


def test_the_mouse_reads_values_and_chooses_runs() -> None:
    bench = Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.click(ComparedCurvesPanel, offset=(40, 8))
        assert bench.screen.view.cursor is not None
        await pilot.click(ComparedRunsPanel, offset=(10, 2))
        assert bench.screen.view.chosen == 0
        await pilot.click(ComparedRunsPanel, offset=(10, 3))
        assert bench.screen.view.chosen == 1

    bench.drive(script)


def test_the_keys_of_the_panels() -> None:
    bench = Bench(paces.eight())

    def state() -> tuple[str, bool]:
        body = bench.screen.query_one(CompareBody)
        return body.selected, body.maximised

    steps = [
        ("3", ("figures", False)),
        ("3", ("figures", True)),
        ("escape", ("figures", False)),
        ("tab", ("config", False)),
        ("tab", ("runs", False)),
        ("shift+tab", ("config", False)),
        ("enter", ("config", True)),
        ("z", ("config", False)),
        ("2", ("curves", False)),
    ]

    async def script(pilot: AppPilot) -> None:
        for key, expected in steps:
            await pilot.press(key)
            assert state() == expected, key

    bench.drive(script, size=(80, 24))


def test_panels_scroll_and_the_list_chooses() -> None:
    bench = Bench(paces.eight())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("3")
        before = bench.text
        for key in ("j", "down", "pagedown", "end"):
            await pilot.press(key)
            assert bench.text != before, key
            before = bench.text
        await pilot.press("G", "g", "k", "up", "pageup", "home")
        assert " state  " in "\n".join(bench.text.splitlines()[11:16])
        await pilot.press("1")
        for key, chosen in (("j", 2), ("k", 1), ("end", 7), ("home", 0)):
            await pilot.press(key)
            assert bench.screen.view.chosen == chosen, key
        await pilot.press("end")
        assert "digits-broken" in "\n".join(bench.text.splitlines()[4:12])

    bench.drive(script, size=(80, 24))


def test_help_lists_every_key_and_panel() -> None:
    bench = Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        assert "make the selected run the base" in bench.text
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, CompareScreen)
        help_texts = [key.help for key in bench.screen.keys_in_force()]
        assert "undo the last change of the view or of a run's labels" in help_texts
        assert [key for key, _ in bench.screen.panel_descriptions()] == ["1", "2", "3", "4"]

    bench.drive(script)


@pytest.mark.parametrize("key", ["q", "escape"])
def test_leaving_closes_the_runs(key: str) -> None:
    bench = Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press(key)

    bench.drive(script)
    assert bench.app.return_value is not None
    assert all(source.closed for source in bench.sources.values())


def test_view_settings_are_restored() -> None:
    first, second = Bench(paces.pair()), Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("l", "x", "plus", "plus")

    first.drive(script)
    second.app.views = first.app.views

    async def again(pilot: AppPilot) -> None:
        assert "loss over epoch, log axis, smoothed 0.8" in second.text

    second.drive(again)


def test_y_range_is_chosen_for_each_metric_and_remembered() -> None:
    first, second = Bench(paces.pair()), Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("L")
        assert "y full" in first.text
        await pilot.press("L", "ctrl+u", *"2 1", "enter")
        assert "the upper limit must exceed the lower one" in first.text
        await pilot.press("ctrl+u", *"0 0.125", "enter")
        assert "y 0 to 0.125, " in first.text
        assert "above 0.125" in first.text
        assert "\u25b2" in first.text
        await pilot.press("m")
        assert "y 0 to 0.125" not in first.text, "another metric has its own range"
        await pilot.press("L", "u", "M")
        assert "y 0 to 0.125" in first.text

    first.drive(script)
    second.app.views = first.app.views

    async def again(pilot: AppPilot) -> None:
        assert "y 0 to 0.125" in second.text
        await pilot.press("L")
        assert "y 0 to 0.125" not in second.text
        await pilot.press("L", "L", "escape")
        assert "y full" not in second.text
        assert "compare.y_ranges" not in second.app.views.names("")

    second.drive(again)


def test_invalid_view_settings_are_ignored() -> None:
    view = CompareView(2).with_stored(x="parsecs", y_axis="log", smoothing=99)
    assert (view.x, view.log, view.smoothing) == ("step", True, len(WEIGHTS) - 1)
    assert CompareView(2).with_stored(x="time", y_axis="auto", smoothing=-1) == CompareView(2, x="time")


def test_values_of_every_panel_can_be_exported() -> None:
    bench = Bench(paces.pair())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("plus")
        curves_panel = bench.screen.query_one(ComparedCurvesPanel)
        for axis in ("epoch", "time_s", "examples", "step"):
            await pilot.press("x")
            assert curves_panel.figures().head == ("run", "label", axis, "value", "train_value")
        curve = curves_panel.figures()
        assert len(curve.rows) == 880
        assert curve.rows[0] == ("digits-20251009-100000", "A", 1.0, paces.pair()[0].loss[0].mean, None)
        figures = {name: cells for name, *cells in bench.screen.query_one(ComparedFiguresPanel).figures().rows}
        assert figures["state"] == ["done", "done"]
        paces_shown = [run.pace for run in compare(paces.pair()).runs]
        assert figures["step_s"] == [pace and pace.step_s for pace in paces_shown], "exported values are not rounded"
        assert figures["train loss, last epoch"] == [snapshot.epochs[-1].train["loss"].avg for snapshot in paces.pair()]
        assert bench.screen.query_one(ComparedConfigPanel).figures().rows == [("optim.lr", "0.0005", "0.001")]

    bench.drive(script)


# Runs that change.


def test_live_run_is_followed_to_its_end() -> None:
    alive = [paces.run("a"), paces.run("b", done=False)]
    bench = Bench(alive)

    async def script(pilot: AppPilot) -> None:
        assert "1 running" in bench.text
        source = bench.sources[Path(alive[1].dir)]
        source.served = made.changed(alive[1], condition="failed", condition_reason="it broke at step 331")
        source.settled = True
        await until(pilot, lambda: "B b \u2716 failed: it broke at step 331" in bench.text)
        assert "0 running" in bench.text
        await until(pilot, lambda: source.closed)

    bench.drive(script)


def test_run_that_became_unreadable_is_reported() -> None:
    pair = paces.pair()
    bench = Bench(pair)

    async def script(pilot: AppPilot) -> None:
        bench.sources[Path(pair[1].dir)].broken = PermissionError(13, "Permission denied", pair[1].dir)
        await until(pilot, lambda: "B: cannot read the run: Permission denied: " in bench.text)
        assert "speed of B unknown: the run cannot be read" in bench.text
        assert "A 0.0882" in bench.text

    bench.drive(script)


def test_foreign_text_is_escaped() -> None:
    evil = "[bold red]x[/] \x1b[2J\x1b]0;title\x07 \u202etxet"
    run = paces.run("b", run=evil, condition_reason=evil, config={"optim": {"name": evil}}, troubles=[evil])
    bench = Bench([paces.run("a"), run])

    async def script(pilot: AppPilot) -> None:
        assert "[bold red]x[/]" in bench.text
        for each in ("\x1b", "\u202e", "title"):
            assert each not in bench.text

    bench.drive(script, size=(200, 50))


def test_the_screen_survives_every_size() -> None:
    bench = Bench(paces.eight())

    async def script(pilot: AppPilot) -> None:
        for size in [(20, 5), (80, 24), (1, 1), (200, 50), (59, 40), (120, 36), (300, 12), (80, 24)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "2 curves" in bench.text

    bench.drive(script)


def test_it_takes_two_to_eight_runs() -> None:
    for number in (1, 9):
        with pytest.raises(ValueError, match="expected 2-8 runs"):
            CompareScreen([Path(f"run-{index}") for index in range(number)])


def test_recorded_runs_are_read_and_can_be_opened(tmp_path: Path) -> None:
    from tputui.ui.app import ScreenApp

    dirs = [recorded.write_run(tmp_path, run=name) for name in ("one", "two")]
    app = ScreenApp(lambda: CompareScreen(dirs))
    bench = Bench(paces.pair())
    bench.app = app

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: bench.text.count("66/66") == 2)
        assert "too few samples to compare speed: A 5, B 5, need 32 after warm-up" in bench.text
        await pilot.press("1", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))

    bench.drive(script)


# The reader.


def test_reader_alternates_and_ends_with_the_last_run() -> None:
    sources = {Path(name): FakeSource(paces.run(name)) for name in ("a", "b")}
    for source in sources.values():
        source.settled = True
    readings: list[RunStates] = []
    reader = CompareReader(list(sources), readings.append, sources.__getitem__)
    reader.run()
    assert [snapshot.run for snapshot in readings[-1].snapshots] == ["a", "b"]
    assert readings[-1].unread == frozenset()
    assert all(source.closed for source in sources.values())


def test_reader_reports_unread_runs() -> None:
    sources = {Path(name): FakeSource(paces.run(name)) for name in ("a", "b")}
    sources[Path("b")].caught_up = False
    readings: list[RunStates] = []
    delivered = threading.Event()

    def deliver(reading: RunStates) -> None:
        readings.append(reading)
        delivered.set()

    reader = CompareReader(list(sources), deliver, sources.__getitem__)
    thread = threading.Thread(target=reader.run)
    thread.start()
    assert delivered.wait(120)
    reader.stop()
    thread.join(120)
    assert not thread.is_alive()
    assert readings[0].unread == frozenset({1})


def test_reader_delivers_news_at_once_and_ages_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {Path(name): FakeSource(paces.run(name)) for name in ("a", "b")}
    readings: list[RunStates] = []
    reader = CompareReader(list(sources), readings.append, sources.__getitem__)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def deliveries_at(moment: float) -> int:
        nonlocal now
        now = 100.0 + moment
        reader.poll()
        reader.drawn()
        return len(readings)

    assert deliveries_at(0.0) == 1
    assert [deliveries_at(moment) for moment in (0.2, 0.5, 0.8)] == [1, 1, 1]
    assert deliveries_at(1.0) == 2
    sources[Path("a")].events = ["news"]
    assert [deliveries_at(moment) for moment in (1.2, 1.5, 1.8)] == [2, 3, 3]


def test_unreadable_run_does_not_stop_the_others() -> None:
    def open_run(run_dir: Path) -> FakeSource:
        if run_dir.name == "b":
            raise PermissionError(13, "Permission denied", str(run_dir))
        served = FakeSource(paces.run(run_dir.name))
        served.settled = True
        return served

    readings: list[RunStates] = []
    CompareReader([Path("a"), Path("runs/b")], readings.append, open_run, lambda: 5.0).run()
    first, second = readings[-1].snapshots
    assert first.run == "a"
    assert (second.run, second.troubles) == ("b", ["cannot read the run: Permission denied: runs/b"])


# Pictures.

drawn_by_ours = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)


@drawn_by_ours
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("runs", ["pair", "eight"])
def test_pictures(snap_compare: Compare, runs: str, size: tuple[int, int]) -> None:
    bench = Bench({"pair": paces.pair, "eight": paces.eight}[runs]())
    assert snap_compare(bench.app, terminal_size=size, run_before=first_reading)


@drawn_by_ours
@pytest.mark.parametrize(
    "pressed",
    [["plus", "plus", "plus", "l", "left", "left"], ["m", "x"], ["3", "3"], ["question_mark"], ["t"]],
    ids="-".join,
)
def test_pictures_after_keys(snap_compare: Compare, pressed: list[str]) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_reading(pilot)
        await pilot.press(*pressed)

    bench = Bench(paces.eight())
    assert snap_compare(bench.app, terminal_size=(120, 36), run_before=script)


def test_the_header_shows_which_verdict_explains_that_a_run_is_slower() -> None:
    slow = diagnosed.slowed()
    slow = made.changed(slow, plan=made.running().plan, run="slow")
    fast = made.changed(made.running(), run="fast", now=made.NOW - 20, epoch_starts=slow.epoch_starts)
    compared = part([fast, slow], chosen=1)
    header = CompareHeader()
    header.show(compared)
    wide = "".join(span.text for span in header.paint(220, 4)[2])
    assert re.search(r"B: 1\.\dx slower than A in wall time, \d+ % of it recompile at train\.py:41", wide)
    narrow = "".join(span.text for span in header.paint(80, 4)[2])
    assert narrow.startswith(" B: 1."), "the ratio is in the list of runs too"

"""Charts drawn without an app: every view, axis and sign matches the values."""

from __future__ import annotations

import itertools
import math
import random
import re
from array import array
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost import num_calls
from tests.ui import made
from tputui.state.chart_data import CoreColumn, Segment
from tputui.state.snapshot import Snapshot
from tputui.ui.charts import axis, curves, events_line, heatmap, loss
from tputui.ui.charts.axis import X_KINDS, AxisInfo, XAxis, axis_info_of
from tputui.ui.charts.chart_view import LEAST_SPAN, VIEWS, ChartSeries, ChartView, ViewKind, Window, grouped
from tputui.ui.charts.columns import WEIGHTS, ColumnCache, gather, smoothed
from tputui.ui.charts.loss import LossChart, OutlierDetector
from tputui.ui.charts.series_chart import chart_of_view, evenly
from tputui.ui.render import braille
from tputui.ui.render.braille import Canvas, DotLayer
from tputui.ui.render.lines import Line, Span, width_of


def text(lines: list[Line]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


def whole_of(snapshot: Snapshot) -> ChartSeries:
    return ChartSeries(snapshot.loss, snapshot.core_columns, snapshot.marks, axis_info_of(snapshot))


def drawn(snapshot: Snapshot, look: ChartView, width: int = 100, height: int = 20) -> str:
    chart = LossChart()
    found = chart.draw(chart.visible(whole_of(snapshot), look), width, height)
    assert found is not None
    return text(found.lines)


def point(step: int, mean: float) -> Segment:
    return made.segment(step, [mean])


def column_of(first: int, last: int, means: Sequence[float]) -> CoreColumn:
    return msgspec.structs.replace(made.core_column(first, last, len(means)), means=means)


# Smoothing.


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.sampled_from(WEIGHTS[1:]))
def test_smoothed_curve_stays_within_raw_values(values: list[float], weight: float) -> None:
    found = smoothed([point(step, value) for step, value in enumerate(values, start=1)], weight)
    assert found[0] == pytest.approx(values[0], abs=1e-6)
    assert all(min(values) - 1e-6 <= value <= max(values) + 1e-6 for value in found)


def test_smoothing_continues_after_non_finite_values() -> None:
    values = [1.0, math.nan, math.inf, 1.0, 1.0]
    found = smoothed([point(step, value) for step, value in enumerate(values, start=1)], 0.9)
    assert found == pytest.approx([1.0] * 5)
    assert math.isnan(smoothed([point(1, math.nan)], 0.9)[0])


def test_coarse_and_fine_series_smooth_alike() -> None:
    fine = [point(step, 1.0 if step <= 100 else 2.0) for step in range(1, 201)]
    pair = [
        Segment(first_step=a.first_step, last_step=b.last_step, mean=a.mean, min=1, max=2, num_values=2, num_bad=0)
        for a, b in zip(fine[::2], fine[1::2], strict=True)
    ]
    assert smoothed(pair, 0.95)[-1] == pytest.approx(smoothed(fine, 0.95)[-1])


def test_smoothed_chart_keeps_the_raw_range_visible() -> None:
    rough = drawn(made.outlying(), ChartView())
    smooth = drawn(made.outlying(), ChartView(smoothing=5))
    assert smooth != rough
    chart = LossChart()
    scene = chart.visible(whole_of(made.running()), ChartView(smoothing=5))
    assert "raw" in text([loss.curve_legend(scene, 0.5, 8, 0, 90)])


# The x axis.


@pytest.mark.parametrize("kind", X_KINDS)
def test_every_axis_spans_its_whole_width(kind: str) -> None:
    snapshot = made.running()
    domain = XAxis(snapshot.loss, kind, axis_info_of(snapshot), 180)  # type: ignore[arg-type]
    dots = domain.dots()
    assert dots == sorted(dots)
    assert dots[0] <= 1
    assert dots[-1] == 179
    ticks = domain.ticks(8)
    assert 2 <= len(ticks) <= 8
    assert all(0 <= domain.dot(value) < 180 for value, _ in ticks)


def test_each_axis_formats_its_positions() -> None:
    snapshot = made.running()
    spelled = {
        kind: [name for _, name in XAxis(snapshot.loss, kind, axis_info_of(snapshot), 180).ticks(6)] for kind in X_KINDS
    }
    assert "100" in spelled["step"]
    assert spelled["epoch"][-1] == "3"
    assert spelled["time"] == ["10 s", "20 s", "30 s", "40 s", "50 s"] or all(" s" in name for name in spelled["time"])
    assert any(name.endswith("k") for name in spelled["examples"])


def test_epoch_axis_uses_the_starts_of_epochs() -> None:
    axis_info = AxisInfo(epochs=((1, 1), (11, 2), (31, 3)), steps_per_epoch=20)
    assert [axis_info.epoch_at(step) for step in (5, 10, 30, 40)] == [0.5, 1.0, 2.0, 2.5]


def test_unavailable_axis_states_reason_and_shows_steps() -> None:
    snapshot = made.changed(made.running(), plan=None, epoch_starts=[], started=None)
    for kind, why in (("epoch", "epoch"), ("time", "times"), ("examples", "batch size")):
        assert why in axis_info_of(snapshot).why_not(kind, snapshot.loss)  # type: ignore[arg-type]
    assert drawn(snapshot, ChartView(x="examples")) == drawn(snapshot, ChartView())


@given(st.floats(min_value=0.0, max_value=1e300))
def test_free_space_on_the_axis_is_small_and_lasts(length: float) -> None:
    roomy = axis.with_room(length)
    assert length <= roomy <= length * 17 / 16
    assert axis.with_room(roomy) == roomy


@pytest.mark.parametrize("view", ["band", "overlay", "heat"])
def test_live_curve_stands_still_while_steps_arrive(view: ViewKind) -> None:
    before = made.running()
    steps = [point(step, before.loss[-1].mean) for step in range(331, 335)]
    after = made.changed(before, loss=[*before.loss, *steps])
    curve, longer = (drawn(run, ChartView(kind=view), 107, 20).splitlines()[:-3] for run in (before, after))
    end = 6 + math.floor(329 / axis.with_room(329) * 100) - 1
    assert [line[:end] for line in longer] == [line[:end] for line in curve]


@pytest.mark.parametrize("view", ["band", "overlay", "heat"])
def test_the_curve_of_a_run_that_ended_fills_the_chart(view: ViewKind) -> None:
    run = made.running()
    for condition, is_full in (("running", False), ("done", True)):
        lines = drawn(made.changed(run, condition=condition), ChartView(kind=view), 107, 20).splitlines()[:-3]
        assert any(line[6:].rstrip("\u2800 ")[100:] for line in lines) == is_full


@given(st.lists(st.integers(1, 40), min_size=1, max_size=80), st.integers(2, 300), st.data())
def test_the_segment_nearest_to_its_own_dot_is_drawn_there(lengths: list[int], width: int, data: st.DataObject) -> None:
    segments, first = [], 1
    for length in lengths:
        segments.append(
            Segment(first_step=first, last_step=first + length - 1, mean=1, min=1, max=1, num_values=1, num_bad=0)
        )
        first += length
    domain = XAxis(segments, "step", AxisInfo(), width)
    dots = domain.dots()
    index = data.draw(st.integers(0, len(segments) - 1))
    assert dots[domain.nearest(dots[index])] == dots[index]
    assert all(0 <= dot < width for dot in dots)


@given(st.data())
def test_cached_chart_equals_a_new_one(data: st.DataObject) -> None:
    """GIVEN a series that grows, is thinned, is replaced or is looked at in part, in any order."""
    memory, segments = ColumnCache(), made.segments(8)
    for change in data.draw(st.lists(st.sampled_from(["add", "newest", "thin", "other", "part"]), max_size=12)):
        number = len(segments) + 1
        if change == "add":
            segments = [*segments, point(number, math.nan if number % 5 == 0 else 1.0 / number)]
        elif change == "newest":
            segments = [*segments[:-1], point(number - 1, 2.0)]
        elif change == "thin":
            segments = [*segments[:-1:2], segments[-1]]
        elif change == "other":
            segments = [point(step, 3.0 + step) for step in range(1, number)]
        start = data.draw(st.integers(0, len(segments) - 1)) if change == "part" else 0
        seen = segments[start:]
        dots = XAxis(seen, "step", AxisInfo(), data.draw(st.integers(2, 40))).dots()
        kept, fresh = memory.follow(seen), ColumnCache().follow(seen)
        assert kept.middles == fresh.middles
        assert (kept.lows, kept.highs) == (fresh.lows, fresh.highs)
        assert repr(kept.merged(dots)) == repr(fresh.merged(dots)) == repr(gather(seen, dots))


# How it is looked at.

LOOKS = st.lists(st.sampled_from(["in", "out", "left", "right", "cursor"]), max_size=20)


@given(LOOKS, st.integers(1, 50), st.integers(0, 5000), st.data())
def test_some_data_stays_visible_after_any_keys(presses: list[str], first: int, more: int, data: st.DataObject) -> None:
    last = first + more
    look = ChartView()
    for press in presses:
        if press in ("in", "out"):
            look = look.zoomed(press == "in", None, first, last)
        elif press in ("left", "right"):
            look = look.panned(1 if press == "right" else -1, first, last)
        else:
            look = look.reading(data.draw(st.integers(first - 10, last + 10)), first, last)
        low, high = look.bounds(first, last)
        assert first <= low <= high <= last
        assert look.cursor is None or first <= look.cursor <= last
        if press == "cursor":
            assert look.cursor is not None
            assert low <= look.cursor <= high
        assert look.window is None or high - low + 1 >= min(LEAST_SPAN, more + 1)


def test_zooming_keeps_the_step_under_the_mouse() -> None:
    look = ChartView().zoomed(True, 250, 1, 1000)
    low, high = look.bounds(1, 1000)
    assert (250 - low) / (high - low) == pytest.approx(249 / 999, abs=0.01)
    assert ChartView().zoomed(True, 250, 1, 1000).zoomed(False, 250, 1, 1000) == ChartView()


def test_zooming_out_to_nearly_all_follows_the_run_again() -> None:
    look = ChartView().zoomed(True, 300, 1, 1144)
    assert look.zoomed(False, 300, 1, 1152) == ChartView()
    assert look.zoomed(False, 300, 1, 2000).window is not None
    assert ChartView(window=Window(20, None)).zoomed(True, None, 1, 11).window == Window(8, None)


def test_a_window_at_the_end_follows_the_newest_step() -> None:
    look = ChartView().zoomed(True, None, 1, 1000)
    assert look.window == Window(500, None)
    assert look.bounds(1, 1100) == (601, 1100)
    assert look.panned(-1, 1, 1000).bounds(1, 1100) == (376, 875)
    assert look.panned(-1, 1, 1000).panned(1, 1, 1000) == look


# Layers and signs.


def test_topmost_layer_owns_the_cell_band_edges_stay() -> None:
    band, line = Canvas(4, 2), Canvas(4, 2)
    for x in range(8):
        band.column(x, 0, 7)
        line.set(x, 3)
    first, second = braille.compose([DotLayer(line, "accent")], band=DotLayer(band, "band"))
    assert [span.tone for span in first] == ["accent"]
    assert [span.tone for span in second] == ["band"]
    assert text([second]) == "\u28ff" * 4


def test_guide_is_drawn_only_in_empty_cells() -> None:
    canvas = Canvas(3, 2)
    canvas.set(2, 0)
    first, second = braille.compose([DotLayer(canvas, "accent")], guide=1)
    assert braille.GUIDE not in text([first])
    assert text([second]) == f" {braille.GUIDE} "


@given(st.lists(st.tuples(st.integers(0, 29), st.sampled_from(events_line.KINDS)), max_size=40))
def test_most_severe_event_of_a_cell_is_shown(happened: list[tuple[int, str]]) -> None:
    marks = [made.mark(kind, cell, "x") for cell, kind in happened]  # type: ignore[arg-type]
    found = events_line.strip(marks, lambda mark: mark.step, 30)
    for cell in range(30):
        kinds = [kind for at, kind in happened if at == cell]
        assert found.get(cell) == (events_line.SIGNS[min(kinds, key=events_line.KINDS.index)] if kinds else None)
    assert width_of(events_line.over([Span("-" * 12), Span("=" * 18)], found)) == 30


def test_every_kind_of_event_has_a_sign_of_its_own() -> None:
    assert len({sign.mark for sign in events_line.SIGNS.values()}) == len(events_line.SIGNS)
    assert events_line.sign_of("of_the_future").word == "of the future"


def test_events_are_below_the_chart_at_their_steps() -> None:
    lines = drawn(made.running(), ChartView(), 107, 20).splitlines()
    strip = lines[-1]
    best = strip.index(events_line.SIGNS["best"].mark)
    assert best == pytest.approx(6 + 109 / axis.with_room(329) * 100, abs=1)
    assert strip.index(events_line.SIGNS["compile"].mark) == 6
    assert all(events_line.SIGNS["best"].mark not in line for line in lines[:-1])


def test_one_core_is_one_line() -> None:
    columns = made.core_columns(1)
    assert curves._note(columns, [0]) == "1 line"
    assert curves._note(made.core_columns(2), [0, 1]) == "2 lines"


def test_a_low_chart_has_the_events_on_its_axis() -> None:
    lines = drawn(made.running(), ChartView(), 60, 8).splitlines()
    assert events_line.SIGNS["best"].mark in lines[-2]


@pytest.mark.parametrize("view", ["band", "overlay", "heat"])
def test_non_finite_values_are_marked_in_every_view(view: ViewKind) -> None:
    assert (
        drawn(made.diverged(), ChartView(kind=view)).splitlines()[-3].count(events_line.SIGNS["non_finite"].mark) == 9
    )


# Views.


@pytest.mark.parametrize("cores", [1, 2, 8, 64, 2048])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [(16, 3), (30, 6), (42, 9), (76, 14), (198, 46)])
def test_every_view_fills_exactly_its_area(size: tuple[int, int], view: ViewKind, cores: int) -> None:
    width, height = size
    chart = LossChart()
    for look in (
        ChartView(kind=view),
        ChartView(kind=view, log=True, smoothing=3, x="time", cursor=70, window=Window(120, 200)),
    ):
        found = chart.draw(chart.visible(whole_of(made.running(cores)), look), width, height)
        assert found is not None
        assert len(found.lines) <= height
        assert all(width_of(line) <= width for line in found.lines)


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_breaks_without_cores_or_with_one_step(view: ViewKind) -> None:
    bare = made.changed(made.running(), core_columns=[], marks=[], epoch_starts=[])
    assert drawn(bare, ChartView(kind=view))
    one = made.changed(bare, loss=made.segments(1), core_columns=made.core_columns(8, 1, 1))
    assert drawn(one, ChartView(kind=view, cursor=1))
    bad = made.changed(bare, loss=[made.segment(1, [math.nan] * 8)])
    assert drawn(bad, ChartView(kind=view, log=True))


def test_log_axis_counts_hidden_points() -> None:
    segments = [made.segment(step, [1.0 if step > 12 else -0.5]) for step in range(1, 101)]
    chart = LossChart()
    whole = whole_of(made.changed(made.running(), loss=segments))
    assert chart.draw(chart.visible(whole, ChartView(log=True)), 80, 20).hidden == 12  # type: ignore[union-attr]
    assert chart.draw(chart.visible(whole, ChartView()), 80, 20).hidden == 0  # type: ignore[union-attr]


def test_small_charts_show_a_core_or_state_group_size() -> None:
    chart = LossChart()
    for cores, note in ((8, "1 core per chart"), (2048, "cores per chart")):
        found = chart.draw(chart.visible(whole_of(made.running(cores)), ChartView(kind="multiples")), 120, 30)
        assert found is not None
        assert note in found.notes[0]
        drawn_lines = text(found.lines)
    assert drawn_lines.count(" to ") >= 16


def test_overlay_names_the_cores_it_shows() -> None:
    chart = LossChart()
    found = chart.draw(chart.visible(whole_of(made.running(2048)), ChartView(kind="overlay")), 120, 30)
    assert found is not None
    assert found.notes == ("the 64 cores farthest out of 2,048",)


# The map.


def map_rows(snapshot: Snapshot, look: ChartView, height: int = 22) -> dict[str, str]:
    """The rows of the map by their first core."""
    rows = drawn(snapshot, look, 106, height).splitlines()[:-3]
    return {row[:5].strip(): row[6:] for row in rows if row[:5].strip()}


def test_map_shows_the_outlier_and_its_start() -> None:
    rows = map_rows(made.outlying(), ChartView(kind="heat"))
    assert set(rows) == {str(core) for core in range(8)}
    dark = rows["5"].index("\u2588")
    assert dark == pytest.approx(120 / 330 * 100, abs=2)
    assert rows["5"][dark:].strip("\u2588") == ""
    assert all("\u2588" not in row for core, row in rows.items() if core != "5")


def test_the_map_marks_the_core_that_is_not_finite() -> None:
    rows = map_rows(made.diverged(), ChartView(kind="heat"))
    bad = events_line.SIGNS["non_finite"].mark
    assert rows["3"].rstrip().endswith(bad)
    assert sum(bad in row for row in rows.values()) == 1


def test_map_distinguishes_high_from_low_without_colour() -> None:
    run = made.running()
    columns = [made.core_column(c.first_step, c.last_step, 8, {2: 9.0}) for c in run.core_columns]
    above = map_rows(made.changed(run, core_columns=columns), ChartView(kind="heat"))
    columns = [made.core_column(c.first_step, c.last_step, 8, {2: -9.0}) for c in run.core_columns]
    below = map_rows(made.changed(run, core_columns=columns), ChartView(kind="heat"))
    assert "\u2588" in above["2"]
    assert "\u2586" in below["2"]
    assert not set(above["2"]) & set(heatmap.LOWER[1:])
    assert not set(below["2"]) & set(heatmap.SHADES[1:])


def test_map_of_many_cores_shows_the_worst_of_a_row() -> None:
    run = made.running(2048)
    columns = [made.core_column(c.first_step, c.last_step, 2048, {1033: 9.0}) for c in run.core_columns]
    rows = map_rows(made.changed(run, core_columns=columns), ChartView(kind="heat"))
    assert [core for core, row in rows.items() if "\u2588" in row] == ["1024"]


def test_single_core_and_log_maps_show_the_loss() -> None:
    for cores in (1, 8):
        row = map_rows(made.running(cores), ChartView(kind="heat", log=True))["0"].rstrip()
        assert row[0] == "\u2588"
        levels = [heatmap.SHADES.index(char) for char in row]
        assert max(levels[-20:]) <= 1
        assert all(later <= before + 1 for before, later in itertools.pairwise(levels))


@given(st.integers(1, 4096), st.integers(1, 60))
def test_groups_hold_every_core_once_and_fit(cores: int, rows: int) -> None:
    groups = grouped(cores, rows)
    assert [core for group in groups for core in group] == list(range(cores))
    assert len(groups) <= rows
    assert len(groups[0]) == 1 or cores > rows


# The outlier.


def test_small_chart_names_the_outlier_in_full() -> None:
    run = made.running(2048)
    columns = [made.core_column(c.first_step, c.last_step, 2048, {1234: 2.5}) for c in run.core_columns]
    chart = LossChart()
    for width in (98, 158):
        found = chart.draw(
            chart.visible(whole_of(made.changed(run, core_columns=columns)), ChartView(kind="multiples")), width, 30
        )
        assert found is not None
        titles = text(found.lines)
        assert "\u25b2 1234" in titles
        assert "\u2026" not in titles


def noisy(num_columns: int, num_cores: int, changed: dict[int, dict[int, float]] | None = None) -> list[CoreColumn]:
    noise = random.Random(7)
    found = []
    for index in range(num_columns):
        means = [1.0 + 0.05 * noise.gauss(0, 1) for _ in range(num_cores)]
        for core, value in (changed or {}).get(index, {}).items():
            means[core] = value
        found.append(column_of(10 * index + 1, 10 * index + 10, means))
    return found


def test_equal_cores_have_no_outlier() -> None:
    for cores in (1, 2, 3, 64, 512):
        assert OutlierDetector().outlier(noisy(60, cores)) is None


def test_outlier_is_named_with_its_steps() -> None:
    found = OutlierDetector().outlier(noisy(60, 64, {index: {17: 2.0 + index / 100} for index in range(20, 40)}))
    assert found is not None
    assert (found.core, found.first_step, found.last_step) == (17, 201, 400)
    assert found.by == pytest.approx(1.39, abs=0.05)
    assert "core 17" in text([loss.odd_core(found, 64, 100)])
    assert "steps 201 to 400" in text([loss.odd_core(found, 64, 100)])


def test_low_core_is_an_outlier_but_a_spike_is_not() -> None:
    low = OutlierDetector().outlier(noisy(60, 64, {index: {3: 0.2} for index in range(60)}))
    assert low is not None
    assert low.by < 0
    assert "below" in text([loss.odd_core(low, 64, 100)])
    assert OutlierDetector().outlier(noisy(60, 64, {30: {5: 40.0}})) is None


def test_non_finite_cores_are_named_without_outlier() -> None:
    assert text([loss.odd_core(None, 8, 100, [3, 5, 7])]) == " \u2716 NaN or inf on core 3 and 2 more in this window"
    assert "no outlier" in text([loss.odd_core(None, 8, 100)])
    assert loss.odd_core(None, 1, 100) == []


def test_nan_does_not_hide_an_outlier() -> None:
    columns = noisy(10, 16, {index: {3: math.nan, 4: 5.0} for index in range(10)})
    found = OutlierDetector().outlier(columns)
    assert found is not None
    assert found.core == 4
    assert OutlierDetector().outlier([column_of(1, 1, [math.nan] * 9)] * 30) is None


def test_outliers_of_many_cores_take_several_frames() -> None:
    columns = noisy(120, 2048, {index: {1000: 9.0} for index in range(120)})
    core_watch = OutlierDetector()
    calls, steps = 0, []
    while calls == 0 or not core_watch.complete:
        found = core_watch.outlier(columns)
        calls += 1
        assert found is not None
        assert found.core == 1000
        assert calls < 10
        steps.append(found.first_step)
    assert calls > 1
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 1


# The cursor readout.


def read(snapshot: Snapshot, look: ChartView) -> str:
    chart = LossChart()
    where, values = loss.cursor_values(chart.visible(whole_of(snapshot), look))
    return text([where, values])


def test_growing_columns_have_the_same_outlier_as_a_new_search() -> None:
    """GIVEN columns that are added one at a time, and then a narrower window, earlier results are reused correctly."""
    columns = noisy(60, 16, {index: {5: 2.0} for index in range(20, 45)})
    detector = OutlierDetector()
    for number in range(1, len(columns) + 1):
        assert detector.outlier(columns[:number]) == OutlierDetector().outlier(columns[:number])
    for window in (columns[10:], columns[:30], columns):
        assert detector.outlier(window) == OutlierDetector().outlier(window)


def test_cursor_reads_position_and_values() -> None:
    said = read(made.outlying(), ChartView(cursor=220, smoothing=3))
    values = [made.loss_at(220, core) for core in range(8)]
    for part in (
        "step 220",
        "epoch 2.00",
        "43 s",
        "14,080 examples",
        f"train {sum(values) / 8:.4f}",
        "smooth 0.1",
        f"{min(values):.4f} to {max(values):.4f}",
        "core 5 1.9000",
    ):
        assert part in said


def test_cursor_states_the_steps_of_a_core_mean() -> None:
    run = made.running()
    wide = [made.core_column(first, first + 9, 8) for first in range(1, 331, 10)]
    said = read(made.changed(run, core_columns=wide), ChartView(cursor=220))
    assert "step 220" in said
    assert re.search(r"highest core \d [0-9.]+ mean of steps 211 to 220", said)
    sampled = [msgspec.structs.replace(column, num_steps=4) for column in wide]
    assert "mean of 4 of steps 211 to 220" in read(made.changed(run, core_columns=sampled), ChartView(cursor=220))
    exact = [made.core_column(step, step, 8) for step in range(1, 331)]
    assert "mean of steps" not in read(made.changed(run, core_columns=exact), ChartView(cursor=220))


@pytest.mark.parametrize("view", ["overlay", "multiples", "heat"])
def test_core_chart_states_its_sampled_steps(view: ViewKind) -> None:
    run = made.running()
    sampled = [msgspec.structs.replace(made.core_column(a, a + 9, 8), num_steps=4) for a in range(1, 331, 10)]
    chart = LossChart()
    for columns, said in ((sampled, ["132 of 330 steps sampled"]), (run.core_columns, [])):
        whole = whole_of(made.changed(run, core_columns=columns))
        found = chart.draw(chart.visible(whole, ChartView(kind=view)), 120, 30)
        assert found is not None
        assert [note for note in found.notes if "sampled" in note] == said


def test_cursor_reads_non_finite_values() -> None:
    assert "\u2716 1 NaN/inf" in read(made.diverged(), ChartView(cursor=310))
    bad = made.changed(made.running(), loss=[made.segment(1, [math.nan] * 8)])
    assert "no finite value" in read(bad, ChartView(cursor=1))


def test_nearest_event_to_the_cursor_is_shown() -> None:
    assert "4 steps later" in text([loss.nearest_mark(made.marks(), 146)])
    assert "here" in text([loss.nearest_mark(made.marks(), 150)])
    assert ", 1 step later" in text([loss.nearest_mark(made.marks(), 149)])
    assert loss.nearest_mark([], 1) == []


# History.


def test_block_line_has_its_width_and_rises_with_values() -> None:
    line = text([evenly([1.0, 2.0, 3.0, 4.0], 20)])
    assert len(line) == 20
    assert list(line) == sorted(line)
    assert chart_of_view(whole_of(made.running()), ChartView(x="time"), 20, 5) is None


def test_a_chart_of_2048_pieces_costs_little() -> None:
    whole = whole_of(
        made.changed(made.running(), loss=made.segments(2048), core_columns=made.core_columns(8, 2048, 512))
    )
    chart = LossChart()

    def draw() -> None:
        chart.draw(chart.visible(whole, ChartView()), 136, 17)

    draw()
    # Later draws of the same pieces reuse what the first one computed: fewer than three calls per piece.
    assert num_calls(draw) < 3 * 2048


@pytest.mark.parametrize("seed", range(5))
def test_shared_long_tails_make_no_outlier(seed: int) -> None:
    chance = random.Random(seed)
    columns = [
        column_of(step, step, array("f", [0.005 * math.exp(chance.gauss(0.0, 1.6)) for _ in range(8)]))
        for step in range(1, 353)
    ]
    assert OutlierDetector().outlier(columns) is None
    out = [
        msgspec.structs.replace(column, means=array("f", [*column.means[:5], column.means[5] + 1.0, *column.means[6:]]))
        for column in columns[300:]
    ]
    found = OutlierDetector().outlier([*columns[:300], *out])
    assert found is not None
    assert found.core == 5

"""The range of a y axis: outliers are cut and counted, everything else is inside."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest
import textual
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import made, measured
from tests.ui.driving import AppPilot, drive, first_frame, monitor, text, until
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui.state.chart_data import Segment
from tputui.state.metric_series import MetricSource
from tputui.ui.charts import loss
from tputui.ui.charts.axis import AxisInfo
from tputui.ui.charts.chart_view import (
    VIEWS,
    Chart,
    ChartSeries,
    ChartView,
    ViewKind,
    VisibleData,
    Window,
    scale_of,
)
from tputui.ui.charts.loss import LossChart
from tputui.ui.charts.metric_page import MetricCharts
from tputui.ui.charts.scale import (
    Scale,
    SortedValues,
    YRange,
    limits_of,
    outside_note,
    robust_scale_of,
    suggests_log,
)
from tputui.ui.monitor.loss import LossPanel, keep_look, kept_look
from tputui.ui.widgets.dialogs import PromptInput
from tputui.ui.widgets.line_widget import plain_text

same_textual = pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"drawn by Textual {DRAWN_BY}")
FULL = ChartView(y=YRange("full"))


def series_of(segments: list[Segment]) -> ChartSeries:
    return ChartSeries(segments, [], [], AxisInfo())


def segments_of(values: list[float]) -> list[Segment]:
    return [made.segment(step, [value]) for step, value in enumerate(values, start=1)]


def visible(segments: list[Segment], view: ChartView | None = None) -> VisibleData:
    return LossChart().visible(series_of(segments), view or ChartView())


def drawn(segments: list[Segment], view: ChartView | None = None, width: int = 90, height: int = 20) -> Chart:
    chart = LossChart()
    found = chart.draw(chart.visible(series_of(segments), view or ChartView()), width, height)
    assert found is not None
    return found


def noisy(count: int, seed: int = 1) -> list[float]:
    pick = random.Random(seed)
    return [1.0 + pick.gauss(0.0, 0.1) for _ in range(count)]


ANY = st.floats(width=32, allow_nan=True, allow_infinity=True)
ROWS = st.lists(st.lists(ANY, min_size=1, max_size=3), min_size=1, max_size=300)


@given(ROWS, st.sampled_from([0, 1, 5]))
def test_every_finite_value_is_inside_or_counted(rows: list[list[float]], num_spikes: int) -> None:
    rows = [*rows, *([[1e9, -1e9]] * num_spikes), *([[0.5]] * 10)]
    segments = [made.segment(step, row) for step, row in enumerate(rows, start=1)]
    found = drawn(segments)
    scale = found.axes.y
    assert scale is not None
    finite = [segment for segment in segments if segment.num_values]
    above = sum(segment.max > scale.high for segment in finite)
    below = sum(segment.min < scale.low for segment in finite)
    assert found.outside == outside_note(above, below, scale)
    assert sum(int(part.split()[0]) for part in found.outside.split(", ") if part) == above + below
    newest = finite[-1]
    assert scale.low <= newest.mean <= scale.high


@given(st.integers(200, 400), st.integers(0, 10))
def test_no_outlier_means_the_full_range(count: int, seed: int) -> None:
    values = noisy(count, seed)
    data = visible(segments_of(values))
    assert scale_of(data) == scale_of(replace(data, view=FULL))
    assert drawn(segments_of(values)).outside == ""


def test_one_spike_of_a_million_steps_does_not_flatten_the_curve() -> None:
    segments = [
        Segment(
            first_step=at * 500 + 1, last_step=(at + 1) * 500, mean=0.5, min=0.4, max=0.6, num_values=4000, num_bad=0
        )
        for at in range(2000)
    ]
    segments[700] = Segment(
        first_step=350_001, last_step=350_500, mean=0.51, min=0.4, max=40.0, num_values=4000, num_bad=0
    )
    found = drawn(segments)
    assert found.axes.y is not None
    assert found.axes.y.high < 1.0
    assert found.outside.startswith("1 value above 0.")
    assert sum("\u25b2" in span.text for line in found.lines for span in line) == 1
    top = "".join(span.text for span in found.lines[0])
    assert top.index("\u25b2") == pytest.approx(found.axes.left + 0.35 * found.axes.across, abs=1)
    assert drawn(segments, FULL).axes.y.high >= 40.0  # type: ignore[union-attr]


def test_values_below_the_axis_have_arrows_at_its_lower_edge() -> None:
    values = noisy(300)
    values[50] = -40.0
    found = drawn(segments_of(values))
    assert re.match(r"\d values? below 0\.", found.outside)
    bottom = "".join(span.text for span in found.lines[found.axes.rows - 1])
    assert "\u25bc" in bottom


def test_mean_of_the_newest_tenth_is_never_cut() -> None:
    values = [*noisy(900), *[5.0 + at / 100 for at in range(8)]]
    found = drawn(segments_of(values))
    assert found.axes.y is not None
    assert found.axes.y.high >= 5.07
    assert found.outside == ""


def test_percentiles_are_weighted_by_steps() -> None:
    long = Segment(first_step=1, last_step=1000, mean=9.0, min=9.0, max=9.0, num_values=1000, num_bad=0)
    rest = [made.segment(step, [1.0 + step % 7 / 10]) for step in range(1001, 1101)]
    assert drawn([long, *rest]).outside == ""


@given(st.lists(st.tuples(st.integers(0, 90), st.lists(ANY, max_size=90)), max_size=8))
def test_sorted_values_follow_every_change(changes: list[tuple[int, list[float]]]) -> None:
    followed, values = SortedValues(), list[tuple[float, int]]()
    for same, more in changes:
        same = min(same, len(values))
        new = [(value, 1 + at % 3) for at, value in enumerate(more)]
        values = [*values[:same], *new]
        followed.follow(same, new)
        finite = sorted(each for each in values if math.isfinite(each[0]))
        assert followed.ranked == finite
        assert followed.weight == sum(weight for _, weight in finite)


@given(st.lists(ANY, max_size=200))
def test_scale_of_a_metric_contains_its_newest_value(values: list[float]) -> None:
    scale = robust_scale_of(values)
    assert (scale is None) == (not any(map(math.isfinite, values)))
    if scale is not None and math.isfinite(values[-1]):
        assert scale.low <= values[-1] <= scale.high


# Manual limits.


@pytest.mark.parametrize(
    ("typed", "limits"), [("0 2.5", (0.0, 2.5)), ("-1,1", (-1.0, 1.0)), (" 1e-3   1e3 ", (1e-3, 1e3))]
)
def test_limits_are_two_numbers(typed: str, limits: tuple[float, float]) -> None:
    assert limits_of(typed) == limits


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "two numbers"),
        ("1", "two numbers"),
        ("low high", "two numbers"),
        ("1 2 3", "two numbers"),
        ("2 1", "exceed"),
        ("1 1", "exceed"),
        ("nan 1", "finite"),
        ("0 inf", "finite"),
        ("-1e308 1e308", "too far apart"),
    ],
)
def test_wrong_limits_are_explained_in_one_sentence(typed: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        limits_of(typed)


@pytest.mark.parametrize("kind", VIEWS)
def test_manual_range_counts_what_it_cuts(kind: ViewKind) -> None:
    run = made.running()
    series = ChartSeries(run.loss, run.core_columns, run.marks, AxisInfo())
    chart = LossChart()
    for log in (False, True):
        view = ChartView(kind=kind, log=log, y=YRange("manual", 0.5, 1.0))
        data = chart.visible(series, view)
        found = chart.draw(data, 90, 24)
        assert found is not None
        if kind == "heat":
            assert found.outside == ""
            continue
        assert found.axes.y == Scale(0.5, 1.0, log)
        assert "above 1" in found.outside
        assert "y 0.5 to 1" in loss.note(series, data, found, "step", 200)


def test_log_axis_starts_above_zero_whatever_the_limits() -> None:
    data = visible(segments_of([0.5, 0.1, 2.0]), ChartView(log=True, y=YRange("manual", 0.0, 5.0)))
    assert scale_of(data) == Scale(0.1, 5.0, True)
    data = visible(segments_of([-0.5, 0.1, 2.0]), ChartView(log=True, y=YRange("manual", -5.0, -1.0)))
    assert scale_of(data) == Scale(-5.0, -1.0)


# The suggestion of a logarithmic axis.


def test_log_axis_is_suggested_for_a_converged_curve_until_it_is_on() -> None:
    values = [2.3 * math.exp(-step / 100) + 0.002 for step in range(1000)]
    series, data = series_of(segments_of(values)), visible(segments_of(values))
    assert "l: log axis" in loss.note(series, data, drawn(segments_of(values)), "step", 90)
    data = replace(data, view=ChartView(log=True))
    assert "l: log" not in loss.note(series, data, drawn(segments_of(values), ChartView(log=True)), "step", 90)


def test_log_axis_is_not_suggested_without_need() -> None:
    scale = Scale(0.0, 2.3)
    assert suggests_log([2.3, 0.02], scale)
    assert not suggests_log([2.3, 0.1], scale), "less than two decades"
    assert not suggests_log([2.3, 0.001, 2.0], scale), "the newest value is high"
    assert not suggests_log([2.3, -0.1], scale), "a value that it cannot show"
    assert not suggests_log([math.nan], scale)
    assert not suggests_log([1.0], None)


# The key.


def test_key_cycles_through_the_ranges_and_undo_returns() -> None:
    app = monitor(made.running())

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("L")
        assert panel.look.y == YRange("full")
        await pilot.press("L")
        prompt = pilot.app.screen.query_one(PromptInput)
        await pilot.press("ctrl+u", *"2 1", "enter")
        await until(pilot, lambda: "exceed" in text(pilot.app.screen))
        await pilot.press("ctrl+u", *"0.5 1", "enter")
        assert not prompt.is_attached
        assert panel.look.y == YRange("manual", 0.5, 1.0)
        assert "y 0.5 to 1" in panel.as_text()
        await pilot.press("u")
        assert panel.look.y == YRange("full")
        await pilot.press("u")
        assert panel.look.y == YRange()
        await pilot.press("L", "L", "escape")
        assert panel.look.y == YRange()

    drive(app, script)


def test_range_is_kept_with_the_other_settings() -> None:
    app = monitor(made.running())
    app.views.set("loss.y_range", "manual")
    app.views.set("loss.y_low", 0.25)
    app.views.set("loss.y_high", 1)

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        assert panel.look.y == YRange("manual", 0.25, 1.0)
        await pilot.press("L")
        assert app.views.get("loss.y_range", "") == "robust"

    drive(app, script)


def test_unusable_kept_limits_are_ignored() -> None:
    app = monitor(made.running())
    app.views.set("loss.y_range", "manual")
    app.views.set("loss.y_low", 3.0)

    async def script(pilot: AppPilot) -> None:
        assert pilot.app.screen.query_one(LossPanel).look.y == YRange()

    drive(app, script)


def test_metric_charts_cut_outliers_too() -> None:
    assert robust_scale_of([*noisy(500), 1e6, 1.0]) == robust_scale_of([*noisy(500), 50.0, 1.0])


def test_a_newest_value_that_is_nan_does_not_count_among_outliers() -> None:
    assert robust_scale_of([1e6, *noisy(500), math.nan]) == robust_scale_of([1e6, *noisy(500)])


def test_a_value_of_any_size_is_cut() -> None:
    chart = drawn(segments_of([*noisy(200), 1e307, *noisy(200)]))
    assert max(chart.axes.y.high if chart.axes.y else 0.0, 0.0) < 10


@pytest.mark.parametrize("text", ["0 5e-324", "0 1e-307"])
def test_limits_too_close_to_draw_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too close together"):
        limits_of(text)


def test_window_between_two_reports_shows_the_later_one() -> None:
    segments = [made.segment(step, [1.0]) for step in range(1, 5_000, 100)]
    data = visible(segments, ChartView(window=Window(8, 250)))
    assert [segment.first_step for segment in data.segments] == [301]


# The charts of metrics, on an 80x24 terminal in full screen: four on the first page.


async def type_limits(pilot: AppPilot, limits: str) -> None:
    """From the default range go on to typed limits."""
    await pilot.press("L", "L", "ctrl+u", *limits, "enter")


def test_each_metric_has_its_own_range_which_undo_and_the_key_reset() -> None:
    app = monitor(measured.running())

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("2", "z", "m", "j", "j")
        assert panel.look.metric == "accuracy"
        assert "\u203aaccuracy" in panel.as_text()
        await pilot.press("L", "L")
        assert "lower and upper y limit of accuracy" in text(pilot.app.screen)
        await pilot.press(*"0.8 0.9", "enter")
        assert panel.look.y_of("accuracy") == YRange("manual", 0.8, 0.9)
        assert panel.look.y_of("auc") == panel.look.y_of("loss") == YRange()
        assert "y 0.8 to 0.9" in panel.as_text()
        assert re.search(r"\d+ values outside", panel.as_text())
        assert "\u25b2" in panel.as_text()
        assert app.views.get("metrics.y_ranges", list[str]()) == ["0.8 0.9 accuracy"]
        await pilot.press("k", "k")
        assert panel.look.metric == "auc"
        await pilot.press("L")
        assert (panel.look.y_of("auc"), panel.look.y_of("accuracy").kind) == (YRange("full"), "manual")
        await pilot.press("u", "j", "j", "L")
        assert panel.look.y_of("accuracy").kind == "robust"
        assert "y 0.8 to 0.9" not in panel.as_text()
        assert app.views.raw("metrics.y_ranges") is None
        await pilot.press("u")
        assert "y 0.8 to 0.9" in panel.as_text()
        await pilot.press("M")
        assert panel.look.metric == ""
        assert "y 0.8 to 0.9" not in panel.as_text()

    drive(app, script, size=(80, 24))


def test_typed_limits_replace_the_shown_ones_which_can_also_be_edited() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)

        def prompt() -> PromptInput:
            return pilot.app.screen.query_one(PromptInput)

        await pilot.press("L", "L")
        shown = prompt().text
        assert limits_of(shown)
        await pilot.press("right", "1")
        assert prompt().text == f"{shown}1"
        await pilot.press("escape", "L", "L", "backspace")
        assert prompt().text == ""
        await pilot.press("escape", "L", "L", *"0.25 2")
        assert prompt().text == "0.25 2"
        await pilot.press("enter")
        assert panel.look.y == YRange("manual", 0.25, 2.0)

    drive(monitor(measured.running()), script, size=(80, 24))


def test_the_heat_map_has_no_y_range() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("V")
        assert panel.look.kind == "heat"
        for _ in range(2):
            await pilot.press("L")
            assert "the heat map has none; v shows the loss as curves" in text(pilot.app.screen)
        assert panel.look.y == YRange()

    drive(monitor(measured.running()), script, size=(120, 36))


def test_a_cursor_beyond_the_visible_steps_is_at_the_nearest_one() -> None:
    segments = segments_of([float(step) for step in range(1, 101)])
    early = visible(segments[:40], ChartView(cursor=90))
    lines = loss.readout(early, [], 120, short=True)
    assert "step 40 train 40.0" in plain_text(lines)
    later = visible(segments, ChartView(cursor=3, window=Window(11, 60)))
    assert "step 50 train 50.0" in plain_text(loss.readout(later, [], 120, short=True))
    assert "step 90 train 90.0" in plain_text(
        loss.readout(visible(segments, ChartView(cursor=90)), [], 120, short=True)
    )


def test_the_loss_has_one_range_in_its_chart_and_among_the_metrics() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await type_limits(pilot, "0.5 1")
        await pilot.press("2", "z", "m", "j")
        assert panel.look.metric == "loss"
        assert "y 0.5 to 1" in panel.as_text()
        await pilot.press("L", "M")
        assert panel.look.y == YRange("robust", 0.5, 1.0)

    drive(monitor(measured.running()), script, size=(80, 24))


def test_click_and_keys_choose_the_chart_on_every_page() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("2", "z", "m")
        page = panel._page
        assert page is not None
        assert [one.name for one in page.shown] == ["auc", "loss", "accuracy", "grad norm"]
        await pilot.click(LossPanel, offset=(page.layout.width + 20, 4))
        assert panel.look.metric == "loss"
        await pilot.click(LossPanel, offset=(20, page.layout.height + 4))
        assert panel.look.metric == "accuracy"
        await pilot.press("down", "down")
        assert panel.look.metric == "lr"
        assert "\u203alr" in panel.as_text()
        await pilot.press("pagedown")
        last = panel.look.metric
        await pilot.press("j")
        assert panel.look.metric == last == "step time"
        await pilot.press("m")
        assert panel.look.metric == ""

    drive(monitor(measured.running()), script, size=(80, 24))


def test_kept_ranges_of_metrics_hold_for_every_run_and_unusable_ones_are_left_out() -> None:
    app = monitor(measured.running())
    kept = ["full auc", "0.25 0.5 grad norm", "1 0 lr", "0 1e-320 lr", "0.5", "", "nan 1 lr"]
    app.views.set("metrics.y_ranges", kept)

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        assert panel.look.other_y == (("auc", YRange("full")), ("grad norm", YRange("manual", 0.25, 0.5)))
        await pilot.press("2", "z", "m")
        assert "auc y full" in panel.as_text()
        await pilot.press("j", "j", "j")
        assert "grad norm y 0.25 to 0.5" in panel.as_text()

    drive(app, script, size=(80, 24))


def test_only_the_newest_ranges_with_names_of_usual_length_are_kept() -> None:
    app, look = monitor(measured.running()), ChartView()
    for at in range(60):
        look = look.with_y(f"metric {at}", YRange("manual", -at, 1e-3))
    keep_look(app, look.with_y("x" * 201, YRange("full")))
    assert kept_look(app).other_y == look.other_y[-50:]


@pytest.mark.parametrize("log", [False, True])
def test_manual_range_of_a_metric_counts_what_it_cuts(log: bool) -> None:
    snapshot = measured.running()
    view = ChartView(log=log).with_y("accuracy", YRange("manual", 0.8, 0.9))
    data = visible(snapshot.loss, view)
    page = MetricCharts().draw(MetricSource.of(snapshot), "accuracy", data, 60, 12)
    assert page is not None
    assert page.chart.axes.y == Scale(0.8, 0.9, log)
    [shown] = page.shown
    cut = sum(not 0.8 <= point.value <= 0.9 for point in (*shown.train, *shown.valid))
    assert page.chart.outside == f"{cut} values outside"
    assert cut > 1


@same_textual
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=str)
def test_pictures_of_metrics_with_their_own_ranges(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press("2", "z", "m", "j", "j")
        await type_limits(pilot, "0.8 0.9")
        await pilot.press("j", "L")

    assert snap_compare(monitor(measured.running()), terminal_size=size, run_before=script)

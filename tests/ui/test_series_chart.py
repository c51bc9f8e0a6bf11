"""Dots, columns and axes match the values."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ui import made
from tputui.state.chart_data import Segment
from tputui.ui.charts import scale as y_scale
from tputui.ui.charts.axis import NON_FINITE_MARK
from tputui.ui.charts.columns import columns
from tputui.ui.charts.scale import dot_row
from tputui.ui.charts.series_chart import chart_over_steps
from tputui.ui.render.braille import ABOVE, BELOW, Canvas
from tputui.ui.render.lines import Line, width_of


def text(line: Line) -> str:
    return "".join(span.text for span in line)


def test_dots_match_unicode_braille() -> None:
    bits = {
        (0, 0): 0x01,
        (0, 1): 0x02,
        (0, 2): 0x04,
        (1, 0): 0x08,
        (1, 1): 0x10,
        (1, 2): 0x20,
        (0, 3): 0x40,
        (1, 3): 0x80,
    }
    for (x, y), bit in bits.items():
        canvas = Canvas(2, 2)
        canvas.set(2 + x, 4 + y)
        assert canvas.rows() == ["  ", " " + chr(0x2800 + bit)]
        assert canvas.has(2 + x, 4 + y)


def test_dots_outside_are_ignored() -> None:
    canvas = Canvas(3, 2)
    for x, y in [(-1, 0), (6, 0), (0, -1), (0, 8)]:
        canvas.set(x, y)
        assert not canvas.has(x, y)
    canvas.column(-1, 0, 7)
    canvas.column(6, 0, 7)
    assert canvas.rows() == ["   ", "   "]


def test_a_column_holds_both_ends_in_either_order() -> None:
    down, up = Canvas(1, 3), Canvas(1, 3)
    down.column(0, 2, 9)
    up.column(0, 9, 2)
    assert [y for y in range(12) if down.has(0, y)] == list(range(2, 10))
    assert down.rows() == up.rows()


@given(st.integers(0, 39), st.integers(0, 39), st.integers(0, 39), st.integers(0, 39))
def test_a_line_joins_its_ends_without_a_gap(x0: int, y0: int, x1: int, y1: int) -> None:
    canvas = Canvas(20, 10)
    canvas.line(x0, y0, x1, y1)
    assert canvas.has(x0, y0)
    assert canvas.has(x1, y1)
    low, high = min(x0, x1), max(x0, x1)
    spans = [[y for y in range(40) if canvas.has(x, y)] for x in range(low, high + 1)]
    assert all(spans)
    assert all(ys == list(range(ys[0], ys[-1] + 1)) for ys in spans)
    for before, after in itertools.pairwise(spans):
        assert min(abs(a - b) for a in before for b in after) <= 1


def test_above_and_below() -> None:
    assert ABOVE[0x02] == 0x09
    assert BELOW[0x02] == 0x04 | 0x20 | 0x40 | 0x80
    assert ABOVE[0x01] == BELOW[0x80] == 0


def raw_values(steps: int, cores: int) -> list[list[float]]:
    noise = random.Random(steps * 31 + cores)
    rows = [[2.0 / (1 + step / 50) + noise.gauss(0, 0.05) for _ in range(cores)] for step in range(steps)]
    rows[steps // 3][0] = 9.0
    rows[steps // 2][cores - 1] = math.nan
    return rows


@pytest.mark.parametrize("width", [1, 40, 117, 300])
def test_columns_match_raw_values(width: int) -> None:
    rows = raw_values(1000, 8)
    found = columns([made.segment(step, row) for step, row in enumerate(rows, start=1)], 1, 1000, width)
    groups: dict[int, list[float]] = {}
    for step, row in enumerate(rows, start=1):
        groups.setdefault(round((step - 1) / 999 * (width - 1)), []).extend(row)
    assert [column.x for column in found] == sorted(groups)
    for column in found:
        finite = [value for value in groups[column.x] if math.isfinite(value)]
        assert column.low == min(finite)
        assert column.high == max(finite)
        assert column.mean == pytest.approx(sum(finite) / len(finite), rel=1e-12)
        assert column.bad == len(groups[column.x]) - len(finite)


def test_without_colours_the_band_has_dots_at_its_edges() -> None:
    segments = [made.segment(step, [1.0, 3.0, 2.0]) for step in range(1, 200)]

    def num_dots(*, colourless: bool) -> int:
        chart = chart_over_steps(segments, 80, 12, colourless=colourless)
        assert chart is not None
        signs = "".join(span.text for line in chart.lines for span in line)
        return sum((ord(sign) - 0x2800).bit_count() for sign in signs if 0x2800 <= ord(sign) < 0x2900)

    assert num_dots(colourless=True) < num_dots(colourless=False) / 2


def test_spikes_and_non_finite_values_are_never_lost() -> None:
    found = columns([made.segment(step, row) for step, row in enumerate(raw_values(5000, 8), start=1)], 1, 5000, 100)
    assert max(column.high for column in found) == 9.0
    assert sum(column.bad for column in found) == 1


def test_columns_leave_other_steps_out() -> None:
    found = columns(made.segments(100), 41, 60, 20)
    assert len(found) == 20
    assert found[0].high == max(made.loss_at(41, core) for core in range(8))


def test_chart_shows_the_spike_at_its_column_and_row() -> None:
    segments = made.segments(200)
    segments[99] = made.segment(100, [*(made.loss_at(100, core) for core in range(7)), 8.0])
    drawn = chart_over_steps(segments, 80, 20)
    assert drawn is not None
    assert drawn.axes.y is not None
    assert 8.0 <= drawn.axes.y.high < 9.0
    row = text(drawn.lines[dot_row(8.0, drawn.axes.y, drawn.axes.rows * 4) // 4])
    spike = [index for index, mark in enumerate(row[7:], start=7) if mark != " "]
    left, across = 80 - len(row[7:]), 80 - 7
    assert len(spike) == 1
    assert (spike[0] - left) / across == pytest.approx(99 / 199, abs=0.03)


def test_non_finite_values_are_marked_at_their_step() -> None:
    segments = made.segments(100)
    segments[49] = made.segment(50, [math.nan] * 8)
    drawn = chart_over_steps(segments, 80, 20)
    assert drawn is not None
    ruler = text(drawn.lines[-2])
    assert ruler.count(NON_FINITE_MARK) == 1
    assert ruler.index(NON_FINITE_MARK) / 80 == pytest.approx(0.53, abs=0.05)


def test_chart_of_only_non_finite_values_is_drawn() -> None:
    drawn = chart_over_steps([made.segment(step, [math.nan, math.inf]) for step in range(1, 50)], 60, 12)
    assert drawn is not None
    assert drawn.axes.y is None
    assert text(drawn.lines[-2]).count(NON_FINITE_MARK) >= 48


def test_a_converged_loss_has_a_logarithmic_axis() -> None:
    """Not a corner at the left and a line at 0."""
    for last, is_log in ((0.001, True), (0.4, False)):
        losses = [3.0, 1.0, 0.5, *[last] * 40]
        drawn = chart_over_steps([made.segment(step, [loss]) for step, loss in enumerate(losses, start=1)], 60, 12)
        assert drawn is not None
        assert drawn.axes.y is not None
        assert drawn.axes.y.log == is_log


def test_one_step_makes_a_chart() -> None:
    drawn = chart_over_steps([made.segment(7, [0.5])], 60, 12)
    assert drawn is not None
    assert any("\u2800" < mark <= "\u28ff" for line in drawn.lines for mark in text(line))
    assert "7" in text(drawn.lines[-1])


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.floats(allow_nan=True, width=32), min_size=1, max_size=3), max_size=30),
    st.integers(0, 90),
    st.integers(0, 30),
)
def test_no_value_and_no_size_breaks_the_chart(rows: list[list[float]], width: int, height: int) -> None:
    drawn = chart_over_steps([made.segment(step, row) for step, row in enumerate(rows, start=1)], width, height)
    if drawn is None:
        assert not rows or height < 3 or width < 12
        return
    assert len(drawn.lines) == height
    assert all(width_of(line) <= width for line in drawn.lines)


def test_dot_rows_of_the_ends() -> None:
    scale = y_scale.Scale(1.0, 3.0)
    assert [dot_row(value, scale, 41) for value in (3.0, 2.0, 1.0)] == [0, 20, 40]
    log = y_scale.Scale(1.0, 100.0, log=True)
    assert [dot_row(value, log, 41) for value in (100.0, 10.0, 1.0, -5.0)] == [0, 20, 40, 40]


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(1, 12))
def test_ticks_are_few_and_within(low: float, extent: float, count: int) -> None:
    scale = y_scale.Scale(low, low + extent)
    found = y_scale.ticks(scale, count)
    slack = extent * 1e-6 + abs(low) * 1e-9
    assert len(found) <= count
    assert all(scale.low - slack <= value <= scale.high + slack for value in found)


def test_ticks_are_round() -> None:
    assert y_scale.ticks(y_scale.Scale(0.05, 2.4), 4) == [1.0, 2.0]
    assert y_scale.ticks(y_scale.Scale(0.013, 0.041), 5) == pytest.approx([0.02, 0.03, 0.04])
    assert y_scale.ticks(y_scale.Scale(0.02, 30.0, log=True), 4) == [0.1, 1.0, 10.0]
    assert y_scale.step_ticks(1, 66, 5) == [20, 40, 60]
    assert y_scale.step_ticks(5, 5, 5) == [5]
    assert y_scale.step_ticks(1, 3, 4) == [1, 2, 3]


def test_tick_labels_are_distinct() -> None:
    assert [y_scale.label(value, 0.05, 1.0) for value in (0.05, 0.1, 1.0)] == ["0.05", "0.10", "1.00"]
    assert y_scale.label(0.0, 1, 1) == "0"
    assert y_scale.label(2e7, 1e7, 2e7) == "2e+07"


def test_all_ticks_have_the_same_form() -> None:
    single = y_scale.y_labels(y_scale.Scale(1.7227, 2.6579), 2), y_scale.y_labels(y_scale.Scale(1.2345, 2.9876), 2)
    assert [sorted(labels.values()) for labels in single] == [["2.0", "2.5"], ["2"]]
    small = y_scale.y_labels(y_scale.fitted(y_scale.Scale(0.0, 9.7e-5), 12), 12)
    assert {text[-4:] for text in small.values()} == {"e-05", "0"}
    large = y_scale.y_labels(y_scale.fitted(y_scale.Scale(2e5, 1.4e6), 12), 12)
    assert all(text.endswith("e+06") for text in large.values())
    log = y_scale.y_labels(y_scale.fitted(y_scale.Scale(3e-6, 2.0, True), 12), 12)
    assert len(log) >= 3
    assert len({"e" in text for text in log.values()}) == 1


RANGES = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-9, 1e9)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(RANGES, st.integers(4, 60))
def test_y_ticks_are_evenly_spaced_round_values(ends: tuple[float, float], rows: int) -> None:
    scale = y_scale.Scale(*ends)
    _assert_even(scale, y_scale.fitted(scale, rows), rows)


@given(st.floats(-12, 6), st.floats(1.01, 12), st.integers(4, 60))
def test_ticks_of_a_log_axis_are_evenly_spaced(power: float, decades: float, rows: int) -> None:
    scale = y_scale.Scale(10.0**power, 10.0 ** (power + decades), True)
    found = y_scale.fitted(scale, rows)
    _assert_even(scale, found, rows)
    assert math.log10(found.high / found.low) <= decades * 1.61


def _assert_even(scale: y_scale.Scale, found: y_scale.Scale, rows: int) -> None:
    assert found.low <= scale.low
    assert found.high >= scale.high
    if not found.tick:
        return
    places = sorted(y_scale.y_labels(found, rows))
    gaps = {b - a for a, b in itertools.pairwise(places)}
    assert len(gaps) <= 1, "uneven"
    assert len(places) >= 2
    if not scale.log:
        assert found.high - found.low <= 1.61 * (scale.high - scale.low)
        assert found.low >= 0 or scale.low < 0


def test_segment_is_drawn_at_the_middle_of_its_steps() -> None:
    wide = Segment(first_step=1, last_step=100, mean=1.0, min=0.5, max=2.0, num_values=100, num_bad=0)
    assert [column.x for column in columns([wide], 1, 199, 199)] == [50]

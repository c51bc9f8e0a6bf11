"""Charts painted with backgrounds: the band of the loss and the map of cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, until
from tputui.state.snapshot import Snapshot
from tputui.ui.charts.axis import axis_info_of
from tputui.ui.charts.chart_view import Chart, ChartSeries, ChartView
from tputui.ui.charts.events_line import SIGNS
from tputui.ui.charts.heatmap import LOWER, SHADES
from tputui.ui.charts.loss import LossChart
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.render import braille
from tputui.ui.render.braille import Canvas, DotLayer
from tputui.ui.render.lines import STEPS, Line, Ramp, width_of
from tputui.ui.terminal.themes import COLOUR_BLIND, DARK, LIGHT, ramp_of

UPPER_HALF, LOWER_HALF = "\u2580", "\u2584"
RAMP = Ramp((0, 0, 200), (10, 10, 10), (200, 0, 0), (255, 255, 255))


def drawn(snapshot: Snapshot, view: ChartView, width: int = 106, height: int = 22) -> Chart:
    series = ChartSeries(snapshot.loss, snapshot.core_columns, snapshot.marks, axis_info_of(snapshot))
    chart = LossChart()
    found = chart.draw(replace(chart.visible(series, view), ramp=RAMP), width, height)
    assert found is not None
    return found


def text(lines: Sequence[Line]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


# The band.


def composed(band: Canvas, line: Canvas, guide: int | None = None) -> list[list[tuple[str, str]]]:
    """The cells of each row as pairs of character and tone."""
    rows = braille.compose([DotLayer(line, "accent")], band=DotLayer(band, "band"), guide=guide, painted=True)
    return [[(char, span.tone) for span in row for char in span.text] for row in rows]


def test_line_in_the_band_has_its_background_without_a_hole() -> None:
    band, line = Canvas(6, 3), Canvas(6, 3)
    for x in range(12):
        band.column(x, 0, 11)
        line.set(x, 5)
    rows = composed(band, line)
    assert {tone for _, tone in rows[1]} == {"accent_in_band"}
    assert rows[0] == rows[2] == [(" ", "in_band")] * 6


def test_edge_of_the_band_is_drawn_in_half_cells() -> None:
    band, line = Canvas(2, 3), Canvas(2, 3)
    for x in range(4):
        band.column(x, 2, 9)
    rows = composed(band, line)
    assert rows[0] == [(LOWER_HALF, "band_edge")] * 2
    assert rows[1] == [(" ", "in_band")] * 2
    assert rows[2] == [(UPPER_HALF, "band_edge")] * 2


def test_band_thinner_than_a_cell_does_not_look_as_thick_as_one() -> None:
    band, line = Canvas(2, 3), Canvas(2, 3)
    for x in range(4):
        band.column(x, 4, 5)
        line.set(x, 4)
    assert {tone for row in composed(band, line) for _, tone in row} == {"plain", "accent"}


def test_line_at_the_edge_joins_the_band_beyond_it() -> None:
    band, line = Canvas(2, 3), Canvas(2, 3)
    for x in range(4):
        band.column(x, 0, 5)
        line.set(x, 5)
    rows = composed(band, line)
    assert {tone for _, tone in rows[1]} == {"accent_in_band"}


def test_spike_of_one_dot_column_is_visible_in_the_band() -> None:
    band, line = Canvas(3, 3), Canvas(3, 3)
    band.column(3, 0, 11)
    assert [row[1] for row in composed(band, line)] == [(" ", "in_band")] * 3


def test_cursor_is_drawn_on_the_band() -> None:
    band, line = Canvas(3, 2), Canvas(3, 2)
    for x in range(6):
        band.column(x, 0, 3)
    first, second = composed(band, line, guide=1)
    assert first[1] == (braille.GUIDE, "label_in_band")
    assert second[1] == (braille.GUIDE, "label")


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(-2, 22), st.integers(-2, 22)), max_size=30))
def test_painted_rows_have_the_width_and_the_lines_of_dotted_ones(columns: list[tuple[int, int, int]]) -> None:
    band, line = Canvas(10, 5), Canvas(10, 5)
    for x, top, bottom in columns:
        band.column(x, top, bottom)
        line.set(x, bottom)
    for row, cells in enumerate(composed(band, line)):
        assert len(cells) == 10
        for column, (char, tone) in enumerate(cells):
            assert tone.startswith("accent") == bool(line.cell(column, row))
            assert (tone == "plain" or band.cell(column, row) != 0) or tone.startswith("accent")
            assert char == braille.glyph(line.cell(column, row)) or not tone.startswith("accent")


def test_band_is_painted_with_many_colours_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def tones() -> set[str]:
        found: set[str] = set()

        async def script(pilot: AppPilot) -> None:
            panel = pilot.app.screen.query_one(LossPanel)
            found.update(span.tone for line in panel._lines for span in line)
            assert "\u2841\u2841 min-max" in panel.as_text(), "text has the band as dots"

        drive(monitor(made.running()), script)
        return found

    assert "in_band" in tones()
    monkeypatch.setenv("TERM", "xterm-16color")
    monkeypatch.delenv("COLORTERM")
    assert "in_band" not in tones()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "in_band" not in tones()


def test_without_colours_the_mean_is_drawn_apart_from_the_band(monkeypatch: pytest.MonkeyPatch) -> None:
    """The band is dots in every second column, at the minimum and the maximum; the mean is a line."""

    def dots() -> int:
        async def script(pilot: AppPilot) -> None:
            rows = "".join(pilot.app.screen.query_one(LossPanel).as_text().splitlines()[3:-4])
            counted.append(sum((ord(c) - 0x2800).bit_count() for c in rows if 0x2800 < ord(c) <= 0x28FF))
            assert "min-max over 8 cores" in pilot.app.screen.query_one(LossPanel).as_text()

        counted: list[int] = []
        drive(monitor(made.running()), script, size=(160, 45))
        return counted[0]

    monkeypatch.setenv("NO_COLOR", "1")
    columns = 2 * 100
    # A filled band has four dots of each cell that it covers; edges and the mean at most two of each column.
    assert 0 < dots() < 2 * columns


# The map.


def colours_of(line: Line) -> list[tuple[object, object]]:
    """The colours of each cell of a row of the map."""
    return [span.colours or (None, None) for span in line if span.colours is not None for _ in span.text]


def test_map_paints_above_and_below_the_median_in_different_colours() -> None:
    run = made.running()
    for value, side in ((9.0, 0), (-9.0, 2)):
        columns = [made.core_column(c.first_step, c.last_step, 8, {2: value}) for c in run.core_columns]
        found = drawn(made.changed(run, core_columns=columns), ChartView(kind="heat"))
        row = next(line for line, cores in zip(found.lines, found.rows, strict=False) if 2 in cores)
        grounds = {ground for _, ground in colours_of(row)}
        assert (RAMP.above if side == 0 else RAMP.below) in grounds


def test_more_cores_than_lines_share_a_line_in_halves() -> None:
    run = made.running(64)
    columns = [made.core_column(c.first_step, c.last_step, 64, {9: 9.0}) for c in run.core_columns]
    found = drawn(made.changed(run, core_columns=columns), ChartView(kind="heat"), height=43)
    assert "1 core per half row" in found.notes[-1] or "2 cores per half row" in found.notes[-1]
    row, line = next((cores, line) for line, cores in zip(found.lines, found.rows, strict=False) if 9 in cores)
    assert len(row) == 2
    half = 0 if row.start == 9 else 1
    assert any(colours[half] == RAMP.above for colours in colours_of(line))
    assert {core for cores in found.rows for core in cores} == set(range(64))


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 13, 31, 33, 2048])
@pytest.mark.parametrize("cursor", [None, 70])
def test_painted_map_fills_its_area(cores: int, cursor: int | None) -> None:
    for log in (False, True):
        for size in ((30, 6), (76, 14), (120, 40)):
            found = drawn(made.running(cores), ChartView(kind="heat", log=log, cursor=cursor), *size)
            assert all(width_of(line) <= size[0] for line in found.lines)
            assert len(found.rows) <= found.axes.rows
            if cursor is not None:
                assert braille.GUIDE in text(found.lines[: found.axes.rows])


def test_non_finite_core_is_marked_in_the_painted_map() -> None:
    found = drawn(made.diverged(), ChartView(kind="heat"))
    mark = SIGNS["non_finite"].mark
    bad = [cores for line, cores in zip(found.lines, found.rows, strict=False) if mark in text([line])]
    assert bad
    assert all(3 in cores for cores in bad)


def test_colour_bar_has_the_ends_of_the_values() -> None:
    found = drawn(made.outlying(), ChartView(kind="heat"))
    legend = text([list(found.legend)])
    assert legend.startswith(" deviation from median -")
    assert " +" in legend
    bar = [span for span in found.legend if span.colours is not None]
    assert bar[-1].colours == (RAMP.text, RAMP.above)
    loss = drawn(made.running(), ChartView(kind="heat", log=True))
    assert text([list(loss.legend)]).startswith(" loss 0.")


def test_colour_bar_is_in_the_panel_and_its_range_in_the_frame_under_the_cursor() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("v", "v", "v", "2", "z")
        assert any(span.colours is not None for span in panel._lines[1])
        assert "deviation from median" in text(panel._lines[:3])
        shown = panel.as_text()
        assert f"{LOWER[-1]} ..." in shown or f" ... {SHADES[-1]}" in shown
        await pilot.press("comma")
        assert "deviation from median" in text(panel._lines[:1])

    drive(monitor(made.outlying()), script)


def test_another_theme_redraws_the_map_of_a_run_that_ended() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("v", "v", "v")
        for middle in (ramp_of(LIGHT).middle, ramp_of(COLOUR_BLIND).middle):
            await pilot.press("t")
            await until(pilot, lambda middle=middle: middle in _grounds(panel))  # type: ignore[misc]
        await pilot.press("t")
        await until(pilot, lambda: not _grounds(panel))

    drive(monitor(made.finished()), script)


def _grounds(panel: LossPanel) -> set[object]:
    return {span.colours[1] for line in panel._lines for span in line if span.colours is not None}


def test_ramp_goes_from_end_to_end() -> None:
    assert RAMP.at(0) == RAMP.middle
    assert (RAMP.at(-STEPS), RAMP.at(STEPS)) == (RAMP.below, RAMP.above)
    assert RAMP.at(99) == RAMP.above
    reds = [RAMP.at(step)[0] for step in range(STEPS + 1)]
    assert reds == sorted(reds)
    assert width_of(RAMP.bar(-1.0, 0.5, 12)) == 12


@pytest.mark.parametrize("theme", [DARK, LIGHT, COLOUR_BLIND], ids=lambda theme: theme.name)
def test_ramp_of_a_theme_has_three_distinct_colours(theme: object) -> None:
    ramp = ramp_of(theme)  # type: ignore[arg-type]
    ends = (ramp.below, ramp.middle, ramp.above)
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert sum(abs(a - b) for a, b in zip(ends[one], ends[other], strict=True)) > 150

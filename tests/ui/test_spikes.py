"""A spike of one core in one step: visible and named in the charts of a long run, which does not decode every step."""

from __future__ import annotations

import math
import random
from array import array

import msgspec
import pytest

from tests import recorded
from tputui.state import core_series
from tputui.state.chart_data import CoreColumn, CoreValue
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.ui.charts import heatmap, loss, small_multiples
from tputui.ui.charts.axis import axis_info_of
from tputui.ui.charts.chart_view import ChartSeries, ChartView, Window, grouped
from tputui.ui.charts.columns import ReducedColumns
from tputui.ui.charts.loss import LossChart
from tputui.ui.charts.spikes import SpikeFinder
from tputui.ui.render.lines import Line


def text(lines: list[Line]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


def whole_of(snapshot: Snapshot) -> ChartSeries:
    return ChartSeries(snapshot.loss, snapshot.core_columns, snapshot.marks, axis_info_of(snapshot))


SPIKE_STEP = 12_345


def long_run(num_cores: int, core: int, spike: float = 0.9) -> Snapshot:
    """A run of 20,000 steps, of which few are decoded, with a spike of one core in one step that is lower than the
    first losses."""
    state = RunState()
    state.apply("worker-0", 0, recorded.opened(recorded.T0, "worker"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_series, "WHOLE_VALUES_MAX", 200 * num_cores)
        for seq, first in enumerate(range(1, 20_001, 50), start=1):
            level = 2.3 * math.exp(-first / 4_000) + 0.05
            noise = random.Random(first)
            rows = [[level * (1 + 0.1 * noise.uniform(-1, 1)) for _ in range(num_cores)]] * 50
            if first <= SPIKE_STEP < first + 50:
                rows[SPIKE_STEP - first] = [*rows[0][:core], spike, *rows[0][core + 1 :]]
            state.apply("worker-0", seq, recorded.steps_recorded(recorded.T0 + seq, first, rows))
        return build_snapshot(state, ViewerContext(now=recorded.T0 + 400, run="long", dir="long"))


@pytest.mark.parametrize(("num_cores", "core"), [(8, 3), (256, 200)])
@pytest.mark.parametrize("look", [ChartView(), ChartView(window=Window(10_000, 13_000))], ids=["whole", "zoomed"])
def test_a_spike_of_one_step_is_in_band_map_and_legend(num_cores: int, core: int, look: ChartView) -> None:
    run, chart = long_run(num_cores, core), LossChart()
    [column] = [column for column in run.core_columns if column.first_step <= SPIKE_STEP <= column.last_step]
    assert max(column.means) < 0.5, "the means do not show it"
    data = chart.visible(whole_of(run), look)
    head = text(loss.legend(data, None, num_cores, 0, 120, short=False))
    assert f"spike 0.9000 core {core} step 12,345" in head
    drawing = chart.draw(chart.visible(whole_of(run), look._replace(kind="heat")), 106, 22)
    assert drawing is not None
    assert not any("not in the map" in note for note in drawing.notes)
    line = next(index for index, cores in enumerate(drawing.rows) if core in cores)
    shades = text([drawing.lines[line]])[drawing.axes.left :]
    cell = drawing.axes.cell_of(SPIKE_STEP)
    assert shades[cell] == heatmap.SHADES[-1]
    assert shades.count(heatmap.SHADES[-1]) == 1
    band = chart.draw(chart.visible(whole_of(run), look._replace(window=Window(10_000, 13_000))), 106, 22)
    assert band is not None
    assert band.axes.y is not None
    assert band.axes.y.high >= 0.9


def test_the_cursor_names_the_core_of_the_highest_value() -> None:
    run, chart = long_run(8, 3), LossChart()
    for kind in ("band", "heat"):
        data = chart.visible(whole_of(run), ChartView(kind=kind, cursor=SPIKE_STEP, core=3))
        drawing = chart.draw(data, 106, 22)
        assert drawing is not None
        lines = loss.readout(data, [], 120, short=False, rows=drawing.rows)
        assert "max 0.9000 core 3 step 12,345" in text(lines)
        narrow = loss.readout(data, [], 66, short=True, rows=drawing.rows)
        assert "core 3" in text(narrow), "the range over the cores is left out first"


def test_small_charts_reach_a_spike() -> None:
    columns = long_run(8, 3).core_columns
    spans = small_multiples.spans_of(columns, grouped(8, 8), ReducedColumns())
    assert max(span[2] for span in spans[3][len(columns) // 2 :] if span) == pytest.approx(0.9)
    assert max(span[2] for span in spans[4][len(columns) // 2 :] if span) < 0.9


def test_a_run_that_goes_on_has_the_same_extremes_as_one_read_at_once() -> None:
    noise = random.Random(7)
    columns: list[CoreColumn] = []
    following = SpikeFinder()
    for number in range(60):
        values = [noise.expovariate(1.0) for _ in range(4)]
        low, high = min(values), max(values)
        column = CoreColumn(
            first_step=10 * number + 1,
            last_step=10 * number + 10,
            means=array("f", values),
            bad_cores=(),
            num_steps=10,
            middle=10 * number + 5.5,
            highest=CoreValue(value=high * (9 if number == 30 else 1), core=values.index(high), step=10 * number + 1),
            lowest=CoreValue(value=low, core=values.index(low), step=10 * number + 2),
        )
        columns.append(column)
        shown = following.find(columns, lambda each: sorted(each.means)[2], None)
        assert shown == SpikeFinder().find(columns, lambda each: sorted(each.means)[2], None)
        # The column before the newest one changes too, as that of steps of which only some are read.
        columns[-1] = msgspec.structs.replace(column, lowest=None)
    assert [spike.extreme.step for spike in shown.spikes[:1]] == [301]

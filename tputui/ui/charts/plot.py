"""Small charts of one series: the loss preview of the run list, and the history of the throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.chart_data import Segment
from tputui.ui.charts import axis, band, frame
from tputui.ui.charts.axis import AxisInfo, XAxis
from tputui.ui.charts.chart_view import ChartView
from tputui.ui.charts.columns import ChartColumn, columns
from tputui.ui.charts.frame import NON_FINITE_MARK, Axes, dot_row
from tputui.ui.charts.visible_data import Chart, ChartSeries, visible_data
from tputui.ui.render import braille
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line

__all__ = ["NON_FINITE_MARK", "Plot", "dot_row", "plot"]

_AXIS_LINES = 2


class Plot(NamedTuple):
    """A drawn series with its columns and y axis."""

    lines: list[Line]
    columns: list[ChartColumn]
    scale: axis.Scale | None


def plot(segments: Sequence[Segment], width: int, height: int, *, log: bool = False) -> Plot:
    """Draws a series over steps in `width` by `height` cells, including the axes."""
    rows = height - _AXIS_LINES
    if not segments or rows < 1 or width < 12:
        return Plot([], [], None)
    scale = axis.scale_for([bound for segment in segments for bound in (segment.min, segment.max)], log)
    labels = frame.y_labels(scale, rows)
    left = frame.left_of(labels)
    across = width - left
    axes = Axes(XAxis(segments, "step", AxisInfo(), across * DOTS_X), scale, labels, left, across, rows)
    found = columns(segments, segments[0].first_step, segments[-1].last_step, across * DOTS_X)
    mean, behind = axes.canvas(), axes.canvas()
    if scale is not None:
        row = band.dot_of(scale, mean.dots_y)
        band.fill_band(behind, found, row)
        band.trace(mean, [(column.x, column.mean) for column in found], row)
    body = braille.compose([braille.Layer(mean, "accent")], band=braille.Layer(behind, "band"))
    bad = frame.bad_signs([column.x for column in found if column.bad])
    return Plot([*frame.sided(body, axes), *frame.ruler_lines(axes, bad, None)], found, scale)


LEAST_CHART = 7
"""Minimum number of lines of a chart with axes."""


def as_segments(points: Sequence[tuple[float, int, float]]) -> list[Segment]:
    """Segments from (unix time, step, value) in order of steps; each begins after the previous one."""
    found: list[Segment] = []
    before = 0
    for t, step, value in points:
        first = min(before + 1, step)
        found.append(
            Segment(first_step=first, last_step=step, mean=value, min=value, max=value, num_values=1, num_bad=0, t=t)
        )
        before = max(step, before)
    return found


def chart(series: ChartSeries, view: ChartView, width: int, height: int) -> Chart | None:
    """A chart of the visible part; None if there is not enough room."""
    if height < LEAST_CHART or width < 24 or len(series.segments) < 2:
        return None
    why_not = series.axis_info.why_not(view.x, series.segments)
    data = visible_data(series, view._replace(kind="band", log=False, x="step" if why_not else view.x))
    return band.draw(data, width, height) if data.segments else None

"""What a chart is drawn from, and what it gives back. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.chart_data import CoreColumn, Mark, OutlierView, Segment
from tputui.ui.charts import axis, events_line, frame
from tputui.ui.charts.axis import AxisInfo, Domain
from tputui.ui.charts.chart_view import ChartView
from tputui.ui.charts.columns import SegmentMemory
from tputui.ui.charts.events_line import EventSign
from tputui.ui.charts.frame import Area
from tputui.ui.charts.outlier import seen
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Line

STRIP_FROM = 9
"""Lines from which a chart has a line of events of its own; below that the signs stand on the ruler."""


class VisibleData(NamedTuple):
    """The part of a run that is in sight."""

    segments: list[Segment]
    smooth: list[float]
    """The moving average at each segment; empty where there is none."""
    cores: list[CoreColumn]
    marks: list[Mark]
    grounds: AxisInfo
    look: ChartView
    outlier: OutlierView | None
    figures: SegmentMemory
    """Of the segments; its columns are asked for before another scene is made with it."""


class Chart(NamedTuple):
    """A drawn chart."""

    lines: list[Line]
    area: Area
    """Where its dots are; without a cell across where the chart has no x axis of its own."""
    domain: Domain
    notes: tuple[str, ...] = ()
    """For the frame, the most important first."""
    hidden: int = 0
    """Points that a logarithmic axis cannot show."""
    rows: Sequence[range] = ()
    """The cores of each line from the top, in the map; elsewhere a line is no core's."""
    every: int = 0
    """Cells after which another chart with the same x axis begins at the right; 0 where there is one alone."""


class Whole(NamedTuple):
    """Everything that a run told a chart."""

    segments: list[Segment]
    cores: list[CoreColumn]
    marks: list[Mark]
    grounds: AxisInfo
    outlier: OutlierView | None = None
    """The core that differs from the others now."""


def cut(whole: Whole, smooth: list[float], look: ChartView, memory: SegmentMemory | None = None) -> VisibleData:
    """What of a run is in sight; `memory` is that of the frame before."""
    memory = memory or SegmentMemory()
    segments = whole.segments
    if look.window is None or not segments:
        figures = memory.follow(segments)
        return VisibleData(segments, smooth, whole.cores, whole.marks, whole.grounds, look, None, figures)
    first, last = look.bounds(segments[0].first_step, segments[-1].last_step)
    start = bisect.bisect_left(segments, first, key=lambda segment: segment.last_step)
    stop = bisect.bisect_right(segments, last, key=lambda segment: segment.first_step)
    marks = [mark for mark in whole.marks if first <= mark.step <= last]
    cores = seen(whole.cores, first, last)
    figures = memory.follow(segments[start:stop])
    return VisibleData(segments[start:stop], smooth[start:stop], cores, marks, whole.grounds, look, None, figures)


def domain_of(scene: VisibleData, width: int) -> Domain:
    """The x axis, `width` dots wide; where it is the whole of a run that goes on, with room for what comes next."""
    spare = scene.grounds.growing and scene.look.window is None
    return Domain(scene.segments, scene.look.x, scene.grounds, width, scene.figures.middles, spare=spare)


def place_of(domain: Domain, mark: Mark, grounds: AxisInfo) -> int:
    """The cell of an event: by its time where time is the axis, by its step elsewhere."""
    if domain.kind == "time" and grounds.started is not None:
        return domain.dot(mark.t - grounds.started) // DOTS_X
    return frame.cell_of(domain, mark.step)


def finish(
    scene: VisibleData, body: list[Line], domain: Domain, area: Area, labels: dict[int, str], height: int
) -> list[Line]:
    """The body of a chart with its axes and the line of events."""
    signs = events_line.strip(scene.marks, lambda mark: place_of(domain, mark, scene.grounds), area.across)
    dots = [dot for segment, dot in zip(scene.segments, domain.dots(), strict=True) if segment.num_bad]
    bad = frame.bad_signs(dots)
    cursor = cursor_cell(scene, domain)
    strip = height >= STRIP_FROM
    on_ruler: dict[int, EventSign] = bad if strip else {**signs, **bad}
    lines = [*frame.sided(body, labels, area.left), *frame.x_axis(domain, area, on_ruler, cursor)]
    return [*lines, frame.strip_line(signs, area)] if strip else lines


def rows_for(height: int) -> int:
    """Rows of dots in a chart of so many lines."""
    return height - (3 if height >= STRIP_FROM else 2)


def cursor_cell(scene: VisibleData, domain: Domain) -> int | None:
    """The cell of the cursor; None where there is none in sight."""
    if scene.look.cursor is None or not scene.segments:
        return None
    return frame.cell_of(domain, scene.look.cursor)


def scale_of(scene: VisibleData, log: bool) -> axis.Scale | None:
    """The y axis that holds everything in sight."""
    return axis.scale_for(scene.figures.lows + scene.figures.highs, log)


def sampled(scene: VisibleData) -> tuple[str, ...]:
    """A note on how few of the steps in sight stand for all of them in what is told by core; none where all do."""
    seen = sum(column.num_steps for column in scene.cores)
    spanned = sum(column.last_step - column.first_step + 1 for column in scene.cores)
    return (f"{seen:,} of {spanned:,} steps sampled",) if seen < spanned else ()


def hidden_by_log(scene: VisibleData, log: bool) -> int:
    """Points that a logarithmic axis cannot show: those whose mean, or a core of which, is not positive."""
    return sum(1 for segment in scene.segments if segment.min <= 0.0) if log else 0

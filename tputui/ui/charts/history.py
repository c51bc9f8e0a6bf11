"""What a run told over time beside its loss, drawn as a chart with events. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tputui.state.chart_data import Segment
from tputui.ui.charts import band
from tputui.ui.charts.chart_view import ChartView
from tputui.ui.charts.visible_data import Chart, Whole, cut

LEAST_CHART = 7
"""Lines from which a chart is worth its axes."""


def as_segments(points: Sequence[tuple[float, int, float]]) -> list[Segment]:
    """Points of time, step and value, in order, as pieces of a series; each reaches back to the one before."""
    found: list[Segment] = []
    before = 0
    for t, step, value in points:
        first = min(before + 1, step)
        found.append(
            Segment(first_step=first, last_step=step, mean=value, min=value, max=value, num_values=1, num_bad=0, t=t)
        )
        before = max(step, before)
    return found


def chart(whole: Whole, look: ChartView, width: int, height: int) -> Chart | None:
    """A chart of the part that is in sight; None where there is no room for one."""
    if height < LEAST_CHART or width < 24 or len(whole.segments) < 2:
        return None
    why_not = whole.grounds.why_not(look.x, whole.segments)
    scene = cut(whole, [], look._replace(view="band", log=False, x="step" if why_not else look.x))
    return band.draw(scene, width, height) if scene.segments else None

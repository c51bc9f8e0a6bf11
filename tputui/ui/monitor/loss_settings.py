"""The settings of the loss panel that are kept from run to run."""

from __future__ import annotations

from tputui.ui.base.preferences import Views, views_of
from tputui.ui.charts.axis import X_KINDS
from tputui.ui.charts.chart_view import VIEWS, ChartView
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.charts.y_range import RANGES, RangeKind, YRange, lines_of, ranges_of


def kept_look(app: object) -> ChartView:
    """How the user looked at the loss last; part and cursor are of a run, so they are not kept."""
    views = views_of(app)
    view, x = views.get("loss.view", "band"), views.get("loss.x", "step")
    return ChartView(
        kind=next((one for one in VIEWS if one == view), "band"),
        log=views.get("loss.log_axis", False),
        smoothing=min(max(views.get("loss.smoothing", 0), 0), len(WEIGHTS) - 1),
        x=next((one for one in X_KINDS if one == x), "step"),
        y=_kept_range(views),
        other_y=tuple(ranges_of(views.get("metrics.y_ranges", list[str]()))),
    )


def _kept_range(views: Views) -> YRange:
    kept = views.get("loss.y_range", "robust")
    kind: RangeKind = next((one for one in RANGES if one == kept), "robust")
    y = YRange(kind, views.get("loss.y_low", 0.0), views.get("loss.y_high", 1.0))
    return y if y.is_sound else YRange("robust" if kind == "manual" else kind)


def keep_look(app: object, look: ChartView) -> None:
    """Remembers how the user looks at the loss."""
    views = views_of(app)
    views.set("loss.view", look.kind)
    views.set("loss.log_axis", look.log)
    views.set("loss.smoothing", look.smoothing)
    views.set("loss.x", look.x)
    views.set("loss.y_range", look.y.kind)
    views.set("loss.y_low", look.y.low)
    views.set("loss.y_high", look.y.high)
    if lines := lines_of(look.other_y):
        views.set("metrics.y_ranges", lines)
    else:
        views.remove("metrics.y_ranges")

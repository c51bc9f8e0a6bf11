"""The settings of the loss panel that are kept from run to run."""

from __future__ import annotations

from collections.abc import Iterable

from tputui.ui.base.preferences import Views, views_of
from tputui.ui.charts.axis import X_KINDS
from tputui.ui.charts.chart_view import VIEWS, ChartView
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.charts.y_range import RANGES, RangeKind, YRange, limits_of

_RANGES_MAX = 50
"""Maximum number of metrics whose y range is kept."""
_NAME_CHARS_MAX = 200
"""Maximum length of the name of such a metric; names come from runs, and the file of settings is small."""


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
        other_y=tuple(_parsed(views.get("metrics.y_ranges", list[str]()))),
    )


def _kept_range(views: Views) -> YRange:
    kept = views.get("loss.y_range", "robust")
    kind: RangeKind = next((one for one in RANGES if one == kept), "robust")
    y = YRange(kind, views.get("loss.y_low", 0.0), views.get("loss.y_high", 1.0))
    return y if y.is_sound else YRange("robust" if kind == "manual" else kind)


def _parsed(kept: Iterable[str]) -> Iterable[tuple[str, YRange]]:
    """The y ranges of metrics; a line that is not one is left out."""
    for line in kept:
        low, _, rest = line.partition(" ")
        if low == "full":
            yield rest, YRange("full")
            continue
        high, _, name = rest.partition(" ")
        try:
            yield name, YRange("manual", *limits_of(f"{low} {high}"))
        except ValueError:
            continue


def _line(metric: str, y: YRange) -> str:
    """`full accuracy` or `0.5 1.0 accuracy`."""
    return f"full {metric}" if y.kind == "full" else f"{y.low!r} {y.high!r} {metric}"


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
    lines = [_line(metric, y) for metric, y in look.other_y if len(metric) <= _NAME_CHARS_MAX]
    if lines:
        views.set("metrics.y_ranges", lines[-_RANGES_MAX:])
    else:
        views.remove("metrics.y_ranges")

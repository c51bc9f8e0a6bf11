"""How a chart is viewed: kind, axes, smoothing, window and cursor. Every change returns a new value."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from tputui.ui.charts.axis import X_KINDS, XKind
from tputui.ui.charts.columns import WEIGHTS

ViewKind = Literal["band", "overlay", "multiples", "heat"]
VIEWS: tuple[ViewKind, ...] = get_args(ViewKind)

LEAST_SPAN = 8
"""Number of visible steps at the maximum zoom."""

ZOOM = 2.0
ALL_FROM = 0.8
"""Zooming out to at least this share of the run shows the whole run. Otherwise a growing run would never be shown whole
or followed again."""
PAN = 0.25
"""Share of the visible steps by which the window moves."""


class Window(NamedTuple):
    """The visible part of a run."""

    span: int
    """Number of steps."""
    last: int | None
    """Last step; None follows the newest step."""


class ChartView(NamedTuple):
    """Kind, axes, smoothing, window and cursor of a chart."""

    kind: ViewKind = "band"
    log: bool = False
    smoothing: int = 0
    """Index into `columns.WEIGHTS`."""
    x: XKind = "step"
    window: Window | None = None
    """None shows the whole run."""
    cursor: int | None = None
    """Step at which values are shown; None without a cursor."""
    core: int | None = None
    """A core of the selected row of the heat map; None if no row is selected."""

    @property
    def weight(self) -> float:
        """Weight of the moving average; 0 is no smoothing."""
        return WEIGHTS[self.smoothing]

    def next_view(self, by: int = 1) -> ChartView:
        """The next kind of chart, or the previous one."""
        return self._replace(kind=VIEWS[(VIEWS.index(self.kind) + by) % len(VIEWS)])

    def next_x(self) -> ChartView:
        """The next x axis."""
        return self._replace(x=X_KINDS[(X_KINDS.index(self.x) + 1) % len(X_KINDS)])

    def smoother(self, by: int) -> ChartView:
        """Increase or decrease the smoothing."""
        return self._replace(smoothing=min(max(self.smoothing + by, 0), len(WEIGHTS) - 1))

    def bounds(self, first: int, last: int) -> tuple[int, int]:
        """First and last visible step of a run with the steps `first` to `last`."""
        if self.window is None:
            return first, last
        span = min(self.window.span, last - first + 1)
        end = last if self.window.last is None else min(max(self.window.last, first + span - 1), last)
        return end - span + 1, end

    def zoomed(self, closer: bool, centre: float | None, first: int, last: int) -> ChartView:
        """Zoom in or out by a factor of two around `centre`, else the cursor, else with the last step fixed.

        A window that ends at the newest step keeps following it.
        """
        low, high = self.bounds(first, last)
        span = high - low + 1
        wanted = max(round(span / ZOOM), LEAST_SPAN) if closer else round(span * ZOOM)
        if wanted >= (last - first + 1) * (1.0 if closer else ALL_FROM):
            return self._replace(window=None)
        centre = centre if centre is not None else self.cursor
        if centre is None or not low <= centre <= high:
            return self._with_end(high, wanted, first, last)
        share = (centre - low) / max(span - 1, 1)
        return self._with_end(round(centre + (1 - share) * (wanted - 1)), wanted, first, last)

    def panned(self, by: int, first: int, last: int) -> ChartView:
        """Move the window by a quarter of its width, right for positive `by`."""
        if self.window is None:
            return self
        low, high = self.bounds(first, last)
        span = high - low + 1
        return self._with_end(high + by * max(round(span * PAN), 1), span, first, last)

    def reading(self, step: int | None, first: int, last: int) -> ChartView:
        """Put the cursor at a step and make that step visible; None removes the cursor."""
        if step is None:
            return self._replace(cursor=None, core=None)
        step = min(max(step, first), last)
        low, high = self.bounds(first, last)
        if low <= step <= high:
            return self._replace(cursor=step)
        span = high - low + 1
        return self._with_end(step if step > high else step + span - 1, span, first, last)._replace(cursor=step)

    def _with_end(self, end: int, span: int, first: int, last: int) -> ChartView:
        end = min(max(end, first + span - 1), last)
        return self._replace(window=Window(span, None if end == last else end))

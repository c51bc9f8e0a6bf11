"""How a chart is viewed: kind, axes, smoothing, window and cursor. Every change returns a new value."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from tputui.ui.charts.axis import X_KINDS, XKind
from tputui.ui.charts.columns import WEIGHTS

ViewKind = Literal["band", "overlay", "multiples", "heat"]
VIEWS: tuple[ViewKind, ...] = get_args(ViewKind)

LEAST_SPAN = 8
"""Steps that are in sight at the closest."""

ZOOM = 2.0
ALL_FROM = 0.8
"""Share of the run from which zooming out shows all of it: a run that grew meanwhile would else never be all in sight
again, nor followed."""
PAN = 0.25
"""Share of what is in sight by which it moves."""


class Window(NamedTuple):
    """The part of a run that is in sight."""

    span: int
    """Steps."""
    last: int | None
    """Last step; None is the newest one, whichever that is."""


class ChartView(NamedTuple):
    """How a chart is looked at."""

    kind: ViewKind = "band"
    log: bool = False
    smoothing: int = 0
    """Which of `smooth.WEIGHTS`."""
    x: XKind = "step"
    window: Window | None = None
    """None is the whole run."""
    cursor: int | None = None
    """Step at which values are read; None where there is no cursor."""
    core: int | None = None
    """A core of the row that is read in the map of cores; None where no row was chosen."""

    @property
    def weight(self) -> float:
        """Of the moving average; 0 is none."""
        return WEIGHTS[self.smoothing]

    def next_view(self, by: int = 1) -> ChartView:
        """The next view, or the one before."""
        return self._replace(kind=VIEWS[(VIEWS.index(self.kind) + by) % len(VIEWS)])

    def next_x(self) -> ChartView:
        """The next x axis."""
        return self._replace(x=X_KINDS[(X_KINDS.index(self.x) + 1) % len(X_KINDS)])

    def smoother(self, by: int) -> ChartView:
        """More smoothing, or less."""
        return self._replace(smoothing=min(max(self.smoothing + by, 0), len(WEIGHTS) - 1))

    def bounds(self, first: int, last: int) -> tuple[int, int]:
        """First and last step in sight of a run that has steps from `first` to `last`."""
        if self.window is None:
            return first, last
        span = min(self.window.span, last - first + 1)
        end = last if self.window.last is None else min(max(self.window.last, first + span - 1), last)
        return end - span + 1, end

    def zoomed(self, closer: bool, at: float | None, first: int, last: int) -> ChartView:
        """Half of the steps, or twice as many, around the cursor or `at`; the end stays where nothing is given.

        A window that ends at the newest step keeps following it.
        """
        low, high = self.bounds(first, last)
        span = high - low + 1
        wanted = max(round(span / ZOOM), LEAST_SPAN) if closer else round(span * ZOOM)
        if wanted >= (last - first + 1) * (1.0 if closer else ALL_FROM):
            return self._replace(window=None)
        centre = at if at is not None else self.cursor
        if centre is None or not low <= centre <= high:
            return self._with_end(high, wanted, first, last)
        share = (centre - low) / max(span - 1, 1)
        return self._with_end(round(centre + (1 - share) * (wanted - 1)), wanted, first, last)

    def panned(self, by: int, first: int, last: int) -> ChartView:
        """A quarter of what is in sight to the right, or to the left."""
        if self.window is None:
            return self
        low, high = self.bounds(first, last)
        span = high - low + 1
        return self._with_end(high + by * max(round(span * PAN), 1), span, first, last)

    def reading(self, step: int | None, first: int, last: int) -> ChartView:
        """The cursor at a step, and that step in sight."""
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

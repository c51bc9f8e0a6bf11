"""The view settings of a comparison, and what its panels draw.

View settings are immutable: every change returns new ones, so that they can be stored and undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui.compare.compare import Comparison
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import Split
from tputui.ui.charts.axis import X_KINDS, XKind
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.charts.y_range import YRange, ranges_of
from tputui.ui.render.lines import Tone

MeterKey = tuple[Split, str]
"""Split and name of a metric; scores belong to the validation split."""


TONES: tuple[Tone, ...] = ("run1", "run2", "run3", "run4", "run5", "run6", "run7", "run8")
"""Colour of each run, by its index."""


class CompareView(NamedTuple):
    """The view settings: base, hidden runs, metric, axes, smoothing, cursor."""

    num_runs: int
    base: int = 0
    """Index of the run that the others are compared to."""
    chosen: int = 0
    """Index of the selected run: keys act on it, and its curve is drawn on top."""
    hidden: frozenset[int] = frozenset()
    """Indices of the runs whose curves are hidden."""
    meter: MeterKey | None = None
    """The metric charted by epoch; None charts the training loss by step."""
    x: XKind = "step"
    log: bool = False
    smoothing: int = 0
    """Index into `smoothing.WEIGHTS`."""
    cursor: float | None = None
    """Position of the cursor on the x axis, in its unit."""
    ranges: tuple[tuple[str, YRange], ...] = ()
    """The y ranges that differ from the default, by metric, the newest change last."""

    @property
    def metric(self) -> str:
        """The name of the charted metric, as in the stored settings."""
        return "loss" if self.meter is None else " ".join(self.meter)

    @property
    def y(self) -> YRange:
        """The y range of the charted metric."""
        return dict(self.ranges).get(self.metric, YRange())

    def with_y(self, metric: str, y: YRange) -> CompareView:
        """Sets the y range of a metric."""
        others = tuple(one for one in self.ranges if one[0] != metric)
        return self._replace(ranges=others if y.kind == "robust" else (*others, (metric, y)))

    @property
    def weight(self) -> float:
        """Weight of the moving average; 0 disables smoothing."""
        return WEIGHTS[self.smoothing]

    @property
    def order(self) -> list[int]:
        """Indices of the runs, the base first."""
        return [self.base, *(index for index in range(self.num_runs) if index != self.base)]

    def with_stored(self, *, x: str, log: bool, smoothing: int, ranges: Sequence[str] = ()) -> CompareView:
        """With the settings of an earlier session; replaces invalid ones by defaults."""
        known: XKind = next((kind for kind in X_KINDS if kind == x), "step")
        weight = min(max(smoothing, 0), len(WEIGHTS) - 1)
        return self._replace(x=known, log=log, smoothing=weight, ranges=tuple(ranges_of(ranges)))

    def choose(self, by: int) -> CompareView:
        """Selects another run, wrapping around."""
        return self._replace(chosen=(self.chosen + by) % self.num_runs)

    def toggle(self) -> CompareView:
        """Hides or shows the selected run's curve; the last visible one stays."""
        hidden = self.hidden ^ {self.chosen}
        return self if len(hidden) == self.num_runs else self._replace(hidden=hidden)

    def rebase(self) -> CompareView:
        """Makes the selected run the base."""
        return self._replace(base=self.chosen)

    def next_x(self) -> CompareView:
        """The next x axis, without a cursor, whose position is in the unit of the old axis."""
        return self._replace(x=X_KINDS[(X_KINDS.index(self.x) + 1) % len(X_KINDS)], cursor=None)

    def next_meter(self, known: list[MeterKey], by: int) -> CompareView:
        """Cycles through the training loss and the metrics by epoch."""
        choices: list[MeterKey | None] = [None, *known]
        current = choices.index(self.meter) if self.meter in choices else 0
        return self._replace(meter=choices[(current + by) % len(choices)])

    def smoothed(self, by: int) -> CompareView:
        """More smoothing, or less."""
        return self._replace(smoothing=min(max(self.smoothing + by, 0), len(WEIGHTS) - 1))


class ComparedPart(NamedTuple):
    """The input of every panel."""

    comparison: Comparison
    snapshots: Sequence[Snapshot]
    view: CompareView
    unread: frozenset[int]
    """Indices of the runs that are still being read."""
    ascii_only: bool = False
    """Whether the terminal draws ASCII only."""

    def pretty(self, text: str) -> str:
        """Replaces `+-` by a plus-minus sign if the terminal can draw it."""
        return text if self.ascii_only else text.replace("+-", "\u00b1")

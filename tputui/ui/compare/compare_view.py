"""How a comparison is looked at: base, hidden runs, what is charted over what, where the cursor stands. Pure.

Every change gives a new value, so that a look can be kept, undone and tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui.compare.compare import Comparison
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import Split
from tputui.ui.charts.axis import X_KINDS, XKind
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.render.lines import Tone

MeterKey = tuple[Split, str]
"""A meter by its split and name; scores are of validation."""


TONES: tuple[Tone, ...] = ("run1", "run2", "run3", "run4", "run5", "run6", "run7", "run8")
"""By index of the run."""


class CompareView(NamedTuple):
    """How a comparison is looked at."""

    num_runs: int
    base: int = 0
    """Index of the run that the others are compared with."""
    chosen: int = 0
    """Index of the run that a key acts on; its curve is drawn on top."""
    hidden: frozenset[int] = frozenset()
    """Runs without a curve."""
    meter: MeterKey | None = None
    """What is charted by epoch; None is the loss of the steps."""
    x: XKind = "step"
    log: bool = False
    smoothing: int = 0
    """Which of `smooth.WEIGHTS`."""
    cursor: float | None = None
    """Place on the x axis at which values are read; None where there is no cursor."""

    @property
    def weight(self) -> float:
        """Of the moving average; 0 is none."""
        return WEIGHTS[self.smoothing]

    @property
    def order(self) -> list[int]:
        """Every run, the base first."""
        return [self.base, *(index for index in range(self.num_runs) if index != self.base)]

    def kept(self, *, x: str, log: bool, smoothing: int) -> CompareView:
        """As it was left in another session; what makes no sense any more is passed over."""
        known: XKind = next((kind for kind in X_KINDS if kind == x), "step")
        return self._replace(x=known, log=log, smoothing=min(max(smoothing, 0), len(WEIGHTS) - 1))

    def choose(self, by: int) -> CompareView:
        """Another run, around the ends."""
        return self._replace(chosen=(self.chosen + by) % self.num_runs)

    def toggle(self) -> CompareView:
        """The chosen run hidden, or shown again; one curve always stays."""
        hidden = self.hidden ^ {self.chosen}
        return self if len(hidden) == self.num_runs else self._replace(hidden=hidden)

    def rebase(self) -> CompareView:
        """The chosen run as the base."""
        return self._replace(base=self.chosen)

    def next_x(self) -> CompareView:
        """The next x axis; a place on the one before means nothing there."""
        return self._replace(x=X_KINDS[(X_KINDS.index(self.x) + 1) % len(X_KINDS)], cursor=None)

    def next_meter(self, known: list[MeterKey], by: int) -> CompareView:
        """The loss of the steps, then each meter by epoch, then the loss again."""
        choices: list[MeterKey | None] = [None, *known]
        at = choices.index(self.meter) if self.meter in choices else 0
        return self._replace(meter=choices[(at + by) % len(choices)])

    def smoother(self, by: int) -> CompareView:
        """More smoothing, or less."""
        return self._replace(smoothing=min(max(self.smoothing + by, 0), len(WEIGHTS) - 1))


class ComparedPart(NamedTuple):
    """What the panels show."""

    comparison: Comparison
    snapshots: Sequence[Snapshot]
    sight: CompareView
    unread: frozenset[int]
    """Runs that are still being read."""
    ascii_only: bool = False
    """Whether the terminal draws ASCII characters alone: one cell cannot say plus or minus then."""

    def pretty(self, text: str) -> str:
        """Plain text with the signs that the terminal can draw."""
        return text if self.ascii_only else text.replace("+-", "\u00b1")

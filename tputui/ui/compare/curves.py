"""The curves of runs that are compared: loss of the steps, or a meter by epoch, over the chosen x axis. Pure.

A run that lacks the axis or the meter has no curve, and says why.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui.compare.compare import LABELS, meter_points
from tputui.state.snapshot import ENDED, Snapshot
from tputui.ui.charts.domain import AxisInfo, Domain, XKind, grounds_of
from tputui.ui.charts.smoothing import smoothed
from tputui.ui.compare.compare_view import CompareView, MeterKey
from tputui.ui.render.lines import Tone

TONES: tuple[Tone, ...] = ("run1", "run2", "run3", "run4", "run5", "run6", "run7", "run8")
"""By index of the run."""


class Curve(NamedTuple):
    """A run's line."""

    run: int
    """Index of the run."""
    xs: list[float]
    """In order."""
    values: list[float]
    """What is drawn: smoothed where that was asked for. May be NaN or infinite."""
    raw: list[float]
    """As it was measured; empty where that is what is drawn."""
    bad: list[float]
    """Places with a value that is not finite."""

    @property
    def label(self) -> str:
        """The letter of its run."""
        return LABELS[self.run]

    @property
    def tone(self) -> Tone:
        """The colour of its run."""
        return TONES[self.run]

    def at(self, x: float) -> float | None:
        """The value nearest to a place; None outside of the curve."""
        if not self.xs or not self.xs[0] <= x <= self.xs[-1]:
            return None
        right = min(bisect.bisect_left(self.xs, x), len(self.xs) - 1)
        left = max(right - 1, 0)
        return self.values[left if x - self.xs[left] <= self.xs[right] - x else right]


class Curves(NamedTuple):
    """What there is to draw."""

    shown: list[Curve]
    """Of the runs in sight, in their order."""
    why_not: list[tuple[str, str]]
    """Label of a run in sight without a curve, and why."""


def known_meters(snapshots: Sequence[Snapshot]) -> list[MeterKey]:
    """What can be charted by epoch: validation before training."""
    found = dict.fromkeys(key for snapshot in snapshots for key in meter_points(snapshot))
    return sorted(found, key=lambda key: key[0] == "train")


def curves(snapshots: Sequence[Snapshot], sight: CompareView) -> Curves:
    """The curves of the runs that are not hidden."""
    shown: list[Curve] = []
    why_not: list[tuple[str, str]] = []
    for index, snapshot in enumerate(snapshots):
        if index in sight.hidden:
            continue
        found = _of_loss(index, snapshot, sight) if sight.meter is None else _of_meter(index, snapshot, sight)
        if isinstance(found, Curve):
            shown.append(found)
        else:
            why_not.append((LABELS[index], found))
    return Curves(shown, why_not)


def _of_loss(index: int, snapshot: Snapshot, sight: CompareView) -> Curve | str:
    segments, grounds = snapshot.loss, grounds_of(snapshot)
    if not segments:
        return _nothing(snapshot, "loss")
    why_not = grounds.why_not(sight.x, segments)
    if why_not:
        return why_not
    xs = Domain(segments, sight.x, grounds, 1).xs
    means = [segment.mean for segment in segments]
    bad = [x for x, segment in zip(xs, segments, strict=True) if segment.num_bad]
    if not sight.weight:
        return Curve(index, xs, means, [], bad)
    return Curve(index, xs, smoothed(segments, sight.weight), means, bad)


def _of_meter(index: int, snapshot: Snapshot, sight: CompareView) -> Curve | str:
    """A point an epoch that ended, where its last training step stands; smoothing is of steps alone."""
    assert sight.meter is not None
    points = meter_points(snapshot).get(sight.meter)
    if not points:
        return _nothing(snapshot, f"{sight.meter[1]} of an epoch")
    grounds = grounds_of(snapshot)
    if sight.x == "epoch":
        xs = [float(epoch) for epoch, _ in points]
    else:
        why_not = grounds.why_not(sight.x, snapshot.loss) or _no_steps(snapshot, grounds, sight.x)
        if why_not:
            return why_not
        domain = Domain(snapshot.loss, sight.x, grounds, 1)
        xs = [domain.at(epoch * grounds.steps_per_epoch) for epoch, _ in points]
    values = [value for _, value in points]
    return Curve(index, xs, values, [], [x for x, value in zip(xs, values, strict=True) if not math.isfinite(value)])


def _no_steps(snapshot: Snapshot, grounds: AxisInfo, x: XKind) -> str:
    if not grounds.steps_per_epoch:
        return "the steps of an epoch are not known yet"
    return "the times of the steps are not known" if x == "time" and not snapshot.loss else ""


def _nothing(snapshot: Snapshot, what: str) -> str:
    return f"no {what}" if snapshot.condition in ENDED else f"no {what} yet"

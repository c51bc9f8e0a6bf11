"""The core whose loss differs persistently from the other cores: one criterion for panels, charts and the header.

In each step a core is off if it is more than `OFF` median absolute deviations away from the median core. The loss of a
few examples has long tails, so in a healthy run every core is off in about every eighth step. A core is named only if
that persists: each step in which it is off on the same side adds one to its score, each other step takes `_FALL` away,
and it is named once the score reaches `NAMED`, so after 20 consecutive steps.

The mean over several steps scatters less than a single one. A column of them therefore counts as up to `_STEPS_MOST`
steps, as many as its distance is worth: k steps need `OFF` times the square root of k deviations. A single spike never
names a core, however high it is.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import replace

from tputui.state.aligned import split_work
from tputui.state.chart_data import Core, CoreColumn, OutlierView
from tputui.state.state_struct import CORES_MAX, Count, StateStruct

LEAST_CORES = 4
"""With fewer cores there is no majority to differ from."""
OFF = 3.0
"""Median absolute deviations from the median core."""
NAMED = 20
"""Steps."""
SMOOTHED = 5
"""Rows of times, which scatter, of whose median the newest one is judged by."""
LEAD = SMOOTHED // 2
"""Slow rows before the first one whose median is slow."""
_FALL = 4
_SCORE_MAX = 2 * NAMED
"""Limits the score, so that a core that was off for long is no longer named soon after it recovers."""
_STEPS_MOST = 4
_SAMPLED_EVERY = _FALL + 1
_SAMPLED_LEAST = NAMED // _SAMPLED_EVERY
"""A core that is named was off in at least so many of the steps that are multiples of `_SAMPLED_EVERY`: if it was not
off in m steps, it was in 20 + 4 m; the sample has m + 4 of these 20 + 5 m steps, of which at most m are the others. In
a healthy run the steps between need not be judged."""
_FLAGGED_MAX = 64
"""Cores stored per row; of thousands the farthest ones."""


class OutlierRow(NamedTuple):
    """The cores in one step, or in a column of several."""

    first_step: int
    last_step: int
    num_steps: int
    """Steps that the means are over."""
    off: Mapping[int, float]
    """By core that is off: its distance from the median core, in deviations and signed."""
    deviation: float
    """Median absolute deviation, in units of the loss."""
    median: float
    """Loss of the median core; NaN if no core has a finite one."""


def deviating_cores(first_step: int, last_step: int, num_steps: int, means: Sequence[float]) -> OutlierRow:
    """Finds the cores that are off in consecutive steps. `means`: [cores]; NaN and infinite ones are left out."""
    # A finite sum is that of finite values, which is much cheaper to test than each of them.
    values = sorted(means if math.isfinite(sum(means)) else filter(math.isfinite, means))
    median = median_of_sorted(values) if values else math.nan
    if len(values) < LEAST_CORES:
        return OutlierRow(first_step, last_step, num_steps, {}, 0.0, median)
    deviation = max(median_distance(values, median), 1e-9 * abs(median), 1e-300)
    low, high = median - OFF * deviation, median + OFF * deviation
    if values[0] >= low and values[-1] <= high:
        return OutlierRow(first_step, last_step, num_steps, {}, deviation, median)
    off = {
        core: (mean - median) / deviation
        for core, mean in enumerate(means)
        # Most are between, so they are compared first. NaN is not.
        if not low < mean < high and math.isfinite(mean) and abs(mean - median) > OFF * deviation
    }
    if len(off) > _FLAGGED_MAX:
        off = dict(heapq.nlargest(_FLAGGED_MAX, off.items(), key=lambda item: abs(item[1])))
    return OutlierRow(first_step, last_step, num_steps, off, deviation, median)


def slow_members(
    first_step: int, last_step: int, num_steps: int, seconds: Mapping[int, float], least: float
) -> OutlierRow:
    """Finds the cores or hosts that are slower than the median one by their times; `least`: the least deviation."""
    values = sorted(seconds.values())
    median = median_of_sorted(values)
    deviation = max(median_distance(values, median), least)
    limit = median + OFF * deviation
    is_any_off = values[-1] > limit
    off = {member: (s - median) / deviation for member, s in seconds.items() if s > limit} if is_any_off else {}
    return OutlierRow(first_step, last_step, num_steps, off, deviation, median)


def deviating_cores_of(column: CoreColumn) -> OutlierRow:
    return deviating_cores(column.first_step, column.last_step, column.num_steps, column.means)


class OutlierScore(StateStruct):
    """How long a core has been off on one side."""

    view: OutlierView
    value: Annotated[int, msgspec.Meta(ge=0, le=_SCORE_MAX)] = 0
    total: Count = 0
    named: bool = False

    def add(self, row: OutlierRow, deviations: float) -> None:
        steps = min(int((deviations / OFF) ** 2), row.num_steps, _STEPS_MOST)
        self.total += steps
        self.value = min(self.value + steps, _SCORE_MAX)
        by = max(self.view.by, deviations * row.deviation, key=abs)
        self.view = replace(self.view, last_step=row.last_step, by=by)
        self.named = self.named or self.value >= NAMED

    @property
    def rank(self) -> tuple[int, float, int]:
        """The core that was off for longest has the highest."""
        return self.total, abs(self.view.by), -self.view.core


_Scores = Annotated[dict[Core, OutlierScore], msgspec.Meta(max_length=CORES_MAX)]


class OutlierSearch(StateStruct):
    """Finds the core that was off for longest, one row after the other in order of steps."""

    above: _Scores = msgspec.field(default_factory=dict)
    """Cores that are above the others, by core."""
    below: _Scores = msgspec.field(default_factory=dict)
    recovered: OutlierScore | None = None
    """The named core that was off for longest, of those that have recovered."""
    lead: Annotated[int, msgspec.Meta(ge=0, lt=NAMED)] = 0
    """Steps for which a core has been off already when a row first shows it, since the rows are smoothed."""

    def add(self, row: OutlierRow) -> None:
        if row.off or self.above:
            self._add(self.above, row, {core: by for core, by in row.off.items() if by > 0})
        if row.off or self.below:
            self._add(self.below, row, {core: by for core, by in row.off.items() if by < 0})

    def _add(self, scores: _Scores, row: OutlierRow, off: Mapping[int, float]) -> None:
        fall = _FALL * min(row.num_steps, _STEPS_MOST)
        for core in scores.keys() - off.keys():
            score = scores[core]
            if score.value > fall:
                score.value -= fall
                continue
            del scores[core]
            if score.named and (self.recovered is None or score.rank > self.recovered.rank):
                self.recovered = score
        for core, deviations in off.items():
            if core not in scores:
                view = OutlierView(core=core, by=0.0, first_step=row.first_step, last_step=row.first_step)
                scores[core] = OutlierScore(view, value=self.lead, total=self.lead)
            scores[core].add(row, deviations)

    def outlier(self, *, now: bool = False) -> OutlierView | None:
        """The core that was off for longest; with `now` only one that still is."""
        named = [score for score in (*self.above.values(), *self.below.values()) if score.named]
        if not now and self.recovered is not None:
            named.append(self.recovered)
        return max(named, key=lambda score: score.rank).view if named else None


Losses = tuple[int, int, int, Sequence[float]]
"""First step, last step, number of steps, means."""
_JudgedLosses = tuple[Sequence[float], OutlierRow]
"""The means, and the cores that are off."""
_Judged = dict[tuple[int, int], _JudgedLosses]
"""By first and last step."""


class OutlierCache:
    """Finds the outlier of rows of which most were examined before; only those whose losses changed are judged."""

    def __init__(self) -> None:
        self._rows: _Judged = {}
        self._ahead: _Judged = {}
        self.is_behind = False
        """Whether some steps are still judged by what their losses were before."""

    def find(
        self, steps: Sequence[Losses], ahead: Iterable[Losses] = (), changed_max: int = sys.maxsize
    ) -> OutlierView | None:
        """The core that is off now. `steps` are in order; those `ahead` are judged for a later call.

        If more than `changed_max` steps have other losses than before, some of them are judged again by later calls;
        of those `ahead`, at most `changed_max` are judged by one call.
        """
        before, self._rows = self._rows, {}
        # An invalid run may have a step twice, of which the last one counts.
        newest = {losses[:2]: losses for losses in steps}
        changed = [key for key, losses in newest.items() if key in before and not _is_of(before[key], losses)]
        again, late = map(set, split_work(changed, changed_max))
        self.is_behind = bool(late)

        def judge(keys: Iterable[tuple[int, int]]) -> None:
            for key in keys:
                judged = before.get(key)
                if judged is None or key in again:
                    judged = _judged(newest[key], self._ahead)
                elif key not in late:
                    judged = _with_means(judged, newest[key])
                self._rows[key] = judged

        is_sampled = changed_max >= len(newest) and _are_successive(steps)
        judge([key for key in newest if key[0] % _SAMPLED_EVERY == 0] if is_sampled else newest)
        if is_sampled and max(self._steps_off().values(), default=0) >= _SAMPLED_LEAST:
            judge(newest.keys() - self._rows.keys())
        self._judge_ahead(ahead, changed_max)
        often = {core for (core, _), num_steps in self._steps_off().items() if num_steps >= NAMED}
        search = OutlierSearch()
        for key in newest if often else ():
            # Cores do not affect each other's scores.
            row = self._rows[key][1]
            search.add(row._replace(off={core: row.off[core] for core in often if core in row.off}))
        return search.outlier(now=True)

    def _steps_off(self) -> dict[tuple[int, bool], int]:
        """The judged steps in which each core was off, by core and whether it was above the others. Cheaper to know
        than the scores."""
        steps: dict[tuple[int, bool], int] = {}
        for _, row in self._rows.values():
            for core, deviations in row.off.items():
                side = (core, deviations > 0)
                steps[side] = steps.get(side, 0) + min(row.num_steps, _STEPS_MOST)
        return steps

    def _judge_ahead(self, ahead: Iterable[Losses], most: int) -> None:
        before, self._ahead = self._ahead, {}
        for losses in ahead:
            key = losses[:2]
            is_known = key in before and _is_of(before[key], losses)
            if is_known or most > 0:
                self._ahead[key] = _judged(losses, before)
                most -= not is_known


def _are_successive(steps: Sequence[Losses]) -> bool:
    """Whether the rows are single steps without a gap."""
    first = steps[0][0] if steps else 0
    return [row[:3] for row in steps] == [(step, step, 1) for step in range(first, first + len(steps))]


def _is_of(judged: _JudgedLosses, losses: Losses) -> bool:
    _, _, num_steps, means = losses
    return judged[1].num_steps == num_steps and (judged[0] is means or judged[0] == means)


def _with_means(judged: _JudgedLosses, losses: Losses) -> _JudgedLosses:
    """With the object of equal means that the next call is likely to have, which then need not be compared."""
    return judged if judged[0] is losses[3] else (losses[3], judged[1])


def _judged(losses: Losses, before: _Judged) -> _JudgedLosses:
    """The cores that are off, found again only if the losses are not those of `before`."""
    judged = before.get(losses[:2])
    if judged is not None and _is_of(judged, losses):
        return _with_means(judged, losses)
    return losses[3], deviating_cores(*losses)


def distance_of(values: Sequence[float], center: float, place: int) -> float:
    """The distance from `center` at a place among those of all values, in order. `values` are finite and sorted."""
    # The nearest values are neighbours, so they are found by bisection.
    first, most = 0, len(values) - place - 1
    while first < most:
        middle = (first + most) // 2
        if center - values[middle] > values[middle + place + 1] - center:
            first = middle + 1
        else:
            most = middle
    return max(abs(center - values[first]), abs(values[first + place] - center))


def median_distance(values: Sequence[float], center: float) -> float:
    """Median of the distances of sorted values, at least one, from a value."""
    middle = len(values) // 2
    upper = distance_of(values, center, middle)
    return upper if len(values) % 2 else (distance_of(values, center, middle - 1) + upper) / 2


def median_of_sorted(values: Sequence[float]) -> float:
    """Median of sorted values, at least one."""
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

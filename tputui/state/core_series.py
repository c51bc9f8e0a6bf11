"""The loss of each core over a run, bounded in memory and time however long the run and however many cores.

Consecutive steps are stored as columns with one mean per core; if there are too many columns, neighbours are joined in
pairs. That needs decoded values, and decoding all reports of a long run would take too long. So every report is added
up to `WHOLE_VALUES_MAX` values. After that reports are sampled: within the steps of a column the first report is
added, and the first with NaN or infinite values; of either kind at most one value in `SAMPLED_SHARE` is decoded for
this alone. Steps of reports that are left out belong to their column without counting in its means.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from tputui.state.chart_data import CoreColumn
from tputui.state.state_struct import AtLeastOne, Count, CountArray, FloatArray, StateStruct
from tputui.telemetry.events import Int, StepsRecorded

COLUMNS_MAX = 512
"""About two a column of the widest terminal."""
CELLS_MAX = 1 << 18
"""Means stored per run, 1 MB: with more cores there are fewer columns, but at least ..."""
COLUMNS_LEAST = 64
"""... this many."""
WHOLE_VALUES_MAX = 100_000
"""Values added of one process before reports are sampled."""
SAMPLED_SHARE = 64
"""After that, at most one value in this many is decoded for the columns."""


def columns_max(num_cores: int) -> int:
    """Columns that each host may store if all hosts together have `num_cores` cores."""
    return min(COLUMNS_MAX, max(COLUMNS_LEAST, CELLS_MAX // max(1, num_cores) // 2 * 2))


class CoreSeries(NamedTuple):
    """Steps `first` to `last`, of which `rows` were added."""

    first: Int
    last: Int
    rows: AtLeastOne
    means: FloatArray
    """[cores] mean of the finite values; NaN if there is none."""
    counts: CountArray | None
    """[cores] number of finite values; None if all are finite, so `rows`."""
    sampled_bad: bool
    """Whether a report with NaN or infinite values was added."""
    middle: float
    """Mean of the step numbers that were added."""

    @property
    def bad(self) -> list[int]:
        """Columns of the cores with a NaN or infinite value."""
        return [] if self.counts is None else [core for core, n in enumerate(self.counts) if n < self.rows]


class AllCoreSeries(StateStruct, dict=True):
    """The losses that one process recorded: one mean per core over consecutive steps."""

    most: Annotated[int, msgspec.Meta(ge=COLUMNS_LEAST, le=COLUMNS_MAX, multiple_of=2)] = COLUMNS_MAX
    """Columns that may be stored."""
    columns: Annotated[list[CoreSeries], msgspec.Meta(max_length=COLUMNS_MAX)] = msgspec.field(default_factory=list)
    count: Count = 0
    """Events added."""
    stride: AtLeastOne = 1
    """Steps that a column may span."""
    last: Int = 0
    """Newest step recorded."""
    seen: Count = 0
    """Values recorded."""
    taken: Count = 0
    """Values added to a column."""
    decoded: Annotated[list[Count], msgspec.Meta(min_length=2, max_length=2)] = msgspec.field(
        default_factory=lambda: [0, 0]
    )
    """Values decoded for the columns alone: of ordinary reports, and of reports with NaN or infinite values."""

    def __post_init__(self) -> None:
        self._views: list[tuple[CoreSeries, CoreColumn]] = []

    @property
    def views(self) -> list[CoreColumn]:
        """The columns as part of a snapshot. Unchanged columns give the same objects every time, so that ten snapshots
        a second cost only what changed."""
        views, shown = self._views, self.shown
        # Only the newest column is ever replaced, or all of them at once.
        same = min(len(views), len(shown))
        while same and views[same - 1][0] is not shown[same - 1]:
            same -= 1
        views[same:] = [(column, _shown(column, column.means, tuple(column.bad))) for column in shown[same:]]
        return [column for _, column in views]

    @property
    def shown(self) -> list[CoreSeries]:
        """The columns up to the newest step."""
        if not self.columns or self.columns[-1].last >= self.last:
            return self.columns
        return [*self.columns[:-1], self.columns[-1]._replace(last=self.last)]

    @property
    def width(self) -> int:
        """Number of cores; 0 before the first event."""
        return len(self.columns[-1].means) if self.columns else 0

    def take(
        self,
        event: StepsRecorded,
        values: Sequence[float] | None,
        decode: Callable[[StepsRecorded], Sequence[float] | None],
    ) -> None:
        """Adds an event. `values`: [n * cores], if they were decoded anyway; otherwise `decode` is called when they are
        needed, and returns None if they cannot be decoded."""
        self.count += 1
        size = event.n * event.cores
        self.seen += size
        last = event.first + event.n - 1
        opens = not self.columns or last - self.columns[-1].first >= self.stride
        odd = event.bad > 0 and not (self.columns and self.columns[-1].sampled_bad)
        if opens or odd or self.taken < WHOLE_VALUES_MAX:
            allowed = WHOLE_VALUES_MAX + self.seen // SAMPLED_SHARE
            if values is None and (self.decoded[odd] + size <= allowed or not self.columns):
                values = decode(event)
                self.decoded[odd] += size
            if values is not None:
                self.taken += size
                self._add(event, values)
        if last > self.last:
            self.last = last

    def _add(self, event: StepsRecorded, values: Sequence[float]) -> None:
        num_cores = event.cores
        if not self.columns:
            self.most = min(self.most, columns_max(num_cores))
        elif num_cores != len(self.columns[-1].means):
            return
        for row in range(0, event.n, self.stride):
            rows = min(self.stride, event.n - row)
            part = values[row * num_cores : (row + rows) * num_cores]
            self._push(_reduced(event.first + row, rows, part, num_cores))
        while len(self.columns) > self.most:
            self.stride *= 2
            self.columns = _widened(self.columns, self.stride)

    def _push(self, column: CoreSeries) -> None:
        if self.columns:
            newest = self.columns[-1]
            if newest.last < column.first and column.last - newest.first < self.stride:
                self.columns[-1] = _joined(newest, column)
                return
            # Steps that were left out since then belong to the previous column.
            self.columns[-1] = newest._replace(last=max(newest.last, column.first - 1))
        self.columns.append(column)


def combined(parts: Sequence[tuple[AllCoreSeries, Sequence[int]]]) -> list[CoreColumn]:
    """Combines the columns of several processes, in order of steps; `parts` pairs each with the cores of its values.

    The process with the fewest columns sets the steps; columns of the others are joined to the one in which they begin.
    """
    parts = [(columns, cores) for columns, cores in parts if columns.columns]
    num_cores = max((core + 1 for _, cores in parts for core in cores), default=0)
    if len(parts) == 1 and list(parts[0][1]) == list(range(num_cores)):
        return parts[0][0].views
    if not parts:
        return []
    frame = min((columns.shown for columns, _ in parts), key=len)
    edges = [column.first for column in frame]
    means = [array("f", [math.nan]) * num_cores for _ in frame]
    bad: list[list[int]] = [[] for _ in frame]
    for columns, cores in parts:
        for index, column in _gathered(columns.shown, edges).items():
            for core, mean in zip(cores, column.means, strict=False):
                means[index][core] = mean
            bad[index] += [cores[core] for core in column.bad if core < len(cores)]
    return [
        _shown(column, means[index], tuple(sorted(bad[index])))
        for index, column in enumerate(frame)
    ]  # fmt: skip


def rows(parts: Sequence[tuple[Sequence[tuple[int, Sequence[float]]], Sequence[int]]]) -> list[tuple[int, list[float]]]:
    """Combines the rows of several processes: (step, [cores]) for every step that all of them have, in order.

    `parts` pairs the rows of a process with the cores of its values.
    """
    steps = set.intersection(*({step for step, _ in found} for found, _ in parts)) if parts else set[int]()
    num_cores = max((core + 1 for _, cores in parts for core in cores), default=0)
    whole = {step: [math.nan] * num_cores for step in sorted(steps)}
    for found, cores in parts:
        for step, values in found:
            if step in whole:
                for core, value in zip(cores, values, strict=False):
                    whole[step][core] = value
    return list(whole.items())


def _gathered(columns: list[CoreSeries], edges: list[int]) -> dict[int, CoreSeries]:
    """Joins columns by the last of the ascending `edges` at or before their first step."""
    found: dict[int, CoreSeries] = {}
    for column in columns:
        index = max(0, bisect_right(edges, column.first) - 1)
        found[index] = _joined(found[index], column) if index in found else column
    return found


def _shown(column: CoreSeries, means: array[float], bad: tuple[int, ...]) -> CoreColumn:
    return CoreColumn(
        first_step=column.first,
        last_step=column.last,
        means=means,
        bad_cores=bad,
        num_steps=column.rows,
        middle=column.middle,
    )


def _reduced(first: int, rows: int, values: Sequence[float], num_cores: int) -> CoreSeries:
    """A column of `rows` steps from their values, [rows * cores]."""
    last, middle = first + rows - 1, first + (rows - 1) / 2
    means = array("f", [sum(values[core::num_cores]) / rows for core in range(num_cores)] if rows > 1 else values)
    if math.isfinite(sum(means)):
        return CoreSeries(first, last, rows, means, None, False, middle)
    counts = array("Q", [rows]) * num_cores
    for core, mean in enumerate(means):
        if not math.isfinite(mean):
            finite = [value for value in values[core::num_cores] if math.isfinite(value)]
            counts[core] = len(finite)
            means[core] = math.fsum(finite) / len(finite) if finite else math.nan
    return CoreSeries(first, last, rows, means, counts, True, middle)


def _widened(columns: list[CoreSeries], stride: int) -> list[CoreSeries]:
    """Joins neighbours that together span at most `stride` steps."""
    wide: list[CoreSeries] = []
    for column in columns:
        if wide and column.last - wide[-1].first < stride:
            wide[-1] = _joined(wide[-1], column)
        else:
            wide.append(column)
    return wide


def _joined(left: CoreSeries, right: CoreSeries) -> CoreSeries:
    """Joins two columns: means over all values of both."""
    rows = left.rows + right.rows
    first, last = min(left.first, right.first), max(left.last, right.last)
    share = right.rows / rows
    middle = left.middle + (right.middle - left.middle) * share
    if left.counts is None and right.counts is None:
        means = array("f", [a + (b - a) * share for a, b in zip(left.means, right.means, strict=True)])
        return CoreSeries(first, last, rows, means, None, False, middle)
    lefts, rights = _counts(left), _counts(right)
    counts = array("Q", [a + b for a, b in zip(lefts, rights, strict=True)])
    sides = zip(left.means, lefts, right.means, rights, counts, strict=True)
    means = array("f", [_mean(a, n, b, m, total) for a, n, b, m, total in sides])
    return CoreSeries(first, last, rows, means, counts, True, middle)


def _counts(column: CoreSeries) -> array[int]:
    return column.counts if column.counts is not None else array("Q", [column.rows]) * len(column.means)


def _mean(left: float, num_left: int, right: float, num_right: int, total: int) -> float:
    if not num_left:
        return right
    return left if not num_right else (left * num_left + right * num_right) / total

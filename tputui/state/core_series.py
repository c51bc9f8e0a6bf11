"""The loss of each core over a run, bounded in memory and time however long the run and however many cores.

Consecutive steps are stored as columns with one mean per core; if there are too many columns, neighbours are joined in
pairs. That needs decoded values, and decoding all reports of a long run would take too long. So every report is added
up to `WHOLE_VALUES_MAX` values. After that reports are sampled: within the steps of a column the first report is
added, and the first with NaN or infinite values; of either kind at most one value in `SAMPLED_SHARE` is decoded for
this alone. Steps of reports that are left out belong to their column without counting in its means.

The extremes of a column cover every report, also those left out: a report states the highest and the lowest of its
values, so at most the two reports with the extremes of a column are decoded, and only when the columns are shown or
encoded, or when many blocks are held for this.

An extreme can refer to the event that states it, and is located in its values only when that is needed.
"""

from __future__ import annotations

import functools
import math
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from tputui.state.aligned import AheadAligner, Aligner, Found
from tputui.state.chart_data import CoreColumn, CoreValue
from tputui.state.state_struct import (
    AtLeastOne,
    Converted,
    Count,
    CountArray,
    FloatArray,
    JoinedAhead,
    Record,
    StateStruct,
)
from tputui.telemetry import float_blocks
from tputui.telemetry.events import Int, StepsRecorded


class Extreme(Record, frozen=True):
    """A highest or lowest finite value."""

    value: float
    step: Int
    """The step of the value; the first step of its event if it is not located."""
    column: Count | None
    """Its index in the row of the event; None if it is not located yet, or cannot be."""


class Unlocated(Extreme, frozen=True):
    """An extreme that an event states, whose step and column are not known before the event is decoded."""

    event: StepsRecorded


class CoreSeries(Record, frozen=True):
    """Steps `first` to `last`, of which the values of `rows` were added."""

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
    high: Extreme | None = None
    """The highest finite value of all steps, also of those left out; None if there is none."""
    low: Extreme | None = None

    @property
    def bad(self) -> list[int]:
        """Columns of the cores with a NaN or infinite value."""
        return [] if self.counts is None else [core for core, n in enumerate(self.counts) if n < self.rows]


def reduced(
    first: int, rows: int, values: Sequence[float], num_cores: int, event: StepsRecorded | None = None
) -> CoreSeries:
    """A column of `rows` steps from their values, [rows * cores]; with extremes if the event that has them is given."""
    last, middle = first + rows - 1, first + (rows - 1) / 2
    means = float_blocks.float32(
        [sum(values[core::num_cores]) / rows for core in range(num_cores)] if rows > 1 else values
    )
    if math.isfinite(sum(means)):
        high, low = _extremes(first, values, values, event) if event is not None else (None, None)
        return CoreSeries(first, last, rows, means, None, False, middle, high, low)
    counts = array("Q", [rows]) * num_cores
    for core, mean in enumerate(means):
        if not math.isfinite(mean):
            finite = [value for value in values[core::num_cores] if math.isfinite(value)]
            counts[core] = len(finite)
            means[core] = math.fsum(finite) / len(finite) if finite else math.nan
    finite = list(filter(math.isfinite, values)) if event is not None else []
    high, low = _extremes(first, finite, values, event) if event is not None and finite else (None, None)
    return CoreSeries(first, last, rows, means, counts, True, middle, high, low)


def _extremes(
    first: int, finite: Sequence[float], values: Sequence[float], event: StepsRecorded
) -> tuple[Extreme, Extreme]:
    """The highest and the lowest of the `finite` values, located in all `values` from step `first` on."""
    high, low = _index_of(event.max, values), _index_of(event.min, values)
    high = values.index(max(finite)) if high is None else high
    low = values.index(min(finite)) if low is None else low
    high_row, high_column = divmod(high, event.cores)
    low_row, low_column = divmod(low, event.cores)
    return Extreme(values[high], first + high_row, high_column), Extreme(values[low], first + low_row, low_column)


def _index_of(stated: float, values: Sequence[float]) -> int | None:
    """Index of a finite float32 value; None if it is not there. Of thousands much faster than comparing them."""
    raw, wanted = array("f", values).tobytes(), array("f", [stated])
    place = raw.find(wanted.tobytes()) if math.isfinite(wanted[0]) else -1
    while place > 0 and place % wanted.itemsize:
        place = raw.find(wanted.tobytes(), place + 1)
    return place // wanted.itemsize if place >= 0 else None


def located(value: float, first: int, values: Sequence[float], num_cores: int) -> Extreme:
    """The extreme at its first occurrence in values from step `first` on, if it is there."""
    try:
        # As float32, like the values: a script may have stated a double.
        row, column = divmod(values.index(array("f", [value])[0]), num_cores)
    except (ValueError, OverflowError):
        return Extreme(value, first, 0 if len(values) == 1 else None)
    return Extreme(value, first + row, column)


def resolved(extreme: Extreme | None) -> Extreme | None:
    """The extreme, located in its event if it was not yet."""
    if not isinstance(extreme, Unlocated):
        return extreme
    event = extreme.event
    if event.n == event.cores == 1:
        return Extreme(extreme.value, event.first, 0)
    try:
        index = float_blocks.find(event.block, event.n * event.cores, extreme.value)
    except float_blocks.BlockError:
        index = None
    if index is None:
        return Extreme(extreme.value, extreme.step, None)
    row, column = divmod(index, event.cores)
    return Extreme(extreme.value, event.first + row, column)


def is_located(column: CoreSeries) -> bool:
    """Whether the step and the core of both extremes are known, as far as they can be."""
    return not (isinstance(column.high, Unlocated) or isinstance(column.low, Unlocated))


def joined(left: CoreSeries, right: CoreSeries) -> CoreSeries:
    """Joins two columns: means over all values of both, and the extremes of both."""
    rows = left.rows + right.rows
    first, last = min(left.first, right.first), max(left.last, right.last)
    share = right.rows / rows
    middle = left.middle + (right.middle - left.middle) * share
    high, low = left.high, left.low
    if high is None or (right.high is not None and right.high.value > high.value):
        high = right.high
    if low is None or (right.low is not None and right.low.value < low.value):
        low = right.low
    if left.counts is None and right.counts is None:
        means = array("f", [a + (b - a) * share for a, b in zip(left.means, right.means, strict=True)])
        return CoreSeries(first, last, rows, means, None, False, middle, high, low)
    lefts, rights = _counts(left), _counts(right)
    counts = array("Q", [a + b for a, b in zip(lefts, rights, strict=True)])
    sides = zip(left.means, lefts, right.means, rights, counts, strict=True)
    means = array("f", [_mean(a, n, b, m, total) for a, n, b, m, total in sides])
    return CoreSeries(first, last, rows, means, counts, True, middle, high, low)


def _counts(column: CoreSeries) -> array[int]:
    return column.counts if column.counts is not None else array("Q", [column.rows]) * len(column.means)


def _mean(left: float, num_left: int, right: float, num_right: int, total: int) -> float:
    if not num_left:
        return right
    return left if not num_right else (left * num_left + right * num_right) / total


COLUMNS_MAX = 512
"""About two a column of the widest terminal."""
CELLS_MAX = 1 << 18
"""Means stored per run, 1 MB: with more cores there are fewer columns, but at least ..."""
COLUMNS_LEAST = 64
"""... this many."""
WHOLE_VALUES_MAX = 100_000
"""Values added of one process before reports are sampled."""
SAMPLED_SHARE = 128
"""After that, at most one value in this many is decoded for the columns."""
HELD_CHARS_MAX = 4 << 20
"""Characters of blocks that are held until their extremes are located."""


def columns_max(num_cores: int) -> int:
    """Columns that each host may store if all hosts together have `num_cores` cores."""
    return min(COLUMNS_MAX, max(COLUMNS_LEAST, CELLS_MAX // max(1, num_cores) // 2 * 2))


class _Stated(NamedTuple):
    """An extreme that an event states."""

    value: float
    event: StepsRecorded | None
    values: Sequence[float] | None
    """Of the event, if they were decoded."""


_NO_HIGHEST, _NO_LOWEST = _Stated(-math.inf, None, None), _Stated(math.inf, None, None)


class AllCoreSeries(StateStruct, dict=True):
    """The losses that one process recorded: one mean per core over consecutive steps."""

    most: Annotated[int, msgspec.Meta(ge=COLUMNS_LEAST, le=COLUMNS_MAX, multiple_of=2)] = COLUMNS_MAX
    """Columns that may be stored."""
    columns: Annotated[list[CoreSeries], msgspec.Meta(max_length=COLUMNS_MAX)] = msgspec.field(default_factory=list)
    version: Count = 0
    """Grows with every change: the key of results that depend on the columns."""
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
        self._views: Converted[CoreSeries, CoreColumn] = Converted(_view)
        self._highest = _NO_HIGHEST
        """The highest value that events of the newest column stated since it was last sealed."""
        self._lowest = _NO_LOWEST
        self._held_chars = 0
        """Characters of the blocks of extremes that were not located yet, of those displaced since as well."""
        self.ahead: JoinedAhead[CoreSeries] = JoinedAhead()
        """The columns with twice the stride."""

    def fork(self) -> Self:
        self.locate_extremes()
        return super().fork()

    @property
    def views(self) -> list[CoreColumn]:
        return self._views.of(self.shown)

    @property
    def shown(self) -> list[CoreSeries]:
        """The columns up to the newest step."""
        self.locate_extremes()
        if not self.columns or self.columns[-1].last >= self.last:
            return self.columns
        return [*self.columns[:-1], replace(self.columns[-1], last=self.last)]

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
        self.version += 1
        size = event.n * event.cores
        self.seen += size
        last = event.first + event.n - 1
        newest = self.columns[-1] if self.columns else None
        opens = newest is None or last - newest.first >= self.stride
        odd = event.bad > 0 and not (newest is not None and newest.sampled_bad)
        added = False
        if opens or odd or self.taken < WHOLE_VALUES_MAX:
            allowed = WHOLE_VALUES_MAX + self.seen // SAMPLED_SHARE
            if values is None and (self.decoded[odd] + size <= allowed or newest is None):
                values = decode(event)
                self.decoded[odd] += size
            if values is not None:
                self.taken += size
                added = self._add(event, values)
        if not added or event.n <= self.stride:
            self._note_extremes(event, values)
        if added and len(self.columns) > self.most:
            self._thin()
        if last > self.last:
            self.last = last

    def cut(self, first_step: int) -> None:
        """Removes `first_step` and later ones; a column that also has earlier steps if most of it is later ones."""
        self.locate_extremes()
        self.columns = [_before(column, first_step) for column in self.columns if column.middle < first_step]
        self.ahead.restart()
        self.last = min(self.last, max(first_step - 1, 0))
        self.version += 1

    def locate_extremes(self) -> None:
        self._seal()
        if not self._held_chars:
            return
        self._held_chars = 0
        for index, column in enumerate(self.columns):
            if not is_located(column):
                self.columns[index] = replace(column, high=resolved(column.high), low=resolved(column.low))

    def _note_extremes(self, event: StepsRecorded, values: Sequence[float] | None) -> None:
        """Compares the extremes that an event states with those of the newest column, without decoding it."""
        if not self.columns or event.cores != len(self.columns[-1].means):
            return
        if self._highest.value < event.max < math.inf:
            self._highest = _Stated(event.max, event, values)
        if -math.inf < event.min < self._lowest.value:
            self._lowest = _Stated(event.min, event, values)

    def _seal(self) -> None:
        """Adds the extremes that were noted to the newest column."""
        highest, lowest = self._highest, self._lowest
        if highest.event is None and lowest.event is None:
            return
        self._highest, self._lowest = _NO_HIGHEST, _NO_LOWEST
        newest = self.columns[-1]
        high, low = newest.high, newest.low
        if high is None or highest.value > high.value:
            high = self._extreme(highest) or high
        if low is None or lowest.value < low.value:
            low = self._extreme(lowest) or low
        if high is not newest.high or low is not newest.low:
            self.columns[-1] = replace(newest, high=high, low=low)
        if self._held_chars > HELD_CHARS_MAX:
            self.locate_extremes()

    def _extreme(self, stated: _Stated) -> Extreme | None:
        value, event, values = stated
        if event is None:
            return None
        if values is not None:
            return located(value, event.first, values, event.cores)
        self._held_chars += len(event.block) + 1
        return Unlocated(value, event.first, None, event)

    def _thin(self) -> None:
        self._seal()
        while len(self.columns) > self.most:
            self.columns = self.ahead.finish(self.columns, self._widened)
            self.stride *= 2

    def _widened(self, left: CoreSeries, right: CoreSeries, _: int) -> CoreSeries | None:
        return joined(left, right) if right.last - left.first < 2 * self.stride else None

    def _add(self, event: StepsRecorded, values: Sequence[float]) -> bool:
        """Adds the values of an event to the columns; False if it has another number of cores."""
        num_cores = event.cores
        if not self.columns:
            self.most = min(self.most, columns_max(num_cores))
        elif num_cores != self.width:
            return False
        for row in range(0, event.n, self.stride):
            rows = min(self.stride, event.n - row)
            part = values[row * num_cores : (row + rows) * num_cores]
            self._push(reduced(event.first + row, rows, part, num_cores, event if event.n > self.stride else None))
        return True

    def _push(self, column: CoreSeries) -> None:
        if self.columns:
            self._seal()
            newest = self.columns[-1]
            joins = newest.last < column.first and column.last - newest.first < self.stride
            if joins:
                self.columns[-1] = joined(newest, column)
                return
            # Steps that were left out since then belong to the previous column.
            self.columns[-1] = replace(newest, last=max(newest.last, column.first - 1))
        self.columns.append(column)
        self.ahead.advance(self.columns, self._widened, is_located)


def _before(column: CoreSeries, first_step: int) -> CoreSeries:
    """A column without its steps from `first_step` on; its means still contain them."""
    if column.last < first_step:
        return column
    high, low = (
        extreme if extreme is not None and extreme.step < first_step else None for extreme in (column.high, column.low)
    )
    return replace(column, last=first_step - 1, high=high, low=low)


Parts = Sequence[tuple[AllCoreSeries, Sequence[int]]]
"""The losses that several processes recorded, each with the cores of its values."""


class CorePlaces:
    """Where the values of several processes are among those of all cores."""

    def __init__(self) -> None:
        self.cores: list[Sequence[int]] = []
        """By process: the cores of its values."""
        self.slices: list[slice | None] = []
        """The same as a slice of all, if they are neighbours."""
        self.num_cores = 0

    def update(self, cores_of: list[Sequence[int]]) -> bool:
        """Takes the cores of each process; returns whether they are others than before."""
        if cores_of == self.cores:
            return False
        self.cores, self.slices = cores_of, [_slice_of(cores) for cores in cores_of]
        self.num_cores = max((core + 1 for cores in cores_of for core in cores), default=0)
        return True

    def unknown(self) -> FloatArray:
        """[cores] NaN."""
        return array("f", [math.nan]) * self.num_cores

    def put(self, whole: FloatArray, process: int, values: FloatArray) -> None:
        """Writes the values of a process to their places in `whole`."""
        cores, neighbours = self.cores[process], self.slices[process]
        if neighbours is not None and len(cores) == len(values):
            whole[neighbours] = values
            return
        for core, value in zip(cores, values, strict=False):
            whole[core] = value


def _slice_of(cores: Sequence[int]) -> slice | None:
    if cores and all(after - core == 1 for core, after in pairwise(cores)):
        return slice(cores[0], cores[-1] + 1)
    return None


class CombinedColumns:
    """The columns of several processes, combined again where they have changed."""

    def __init__(self) -> None:
        self._aligner: AheadAligner[CoreSeries, CoreColumn] = AheadAligner(
            lambda: Aligner(attrgetter("first"), attrgetter("last"), self._column)
        )
        self._places = CorePlaces()
        self.is_behind = False
        """Whether some columns are as they were before their newest change."""

    def of(self, parts: Parts, names: object = None, most: int = sys.maxsize) -> list[CoreColumn]:
        """The columns in order of steps, on the cells of an `Aligner`, of which at most about `most` are combined
        again. `names`: the processes and their topologies."""
        parts = [(columns, cores) for columns, cores in parts if columns.columns]
        cores_of = [cores for _, cores in parts]
        self._places.update(cores_of)
        self.is_behind = False
        if len(parts) == 1 and self._places.slices[0] == slice(0, self._places.num_cores):
            return parts[0][0].views
        columns_found = self._aligner.cells((names, cores_of), [columns for columns, _ in parts], most)
        self.is_behind = self._aligner.is_behind
        return columns_found

    @property
    def ahead(self) -> list[CoreColumn]:
        """The columns of twice as many steps that are ready."""
        return self._aligner.ahead

    def _column(self, setting: CoreSeries, pieces: Found[CoreSeries]) -> CoreColumn:
        means = self._places.unknown()
        bad: list[int] = []
        highest: CoreValue | None = None
        lowest: CoreValue | None = None
        most, least = -math.inf, math.inf
        for part, columns in pieces:
            column = columns[0] if len(columns) == 1 else functools.reduce(joined, columns)
            cores = self._places.cores[part]
            self._places.put(means, part, column.means)
            if column.counts is not None:
                bad += [cores[core] for core in column.bad if core < len(cores)]
            high, low = column.high, column.low
            if high is not None and high.value > most and (named := _named(high, cores)):
                highest, most = named, high.value
            if low is not None and low.value < least and (named := _named(low, cores)):
                lowest, least = named, low.value
        return CoreColumn(
            first_step=setting.first,
            last_step=setting.last,
            means=means,
            bad_cores=tuple(sorted(bad)),
            num_steps=setting.rows,
            middle=setting.middle,
            highest=highest,
            lowest=lowest,
        )


def _view(column: CoreSeries) -> CoreColumn:
    cores = range(len(column.means))
    return CoreColumn(
        first_step=column.first,
        last_step=column.last,
        means=column.means,
        bad_cores=tuple(column.bad),
        num_steps=column.rows,
        middle=column.middle,
        highest=_named(column.high, cores),
        lowest=_named(column.low, cores),
    )


def _named(extreme: Extreme | None, cores: Sequence[int]) -> CoreValue | None:
    """An extreme with the global index of its core; None if its core is not known."""
    if extreme is None or extreme.column is None or extreme.column >= len(cores):
        return None
    return CoreValue(value=extreme.value, core=cores[extreme.column], step=extreme.step)

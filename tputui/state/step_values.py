"""The values of every step and core that one process reported: series, newest steps, NaN and infinite values.

Events are decoded only when their values are needed; why one cannot be decoded is stored as a sentence, never raised.
Bounded however long the run. No files and no clock here.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Self

import msgspec

from tputui import formatting as fmt
from tputui.state.chart_data import NonFinite, SlowCoreView
from tputui.state.core_series import AllCoreSeries, columns_max
from tputui.state.process_log import ProcessLog, Text
from tputui.state.series import Series, pieces_max
from tputui.state.slow_core import CORES_TIMED_MAX, ROWS_MAX, CoreRow, SlowCores
from tputui.state.state_struct import CORES_MAX, METRICS_MAX, Count, FloatArray, Metric, StateStruct, little_endian
from tputui.telemetry import float_blocks
from tputui.telemetry.events import COMPUTE_METRIC, INT_MAX, StepsRecorded, TopologyDeclared

NON_FINITE_MAX = 64
EVENT_VALUES_MAX = 1 << 24
"""More values than the longest journal line can contain; an event that claims more is invalid."""
UNREADABLE_MAX = 64
RECENT_ROWS_MAX = 64
"""Newest steps whose loss per core is stored, for the outlier test; fewer with many cores ..."""
RECENT_ROWS_LEAST = 24
"""... but at least this many."""
RECENT_VALUES_MAX = 1 << 15


class StepValues(StateStruct, dict=True):
    """The values of all steps that one process recorded."""

    series: Annotated[dict[Metric, Series], msgspec.Meta(max_length=METRICS_MAX)] = msgspec.field(default_factory=dict)
    newest: Annotated[dict[Metric, StepsRecorded], msgspec.Meta(max_length=METRICS_MAX)] = msgspec.field(
        default_factory=dict
    )
    """The newest event, by metric."""
    columns: AllCoreSeries = msgspec.field(default_factory=AllCoreSeries)
    """The loss of each core."""
    non_finite: Annotated[list[NonFinite], msgspec.Meta(max_length=NON_FINITE_MAX)] = msgspec.field(
        default_factory=list
    )
    num_non_finite: Count = 0
    unreadable: Annotated[dict[Count, Text], msgspec.Meta(max_length=UNREADABLE_MAX)] = msgspec.field(
        default_factory=dict
    )
    """Why an event cannot be decoded, by its sequence number."""
    recent: Annotated[list[CoreRow], msgspec.Meta(max_length=RECENT_ROWS_MAX)] = msgspec.field(default_factory=list)
    """The newest steps of the loss that were decoded; `recent_rows` adds those still pending."""
    slow: SlowCores = msgspec.field(default_factory=SlowCores)
    """The compute times of the cores."""

    def __post_init__(self) -> None:
        self.topology: TopologyDeclared | None = None
        """Set by the state of the process, which owns it."""
        self._pending: deque[tuple[StepsRecorded, FloatArray | None]] = deque()
        """Events after the newest of `recent`, with their values if these were decoded."""
        self._pending_rows = 0
        """Steps in them."""
        self._row: tuple[StepsRecorded, list[float] | None] | None = None
        """The event whose newest row was decoded last, and that row."""
        self._values: tuple[StepsRecorded, FloatArray] | None = None
        """The event that was decoded last, and its values."""

    def fork(self) -> Self:
        self.recent_rows()
        return super().fork()

    def declare(self, topology: TopologyDeclared) -> None:
        """Sets the cores of the run, and sizes the columns for them."""
        self.topology = topology
        if not self.columns.width:
            self.columns = AllCoreSeries(
                columns_max(max(topology.num_cores, *(core + 1 for core in topology.cores), 1))
            )

    def take(self, seq: int, event: StepsRecorded, log: ProcessLog, newest_t: float | None) -> None:
        """Adds a valid event. `newest_t` (unix time) replaces a time that is not finite."""
        if event.metric not in self.series:
            if len(self.series) >= METRICS_MAX:
                return
            self.series[event.metric] = Series(pieces_max(self.topology.num_hosts if self.topology else 1))
        series = self.series[event.metric]
        self.newest[event.metric] = event
        self.num_non_finite += event.bad
        if not math.isfinite(event.t):
            event = msgspec.structs.replace(event, t=newest_t or 0.0)
        find_bad = event.bad > 0 and len(self.non_finite) < NON_FINITE_MAX
        is_timed = event.metric == COMPUTE_METRIC and event.cores <= CORES_TIMED_MAX
        values = self._decoded(seq, event) if find_bad or is_timed or series.wants_values(event) else None
        series.add(event, values)
        if event.metric == "loss":
            self.columns.take(event, values, lambda recorded: self._decoded(seq, recorded))
            decoded = self._values[1] if self._values is not None and self._values[0] is event else None
            self._pending.append((event, decoded))
            self._values = None
            self._pending_rows += event.n
            self._forget_rows(rows_most(event.cores))
        if is_timed and values is not None:
            self._add_times(event, values, log)
        if event.bad or log.marks.was_bad:
            log.marks.add_non_finite(event, values, self.core_of)
        if find_bad and values is not None:
            self._keep_bad(event, values, log)

    def cut(self, first_step: int) -> None:
        """Removes the values of `first_step` and later ones, which are trained again."""
        self.recent = [row for row in self.recent_rows() if row.step < first_step]
        self.newest = {name: event for name, event in self.newest.items() if event.first + event.n <= first_step}
        self.columns.cut(first_step)
        self.non_finite = [bad for bad in self.non_finite if bad.step < first_step]
        removed = sum(series.cut(first_step) for series in self.series.values())
        self.num_non_finite = max(self.num_non_finite - removed, len(self.non_finite))
        self.slow = SlowCores()
        self._row = None

    def time_of(self, step: int) -> float | None:
        """Unix time at which the loss of a step was reported; None if it was not."""
        series = self.series.get("loss")
        return series.time_of(step) if series is not None else None

    def _add_times(self, event: StepsRecorded, values: Sequence[float], log: ProcessLog) -> None:
        """Adds compute times, [steps * cores]; a core that is named by them gets a warning and a mark."""
        for row in range(max(event.n - ROWS_MAX, 0), event.n):
            step = event.first + row
            slow = self.slow.add(step, array("f", values[row * event.cores : (row + 1) * event.cores]))
            if slow is not None:
                core = self.core_of(slow.core, event.cores)
                text = f"core {core} is {fmt.slower(slow.share)} than the others since step {slow.first_step:,}"
                log.warn(event.t, text, step)

    @property
    def slow_core(self) -> SlowCoreView | None:
        """The core that is slower than the others now."""
        slow = self.slow.slow_core
        if slow is None:
            return None
        return msgspec.structs.replace(slow, core=self.core_of(slow.core, len(self.slow.rows[-1].values)))

    def core_of(self, column: int, num_columns: int) -> int:
        """Global index of the core whose values are in a column."""
        return self.cores_of(num_columns)[column]

    def cores_of(self, num_columns: int) -> Sequence[int]:
        """Global core index of each column of an event with `num_columns` columns."""
        if self.topology is not None and len(self.topology.cores) == num_columns:
            return self.topology.cores
        return range(num_columns)

    def newest_row(self, metric: str = "loss") -> list[float] | None:
        """Values of the newest step, [cores]; None if there are none or they cannot be decoded."""
        event = self.newest.get(metric)
        if event is None:
            return None
        if self._row is None or self._row[0] is not event:
            self._row = (event, self._last_row(event))
        return self._row[1]

    def _last_row(self, event: StepsRecorded) -> list[float] | None:
        if is_exact(event):
            return [event.mean]
        if event.metric == "loss" and (recent := self.recent_rows()):
            # Decoded for the outlier test, and not a second time.
            row = recent[-1]
            if row.step == event.first + event.n - 1 and len(row.values) == event.cores:
                return row.values.tolist()
        try:
            return float_blocks.unpack(event.block, event.n * event.cores)[-event.cores :].tolist()
        except float_blocks.BlockError:
            return None

    def recent_rows(self) -> list[CoreRow]:
        """Loss of every core in the newest steps, in order; at most `RECENT_ROWS_MAX` rows."""
        self._pending_rows = 0
        while self._pending:
            event, decoded = self._pending.popleft()
            most, num_cores = rows_most(event.cores), event.cores
            try:
                values = decoded if decoded is not None else float_blocks.unpack(event.block, event.n * num_cores)
            except float_blocks.BlockError:
                self.recent = []
                continue
            if self.recent and len(self.recent[-1].values) != num_cores:
                self.recent = []
            for row in range(max(event.n - most, 0), event.n):
                self.recent.append(CoreRow(event.first + row, values[row * num_cores : (row + 1) * num_cores]))
            del self.recent[:-most]
        return self.recent

    def normalize(self) -> None:
        """Reduces the newest events to their last step, decodes pending ones and locates the extremes.

        Afterwards equal values have equal encodings, whether or not they were shown, and however a journal stores them.
        """
        self.recent_rows()
        self.columns.locate_extremes()
        for metric, event in self.newest.items():
            self.newest[metric] = _last_step(event, self.newest_row(metric))

    def _forget_rows(self, most: int) -> None:
        """Drops events before they are decoded if the newest `most` steps do not need them."""
        if self._pending_rows >= most:
            self.recent = []
        while self._pending_rows - self._pending[0][0].n >= most:
            self._pending_rows -= self._pending.popleft()[0].n

    def _decoded(self, seq: int, event: StepsRecorded) -> Sequence[float] | None:
        try:
            decoded = float_blocks.unpack(event.block, event.n * event.cores)
            # Not as a list, which of a report of thousands of steps is larger than the caches of a processor.
            values = [event.mean] if is_exact(event) else decoded
            self._values, self._row = (event, decoded), (event, list(values[-event.cores :]))
            return values
        except float_blocks.BlockError as error:
            last = event.first + event.n - 1
            self.add_unreadable(seq, f"the values of steps {event.first} to {last} cannot be read: {error}")
            return None

    def add_unreadable(self, seq: int, why: str) -> None:
        """Stores why event `seq` cannot be decoded."""
        if len(self.unreadable) < UNREADABLE_MAX:
            self.unreadable[seq] = why

    def _keep_bad(self, event: StepsRecorded, values: Sequence[float], log: ProcessLog) -> None:
        for index, value in enumerate(values):
            if not math.isfinite(value):
                row, column = divmod(index, event.cores)
                core, step = self.core_of(column, event.cores), event.first + row
                if not self.non_finite:
                    row_values = values[index - column : index - column + event.cores]
                    num_bad = sum(not math.isfinite(other) for other in row_values)
                    where = f"core {core}" if num_bad == 1 else f"{num_bad} cores"
                    where = f"all {num_bad} cores" if num_bad == event.cores > 1 else where
                    text = f"first non-finite {event.metric}: {fmt.number(value)} on {where} at step {step:,}"
                    log.add_line(event.t, text, "warning")
                self.non_finite.append(NonFinite(core=core, step=step, metric=event.metric, value=value))
                if len(self.non_finite) >= NON_FINITE_MAX:
                    return


def _last_step(event: StepsRecorded, row: list[float] | None) -> StepsRecorded:
    """The last step of an event as an event of its own; row: [cores], or None if it cannot be decoded."""
    last = event.first + event.n - 1
    if row is None:
        return msgspec.structs.replace(event, first=last, n=1, bad=min(event.bad, event.cores), block="")
    mean, least, greatest, bad = float_blocks.summarise(row)
    block = float_blocks.pack_plain(little_endian(float_blocks.float32(row)).tobytes())
    return msgspec.structs.replace(
        event, first=last, n=1, mean=mean, min=least, max=greatest, bad=bad, block=block
    )  # fmt: skip


@functools.lru_cache(maxsize=64)
def rows_most(num_cores: int) -> int:
    """Newest steps that are stored for the outlier test."""
    return max(RECENT_ROWS_LEAST, min(RECENT_ROWS_MAX, RECENT_VALUES_MAX // num_cores))


def is_exact(event: StepsRecorded) -> bool:
    """Whether an event has a single finite value, so that its mean is this value also if it is beyond float32."""
    return event.n == event.cores == 1 and not event.bad and math.isfinite(event.mean)


def makes_sense(event: StepsRecorded | TopologyDeclared) -> bool:
    """Whether the counts of an event are consistent and within the limits."""
    if isinstance(event, TopologyDeclared):
        are_valid = all(0 <= core < CORES_MAX for core in event.cores) and len(set(event.cores)) == len(event.cores)
        return 0 <= event.num_cores <= CORES_MAX and are_valid
    num_values = event.n * event.cores
    counts = event.n >= 1 and 1 <= event.cores <= CORES_MAX and num_values <= EVENT_VALUES_MAX
    counts = counts and event.first <= INT_MAX - event.n + 1
    return counts and 0 <= event.bad <= num_values

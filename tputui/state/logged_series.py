"""The metrics that a script logged itself: a series of values for each name and split, bounded however long the run.

Values are reduced in the order of the log, so steps may repeat or go back, as after a restart. Minimum, maximum and the
number of NaN and infinite values are preserved. No files and no clock here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from tputui.state.chart_data import LoggedView, Segment
from tputui.state.series import Piece, combined_pieces, reduced
from tputui.state.state_struct import POINTS_MAX, Count, Downsampled, Metric, StateStruct
from tputui.telemetry import float_blocks, logged_values
from tputui.telemetry.events import Int, Split, ValuesLogged
from tputui.telemetry.float_blocks import BlockError
from tputui.telemetry.logged_values import LoggedColumns, class_of

NAMES_MAX = 256
"""Metrics per process that are stored ..."""
NAMES_MAX_OF_CLASS = (NAMES_MAX + 96, NAMES_MAX + 64, NAMES_MAX)
"""... with losses and validation values that appear later, by the class of `metric_names`."""
DECODED_VALUES_MAX = 500_000
"""Values decoded for one series: about 0.2 s of work. Later events are added by their summary."""
TEXT_CHARS_MAX = 1_000
SPLITS: tuple[Split, ...] = ("train", "valid")


class LoggedSeries(StateStruct, dict=True):
    """The values of one metric and split."""

    tag: Metric = ""
    source: Metric = ""
    points: Downsampled[Piece] = msgspec.field(default_factory=Downsampled)
    """In the order of the log, by number of values; each has the newest time of its values, 0 if unknown."""
    decoded: Count = 0
    """Values decoded for this series."""
    value: float = math.nan
    """The newest value, with its step, time and epoch."""
    step: Int = 0
    t: float = math.nan
    epoch: float = math.nan
    counted: bool = False
    """Whether all steps only count its values."""
    x: Metric = ""
    """The x axis that the author chose; empty for steps."""

    def __post_init__(self) -> None:
        self._shown: tuple[int, list[Segment]] | None = None

    def add(self, event: ValuesLogged) -> None:
        """Adds a valid event: by its values while the series resolves them, else by its summary.

        Raises `BlockError` if the values cannot be decoded; the event is then added by its summary.
        """
        self.tag, self.source = event.tag[:TEXT_CHARS_MAX], event.source[:TEXT_CHARS_MAX]
        self.x = event.x[:TEXT_CHARS_MAX]
        self.counted = event.counted and (self.counted or not self.points.items)
        # Values that were damaged in their log arrive late.
        if not event.value_t < self.t:
            self.value, self.step, self.t, self.epoch = event.value, event.step, event.value_t, event.epoch
        if event.n < 2 * self.points.stride or self.decoded + event.n > DECODED_VALUES_MAX:
            self.points.add(_summary(event), Piece.join, event.n)
            return
        try:
            columns = logged_values.unpack(event)
        except BlockError:
            self.points.add(_summary(event), Piece.join, event.n)
            raise
        self.decoded += event.n
        for piece, num_values in _pieces(columns, self.points.stride):
            self.points.add(piece, Piece.join, num_values)

    def view(self, name: str, split: Split) -> LoggedView:
        """The series as part of a snapshot."""
        pieces = self.points.items
        finite = [piece for piece in pieces if piece.num_values]
        return LoggedView(
            name=name,
            split=split,
            tag=self.tag,
            source=self.source,
            value=self.value,
            step=self.step,
            t=self.t if math.isfinite(self.t) else None,
            epoch=self.epoch if math.isfinite(self.epoch) else None,
            num_values=sum(piece.num_values for piece in pieces),
            num_bad=sum(piece.num_bad for piece in pieces),
            min=min((piece.least for piece in finite), default=math.nan),
            max=max((piece.greatest for piece in finite), default=math.nan),
            points=self._points(),
            counted=self.counted,
            x=self.x,
        )

    def _points(self) -> list[Segment]:
        """The pieces by step. Computed again only after an event, as snapshots are built ten times a second."""
        version = self.points.version
        if self._shown is None or self._shown[0] != version:
            ordered = sorted(self.points.items, key=lambda piece: (piece.last, piece.first))
            self._shown = (version, [piece.to_segment() for piece in ordered])
        return self._shown[1]


class LoggedMetrics(StateStruct):
    """All metrics that one process logged."""

    series: Annotated[dict[Metric, dict[Split, LoggedSeries]], msgspec.Meta(max_length=NAMES_MAX_OF_CLASS[0])] = (
        msgspec.field(default_factory=dict)
    )
    """By name and split; names in the order in which they came."""

    def add(self, event: ValuesLogged) -> bool:
        """Adds a valid event; returns False if there are too many names already. Raises `BlockError`."""
        name = event.name[:TEXT_CHARS_MAX]
        if name not in self.series:
            if len(self.series) >= NAMES_MAX_OF_CLASS[class_of(name, event.split)]:
                return False
            self.series[name] = {}
        of_splits = self.series[name]
        if event.split not in of_splits:
            of_splits[event.split] = LoggedSeries()
        of_splits[event.split].add(event)
        return True

    def items(self) -> Iterator[tuple[str, Split, LoggedSeries]]:
        """All series with their names and splits, training before validation."""
        for name, of_splits in self.series.items():
            for split in SPLITS:
                if split in of_splits:
                    yield name, split, of_splits[split]

    @property
    def version(self) -> int:
        """Grows with every change."""
        return sum(series.points.version for of_splits in self.series.values() for series in of_splits.values())


def combined_view(name: str, split: Split, parts: Sequence[LoggedSeries]) -> LoggedView:
    """A metric that several processes log, as part of a snapshot: the mean of their newest values, and all values."""
    views = [part.view(name, split) for part in parts]
    if len(views) == 1:
        return views[0]
    newest = max(views, key=lambda view: view.step)
    return msgspec.structs.replace(
        views[0],
        value=float_blocks.mean([view.value for view in views]),
        step=newest.step,
        t=newest.t,
        epoch=newest.epoch,
        num_values=sum(view.num_values for view in views),
        num_bad=sum(view.num_bad for view in views),
        min=min((view.min for view in views if not math.isnan(view.min)), default=math.nan),
        max=max((view.max for view in views if not math.isnan(view.max)), default=math.nan),
        points=combined_pieces([part.points.items for part in parts], POINTS_MAX),
    )


def _summary(event: ValuesLogged) -> Piece:
    t = event.value_t if math.isfinite(event.value_t) else 0.0
    if event.n == 1:
        return reduced(event.step, event.step, [event.value], t)
    num_values = event.n - event.bad
    if not (num_values and math.isfinite(event.mean)):
        return Piece(event.first_step, event.last_step, 0.0, math.inf, -math.inf, 0, event.bad, t)
    total = event.mean * num_values
    return Piece(event.first_step, event.last_step, total, event.min, event.max, num_values, event.bad, t)


def _pieces(columns: LoggedColumns, stride: int) -> Iterator[tuple[Piece, int]]:
    """The values of an event as pieces of `stride` values, and the number of values in each."""
    num_values, times = len(columns.values), columns.times
    for first in range(0, num_values, stride):
        part = slice(first, min(first + stride, num_values))
        steps: Sequence[int] = columns.steps[part]
        t = times[part][-1] if times is not None else 0.0
        values = columns.values[part]
        yield reduced(min(steps), max(steps), values, t if math.isfinite(t) else 0.0), len(values)

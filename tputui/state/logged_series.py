"""The metrics that a script logged itself: a series of values for each name and split, bounded however long the run.

Values are reduced in the order of the log, so steps may repeat or go back, as after a restart. Minimum, maximum and the
number of NaN and infinite values are preserved. No files and no clock here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, overload

import msgspec

from tputui.state.chart_data import LoggedView, Segment
from tputui.state.series import Piece, combined_pieces, reduced, summarised
from tputui.state.state_struct import POINTS_MAX, Count, Downsampled, Metric, StateStruct
from tputui.telemetry import float_blocks, logged_values
from tputui.telemetry.events import Int, Split, ValuesLogged
from tputui.telemetry.float_blocks import BlockError
from tputui.telemetry.logged_values import LoggedColumns, class_of

NAMES_MAX = 8_192
"""Metrics per process that are stored ..."""
NAMES_MAX_OF_CLASS = (NAMES_MAX + 96, NAMES_MAX + 64, NAMES_MAX)
"""... with losses and validation values that appear later, by the class of `metric_names`."""
PIECES_OF_ALL_MAX = 320_000
"""Pieces of all series of a process, about 200 bytes each, so 64 MB: 512 pieces of each of up to 625 series, and half
as many whenever their number has doubled, so 64 of each of 5,000."""
DECODED_VALUES_MAX = 500_000
"""Values decoded for one series with 512 pieces: about 0.2 s of work. Later events are added by their summary."""
TEXT_CHARS_MAX = 1_000
SPLITS: tuple[Split, ...] = ("train", "valid")


def pieces_of_each(num_series: int) -> int:
    """The most pieces of a series, of which all have the same number."""
    most = POINTS_MAX
    while most > 2 and most * num_series > PIECES_OF_ALL_MAX:
        most //= 2
    return most


class LoggedSeries(StateStruct, dict=True):
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
    whole: Piece | None = None
    """All values together."""
    x: Metric = ""
    """The x axis that the author chose; empty for steps."""

    def __post_init__(self) -> None:
        self._shown: tuple[int, LoggedView] | None = None

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
        decoded_max = DECODED_VALUES_MAX * self.points.most // POINTS_MAX
        if event.n < 2 * self.points.stride or self.decoded + event.n > decoded_max:
            self._add_piece(_summary(event), event.n)
            return
        try:
            columns = logged_values.unpack(event)
        except BlockError:
            self._add_piece(_summary(event), event.n)
            raise
        self.decoded += event.n
        stride, most = self.points.stride, self.points.most
        while not self.points.items and stride * most < event.n:
            stride *= 2  # The values of neighbours would be joined at once.
        self.points.stride = stride
        for piece, num_values in _pieces(columns, stride):
            self._add_piece(piece, num_values)

    def _add_piece(self, piece: Piece, num_values: int) -> None:
        self.whole = piece if self.whole is None else self.whole.join(piece)
        self.points.add(piece, Piece.join, num_values)

    def view(self, name: str, split: Split) -> LoggedView:
        """The series as part of a snapshot: the same object until its next value."""
        if self._shown is None or self._shown[0] != self.points.version or self._shown[1].name != name:
            self._shown = (self.points.version, self._view(name, split))
        return self._shown[1]

    def _view(self, name: str, split: Split) -> LoggedView:
        whole = self.whole
        assert whole is not None
        has_values = whole.num_values > 0
        return LoggedView(
            name=name,
            split=split,
            tag=self.tag,
            source=self.source,
            value=self.value,
            step=self.step,
            t=self.t if math.isfinite(self.t) else None,
            epoch=self.epoch if math.isfinite(self.epoch) else None,
            num_values=whole.num_values,
            num_bad=whole.num_bad,
            min=whole.least if has_values else math.nan,
            max=whole.greatest if has_values else math.nan,
            points=LoggedCurve(self.points.items, whole),
            counted=self.counted,
            x=self.x,
        )


class LoggedMetrics(StateStruct, dict=True):
    series: Annotated[dict[Metric, dict[Split, LoggedSeries]], msgspec.Meta(max_length=NAMES_MAX_OF_CLASS[0])] = (
        msgspec.field(default_factory=dict)
    )
    """By name and split; names in the order in which they came."""

    def __post_init__(self) -> None:
        self._num_series = sum(map(len, self.series.values()))
        self.version = sum(series.points.version for *_, series in self.items())
        """Grows with every change."""

    def add(self, event: ValuesLogged) -> bool:
        """Adds a valid event; returns False if there are too many names already. Raises `BlockError`."""
        name = event.name[:TEXT_CHARS_MAX]
        of_splits = self.series.get(name)
        if of_splits is None:
            if len(self.series) >= NAMES_MAX_OF_CLASS[class_of(name, event.split)]:
                return False
            of_splits = self.series[name] = {}
        series = of_splits.get(event.split)
        if series is None:
            series = of_splits[event.split] = self._new_series()
        before = series.points.version
        try:
            series.add(event)
        finally:
            self.version += series.points.version - before
        return True

    def _new_series(self) -> LoggedSeries:
        most = pieces_of_each(self._num_series + 1)
        if most < pieces_of_each(self._num_series):
            for *_, series in self.items():
                series.points.limit(most, Piece.join)
        self._num_series += 1
        return LoggedSeries(points=Downsampled(most=most))

    def items(self) -> Iterator[tuple[str, Split, LoggedSeries]]:
        """All series with their names and splits, training before validation."""
        for name, of_splits in self.series.items():
            for split in SPLITS:
                if split in of_splits:
                    yield name, split, of_splits[split]


class LoggedCurve(Sequence[Segment]):
    """The pieces of a series at a moment as segments by step, made when they are read for the first time: of thousands
    of series a screen draws dozens."""

    def __init__(self, items: list[Piece], whole: Piece) -> None:
        # The list only grows and replaces its newest item, or is replaced itself, so the others stay as they are.
        self._items, self._num, self._newest = items, len(items), items[-1]
        self.steps = (whole.first, whole.last)
        """The first and the last step."""
        self._made: list[Segment] | None = None

    @property
    def _segments(self) -> list[Segment]:
        if self._made is None:
            pieces = sorted([*self._items[: self._num - 1], self._newest], key=lambda piece: (piece.last, piece.first))
            self._made = [piece.to_segment() for piece in pieces]
        return self._made

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, place: int) -> Segment: ...
    @overload
    def __getitem__(self, place: slice) -> list[Segment]: ...
    def __getitem__(self, place: int | slice) -> Segment | list[Segment]:
        return self._segments[place]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Sequence) and self._segments == list(other))

    __hash__ = None  # type: ignore[assignment]  # as a list


def first_and_last(points: Sequence[Segment]) -> tuple[int, int]:
    """The first and the last step of a series that is not empty."""
    return points.steps if isinstance(points, LoggedCurve) else (points[0].first_step, points[-1].last_step)


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
    if event.n == 1 and math.isfinite(value := event.value):
        return Piece(event.step, event.step, value, value, value, 1, 0, t)
    if event.n == 1:
        return reduced(event.step, event.step, [event.value], t)
    return summarised(event, event.first_step, event.last_step, event.n - event.bad, t)


def _pieces(columns: LoggedColumns, stride: int) -> Iterator[tuple[Piece, int]]:
    """The values of an event as pieces of `stride` values, and the number of values in each."""
    num_values, times = len(columns.values), columns.times
    for first in range(0, num_values, stride):
        part = slice(first, min(first + stride, num_values))
        t = times[part.stop - 1] if times is not None else 0.0
        t = t if math.isfinite(t) else 0.0
        value = columns.values[first]
        if stride == 1 and math.isfinite(value):
            step = columns.steps[first]
            yield Piece(step, step, value, value, value, 1, 0, t), 1
            continue
        steps: Sequence[int] = columns.steps[part]
        values = columns.values[part]
        yield reduced(min(steps), max(steps), values, t), len(values)

"""A series of values over steps, bounded in memory however long the run.

Consecutive steps are stored as pieces with their minimum, maximum and mean, so a one-step spike or a single NaN is
never lost. If there are too many pieces, neighbours are joined in pairs. The result depends on the events alone, not
on how they arrived.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tputui.state.aligned import AheadAligner, Aligner, Found
from tputui.state.chart_data import Segment
from tputui.state.state_struct import AtLeastOne, Converted, Count, JoinedAhead, Record, StateStruct, join_pairs
from tputui.telemetry import float_blocks
from tputui.telemetry.events import StepsRecorded, ValuesLogged

PIECES_MAX = 2_048
"""Several times the dots of the widest terminal."""
PIECES_OF_ALL_MAX = 8_192
"""Of all hosts together, since they are combined ten times a second; but at least ..."""
PIECES_LEAST = 128
"""... this many per host."""
DECODED_VALUES_MAX = 2_000_000
"""Values decoded for one series: about 0.2 s of work. Later events are added by their summary."""


class Piece(Record, frozen=True):
    """Consecutive steps, reduced. Without a finite value `least` is +inf and `greatest` is -inf."""

    first: int
    last: int
    total: float
    least: float
    greatest: float
    num_values: int
    num_bad: int
    t: float = 0.0
    """Unix time at which its last step was reported."""

    def join(self, other: Piece) -> Piece:
        # Comparisons instead of min and max: opening a long run takes ten thousand joins.
        later = other.last >= self.last
        return Piece(
            self.first if self.first <= other.first else other.first,
            other.last if later else self.last,
            self.total + other.total,
            self.least if self.least <= other.least else other.least,
            self.greatest if self.greatest >= other.greatest else other.greatest,
            self.num_values + other.num_values,
            self.num_bad + other.num_bad,
            other.t if later else self.t,
        )

    @property
    def _mean(self) -> float:
        mean = self.total / self.num_values
        # Each value may be a float, and their sum none.
        return mean if math.isfinite(mean) else self.least / 2 + self.greatest / 2

    def to_segment(self) -> Segment:
        has_values = self.num_values > 0
        return Segment(
            first_step=self.first,
            last_step=self.last,
            mean=self._mean if has_values else math.nan,
            min=self.least if has_values else math.nan,
            max=self.greatest if has_values else math.nan,
            num_values=self.num_values,
            num_bad=self.num_bad,
            t=self.t,
        )


class Series(StateStruct, dict=True):
    """The values of one metric that one process recorded."""

    pieces_max: Annotated[int, msgspec.Meta(ge=PIECES_LEAST, le=PIECES_MAX)] = PIECES_MAX
    pieces: Annotated[list[Piece], msgspec.Meta(max_length=PIECES_MAX)] = msgspec.field(default_factory=list)
    version: Count = 0
    """Grows with every change: the key of results that depend on the pieces."""
    stride: AtLeastOne = 1
    """Steps that a piece may span."""
    decoded: Count = 0
    """Values decoded for this series."""

    def __post_init__(self) -> None:
        self._segments: Converted[Piece, Segment] = Converted(Piece.to_segment)
        self.ahead: JoinedAhead[Piece] = JoinedAhead()
        """The pieces with twice the stride."""

    def wants_values(self, event: StepsRecorded) -> bool:
        """Whether the event spans at least two pieces, so that its values are worth decoding."""
        return event.n >= 2 * self.stride and self.decoded + event.n * event.cores <= DECODED_VALUES_MAX

    def add(self, event: StepsRecorded, values: Sequence[float] | None) -> None:
        """Adds an event: by its values, [n * cores], if given, else by its summary."""
        self.version += 1
        if values is None or event.n < 2 * self.stride:
            self._push(_summary(event))
        else:
            self.decoded += len(values)
            for row in range(0, event.n, self.stride):
                last = min(row + self.stride, event.n)
                part = values[row * event.cores : last * event.cores]
                self._push(reduced(event.first + row, event.first + last - 1, part, event.t))
        while len(self.pieces) > self.pieces_max:
            self.pieces = self.ahead.finish(self.pieces, _pair)
            self.stride *= 2

    def cut(self, first_step: int) -> int:
        """Removes `first_step` and later ones; returns the number of NaN and infinite values that they had.

        A piece that also contains earlier steps is removed if most of it is later ones.
        """
        kept = [
            piece for piece in self.pieces if piece.first + piece.last < 2 * first_step and piece.first < first_step
        ]
        removed = sum(piece.num_bad for piece in self.pieces) - sum(piece.num_bad for piece in kept)
        self.pieces = [piece if piece.last < first_step else replace(piece, last=first_step - 1) for piece in kept]
        self.ahead.restart()
        self.version += 1
        return removed

    def time_of(self, step: int) -> float | None:
        """Unix time at which a step was reported; None if it was not."""
        return next((piece.t for piece in reversed(self.pieces) if piece.first <= step <= piece.last), None)

    @property
    def shown(self) -> list[Piece]:
        return self.pieces

    @property
    def segments(self) -> list[Segment]:
        return self._segments.of(self.pieces)

    def _push(self, piece: Piece) -> None:
        if self.pieces:
            newest = self.pieces[-1]
            if newest.last < piece.first and piece.last - newest.first < self.stride:
                self.pieces[-1] = newest.join(piece)
                return
        self.pieces.append(piece)
        self.ahead.advance(self.pieces, _pair)


def _pair(left: Piece, right: Piece, index: int) -> Piece | None:
    return left.join(right) if index % 2 else None


PieceAligner = AheadAligner[Piece, tuple[Piece, Segment]]


def pieces_max(num_hosts: int) -> int:
    """Pieces that each of `num_hosts` hosts may store."""
    return min(PIECES_MAX, max(PIECES_LEAST, PIECES_OF_ALL_MAX // max(1, num_hosts)))


def combined(
    series: Sequence[Series],
    segments_max: int = PIECES_MAX,
    aligner: PieceAligner | None = None,
    names: object = None,
    most: int = sys.maxsize,
) -> list[Segment]:
    """Combines the series of several processes, in order of steps, on the cells of an `Aligner`.

    `aligner`: that of an earlier call for the series with the same `names`, if only what has changed is to be combined,
    and of that at most about `most` cells.
    """
    if len(series) == 1:
        return series[0].segments
    return _segments((aligner or piece_aligner()).cells(names, series, most), segments_max)


def combined_pieces(parts: Sequence[list[Piece]], segments_max: int) -> list[Segment]:
    """Combines the pieces of several series like `combined`."""
    return _segments(_aligner().cells(None, parts), segments_max)


def _segments(cells: Sequence[tuple[Piece, Segment]], segments_max: int) -> list[Segment]:
    if len(cells) <= segments_max:
        return [segment for _, segment in cells]
    pieces = [piece for piece, _ in cells]
    while len(pieces) > segments_max:
        pieces = join_pairs(pieces, Piece.join)
    return [piece.to_segment() for piece in pieces]


def piece_aligner() -> PieceAligner:
    """Combines pieces, and shows the result as part of a snapshot."""
    return AheadAligner(_aligner)


def _aligner() -> Aligner[Piece, tuple[Piece, Segment]]:
    return Aligner(attrgetter("first"), attrgetter("last"), _joined)


def _joined(setting: Piece, pieces_found: Found[Piece]) -> tuple[Piece, Segment]:
    # As many joins would make a piece for each of hundreds of hosts.
    first, last, t = setting.first, setting.last, setting.t
    total, least, greatest, num_values, num_bad = 0.0, math.inf, -math.inf, 0, 0
    for _, pieces in pieces_found:
        for piece in pieces:
            if piece.first < first:
                first = piece.first
            if piece.last > last:
                last, t = piece.last, piece.t
            elif piece.last == last and piece.t > t:
                t = piece.t
            if piece.least < least:
                least = piece.least
            if piece.greatest > greatest:
                greatest = piece.greatest
            total += piece.total
            num_values += piece.num_values
            num_bad += piece.num_bad
    piece = Piece(first, last, total, least, greatest, num_values, num_bad, t)
    return piece, piece.to_segment()


def _summary(event: StepsRecorded) -> Piece:
    last, num_values = event.first + event.n - 1, event.n * event.cores - event.bad
    return summarised(event, event.first, last, num_values, event.t)


def summarised(event: StepsRecorded | ValuesLogged, first: int, last: int, num_values: int, t: float) -> Piece:
    """The steps of an event as a piece, by the mean and the extremes of its finite values."""
    if num_values <= 0 or not math.isfinite(event.mean):
        return Piece(first, last, 0.0, math.inf, -math.inf, 0, event.bad, t)
    return Piece(first, last, event.mean * num_values, event.min, event.max, num_values, event.bad, t)


def reduced(first: int, last: int, values: Sequence[float], t: float) -> Piece:
    """The values of consecutive steps as a piece."""
    try:
        total = math.fsum(values)
    except (ValueError, OverflowError):
        total = math.nan
    if math.isfinite(total):
        return Piece(first, last, total, min(values), max(values), len(values), 0, t)
    mean, least, greatest, bad = float_blocks.summarise(values)
    num_values = len(values) - bad
    if not num_values:
        return Piece(first, last, 0.0, math.inf, -math.inf, 0, bad, t)
    return Piece(first, last, mean * num_values, least, greatest, num_values, bad, t)

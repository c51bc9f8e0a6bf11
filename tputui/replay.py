"""What steers the replay of a recorded run: which moment is played, how fast, and when the recording begins and ends.

The ends are found by reading the first and the last record of each journal, so that opening a long run costs nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir
from tputui.telemetry.codec import DamagedLine, Record, decode
from tputui.telemetry.journal import LINE_BYTES_MAX, Tail
from tputui.telemetry.sealed import SealedTail

_CHUNK_BYTES = 1 << 16


class Span(NamedTuple):
    """From when to when a writer spoke, in unix time."""

    writer: str
    start: float
    end: float


class Player:
    """The moment of a recording that is played. Moves with the clock of the one who watches."""

    def __init__(self, spans: list[Span], speed: float, clock: Callable[[], float]) -> None:
        """Plays from the start at once. Raises `ValueError` on a speed that is not more than 0."""
        self.spans = spans
        self.start = min((span.start for span in spans), default=0.0)
        """Unix time of the first fact."""
        self.end = max((span.end for span in spans), default=0.0)
        """Unix time of the last fact."""
        self._clock = clock
        self._speed = _checked(speed)
        self._playing = True
        self._anchor = self.start
        self._anchor_clock = clock()

    @property
    def position(self) -> float:
        """The moment played, in unix time of the recording."""
        if not self._playing:
            return self._anchor
        gone = (self._clock() - self._anchor_clock) * self._speed
        return min(self.end, max(self.start, self._anchor + gone))

    @property
    def at_end(self) -> bool:
        """Whether the recording is through."""
        return self.position >= self.end

    @property
    def playing(self) -> bool:
        """Whether the moment moves."""
        return self._playing and not self.at_end

    @property
    def speed(self) -> float:
        """Seconds of the recording played in a second."""
        return self._speed

    def pause(self) -> None:
        """Stays at this moment."""
        self._move(self.position)
        self._playing = False

    def play(self) -> None:
        """Goes on; from the start where the recording is through."""
        self._move(self.start if self.at_end else self.position)
        self._playing = True

    def seek(self, t: float) -> None:
        """Goes to a moment, in unix time, within the recording."""
        self._move(min(self.end, max(self.start, t)))

    def set_speed(self, speed: float) -> None:
        """Plays on at another speed. Raises `ValueError` where it is not more than 0."""
        self._move(self.position)
        self._speed = _checked(speed)

    def _move(self, t: float) -> None:
        self._anchor = t
        self._anchor_clock = self._clock()


def spans(run_dir: Path) -> list[Span]:
    """From when to when each writer of a run spoke; nothing of a writer without a readable record."""
    found: list[Span] = []
    try:
        paths = list(rundir.journal_paths(run_dir))
    except OSError:
        return found
    for writer, path in paths:
        try:
            times = _sealed_times(path) if path.name.endswith(rundir.SEALED_SUFFIX) else _plain_times(path)
        except OSError:
            continue
        if times is not None:
            found.append(Span(writer, *times))
    return found


def _checked(speed: float) -> float:
    if not (math.isfinite(speed) and speed > 0):
        raise ValueError(f"speed {speed:g} must be more than 0")
    return speed


def _plain_times(path: Path) -> tuple[float, float] | None:
    tail = Tail(path)
    try:
        times: list[float] = []
        while not times and tail.position.offset < tail.position.size:
            times = _times(tail.read(_CHUNK_BYTES))
    finally:
        tail.close()
    last = next((t for line in _lines_from_the_end(path) if (t := _time_of(line)) is not None), None)
    return None if last is None or not times else (times[0], max(times[0], last))


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, last one first."""
    with path.open("rb", buffering=0) as file:
        start = file.seek(0, os.SEEK_END)
        held = b""
        while start > 0:
            size = min(_CHUNK_BYTES, start)
            start -= size
            file.seek(start)
            held = file.read(size) + held
            head, *lines = held.split(b"\n")
            yield from reversed(lines)
            held = head if len(head) <= LINE_BYTES_MAX else b""
        yield held


def _time_of(line: bytes) -> float | None:
    """The time of a sound line that is whole."""
    try:
        t = decode(line).event.t if line else math.nan
    except DamagedLine:
        return None
    return t if math.isfinite(t) else None


def _sealed_times(path: Path) -> tuple[float, float] | None:
    tail = SealedTail(path)
    try:
        times = _times(tail.read())
        tail.to_last_frame()
        while records := tail.read():
            times += _times(records)
    finally:
        tail.close()
    return (times[0], max(times[0], times[-1])) if times else None


def _times(records: list[Record]) -> list[float]:
    return [record.event.t for record in records if math.isfinite(record.event.t)]

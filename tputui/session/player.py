"""Controls which moment of a run is shown, and finds the time range of a recording.

The range is found by reading the first and the last event of each journal, so that opening a long run is fast.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir
from tputui.telemetry.codec import DamagedLine, NumberedEvent, decode
from tputui.telemetry.compressed import CompressedTail
from tputui.telemetry.events import JITTER_S, JournalOpened, is_time, run_time
from tputui.telemetry.files import data_extents, reading
from tputui.telemetry.journal import LINE_BYTES_MAX, Tail
from tputui.telemetry.merge import HostClocks, JournalTail, corrected_range, events_of, open_tail

_CHUNK_BYTES = 1 << 16
_SAMPLE_BYTES = 1 << 20
_SAMPLES_MAX = 256


class JournalSpan(NamedTuple):
    """First and last unix time of a journal."""

    writer: str
    start: float
    end: float


class Reach(NamedTuple):
    """Time range in which a run can be played, in unix time."""

    start: float
    end: float
    growing: bool = False
    """Whether the end moves because the run goes on."""


SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Speeds to choose from."""


class Player:
    """The moment of a run that is shown; it moves with the clock of the viewer.

    In a followed run the moment is the present, until the user seeks back; playing on from there may reach the present
    again.
    """

    def __init__(
        self, reach: Callable[[], Reach], clock: Callable[[], float], *, speed: float = 1.0, follows: bool = False
    ) -> None:
        """Plays from the start, or `follows` the end. Raises `ValueError` if the speed is not positive."""
        self._reach = reach
        self._clock = clock
        self._speed = _checked(speed)
        self._follows = follows
        """Whether the run is followed."""
        self._live = follows
        self._playing = True
        self._anchor = reach().start
        self._anchor_clock = clock()

    @property
    def start(self) -> float:
        """Unix time of the first event."""
        return self._reach().start

    @property
    def end(self) -> float:
        """Unix time of the last event, or the present while the run goes on."""
        return self._reach().end

    @property
    def position(self) -> float:
        """The shown moment, in unix time of the run."""
        reach = self._reach()
        return reach.end if self._live else self._at(reach)

    @property
    def at_end(self) -> bool:
        reach = self._reach()
        return self._live or self._at(reach) >= reach.end

    @property
    def playing(self) -> bool:
        """Whether the moment moves."""
        reach = self._reach()
        return reach.growing if self._live else self._playing and self._at(reach) < reach.end

    @property
    def live(self) -> bool:
        """Whether the present is shown; never in a recording."""
        return self._live

    @property
    def follows(self) -> bool:
        """Whether the run is followed, also while its past is shown; false in a recording."""
        return self._follows

    @property
    def speed(self) -> float:
        """Seconds of the run per second."""
        return self._speed

    def pause(self) -> None:
        """Stops at the current moment."""
        self._move(self.position)
        self._playing = self._live = False

    def play(self) -> None:
        """Plays on; from the start if the moment is the end of a recording."""
        if self._live and self._reach().growing:
            return
        self._move(self.start if self.at_end else self.position)
        self._playing, self._live = True, False

    def seek(self, t: float) -> None:
        """Moves to a unix time within the run. A player that shows the present pauses there."""
        reach = self._reach()
        if self._follows and t >= reach.end:
            self.follow()
            return
        if self._live:
            self._playing = self._live = False
        self._move(min(reach.end, max(reach.start, t)))

    def follow(self) -> None:
        """Returns to the present; in a recording, to its end."""
        self._move(self.end)
        self._live = self._follows

    def set_speed(self, speed: float) -> None:
        """Sets the speed. Raises `ValueError` if it is not positive."""
        speed = _checked(speed)
        self._move(self.position)
        self._speed = speed

    def catch_up(self) -> None:
        """Follows the present again if playing has reached it."""
        if self._follows and not self._live and self._playing and self.at_end:
            self.follow()

    def _at(self, reach: Reach) -> float:
        """The moment, if the present is not followed."""
        gone = (self._clock() - self._anchor_clock) * self._speed if self._playing else 0.0
        return min(reach.end, max(reach.start, self._anchor + gone))

    def _move(self, t: float) -> None:
        self._anchor = t
        self._anchor_clock = self._clock()


def reach_of(spans: list[JournalSpan]) -> Reach:
    """The time range of all journals."""
    return Reach(min((span.start for span in spans), default=0.0), max((span.end for span in spans), default=0.0))


def spans(run_dir: Path) -> list[JournalSpan]:
    """The time range of each journal; journals without a readable event are left out."""
    journal_spans: list[JournalSpan] = []
    clocks = HostClocks(run_dir)
    try:
        paths = list(rundir.journal_paths(run_dir))
    except OSError:
        return journal_spans
    has_others = any(writer.startswith("supervisor-") and writer != "supervisor-0" for writer, _ in paths)
    for writer, path in paths:
        try:
            times = _sealed_times(path) if path.name.endswith(rundir.SEALED_SUFFIX) else _plain_times(path)
            if times is not None and has_others:
                times = corrected_range(clocks, _host_index(path), *times)
        except OSError:
            continue
        if times is not None:
            journal_spans.append(JournalSpan(writer, *times))
    return journal_spans


def _host_index(path: Path) -> int:
    """Index of the host that wrote a journal; 0 if its head cannot be read."""
    with contextlib.closing(open_tail(path)) as tail:
        events = tail.read(_CHUNK_BYTES)
    head = events[0].event if events else None
    return head.host_index if isinstance(head, JournalOpened) else 0


def _checked(speed: float) -> float:
    if not (math.isfinite(speed) and speed > 0):
        raise ValueError(f"speed {speed:g} must be more than 0")
    return speed


def _plain_times(path: Path) -> tuple[float, float] | None:
    with contextlib.closing(Tail(path)) as tail:
        times: list[float] = []
        while not times and tail.position.offset < tail.position.size:
            times = _times(tail.read(_CHUNK_BYTES))
    journal_id = tail.bookmark.journal_id
    last = next((t for line in _lines_from_the_end(path) if (t := _time_of(line, journal_id)) is not None), None)
    if last is None or not times:
        return None
    spread_times = [times[0], *_sampled_times(path, journal_id), last]
    if all(after >= before - JITTER_S for before, after in itertools.pairwise(spread_times)):
        return times[0], max(times[0], last)
    return _whole_times(Tail(path), times[0])


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, last one first, without empty ones: a damaged file may have millions."""
    with reading(path) as fd:
        # Pieces of a line whose start is not found yet, last one first; joined once, since a line may be long.
        held: list[bytes] = []
        num_held = 0
        for piece in _pieces_from_the_end(fd):
            head, *lines = piece.split(b"\n")
            if lines:
                yield b"".join([lines[-1], *reversed(held)])
                yield from filter(None, reversed(lines[:-1]))
                held, num_held = [], 0
            held.append(head)
            num_held += len(head)
            if num_held > LINE_BYTES_MAX:
                held, num_held = [], 0
        yield b"".join(reversed(held))


def _pieces_from_the_end(fd: int) -> Iterator[bytes]:
    """The content of a file in pieces, last piece first, without holes."""
    for first, end in reversed(data_extents(fd)):
        start = end
        while start > first:
            size = min(_CHUNK_BYTES, start - first)
            start -= size
            yield os.pread(fd, size, start)


def _time_of(line: bytes, journal_id: str | None) -> float | None:
    """The time of a valid line of this journal; else None."""
    try:
        numbered = decode(line)
    except DamagedLine:
        return None
    return numbered.event.t if numbered.journal_id == journal_id and is_time(numbered.event.t) else None


def _sampled_times(path: Path, journal_id: str | None) -> list[float]:
    """Times of a few events spread over a journal, in order, which show whether the clock was set back."""
    times: list[float] = []
    with reading(path) as fd:
        size = os.fstat(fd).st_size
        step = max(_SAMPLE_BYTES, size // _SAMPLES_MAX)
        for start in range(step, size, step):
            lines = os.pread(fd, _CHUNK_BYTES, start).split(b"\n", 2)
            t = _time_of(lines[1], journal_id) if len(lines) == 3 else None
            if t is not None:
                times.append(t)
    return times


def _whole_times(tail: JournalTail, start: float) -> tuple[float, float]:
    """Time range of a journal in which the clock was set back; reads every event."""
    newest_t, set_back_s = start, 0.0
    with contextlib.closing(tail):
        for numbered in events_of(tail):
            t, set_back_s = run_time(numbered.event.t, newest_t, set_back_s)
            newest_t = t if t > newest_t else newest_t
    return start, newest_t


def _sealed_times(path: Path) -> tuple[float, float] | None:
    with contextlib.closing(CompressedTail(path)) as tail:
        times = _times(tail.read())
        tail.to_last_frame()
        while events := tail.read():
            times += _times(events)
    if not times:
        return None
    if times[-1] < times[0] - JITTER_S:
        return _whole_times(CompressedTail(path), times[0])
    return times[0], max(times[0], times[-1])


def _times(events: list[NumberedEvent]) -> list[float]:
    return [numbered.event.t for numbered in events if is_time(numbered.event.t)]


SKEW_S = 5.0
"""Difference of another host's clock, in seconds, from which it is corrected; heartbeats arrive up to a second late."""


class Present:
    """Now in the time of a run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives the unix time of the viewer."""
        self._clock = clock
        self.ahead_s: float | None = None
        """Seconds that the clock of the hosts is ahead of this one, as the connection to them measured it."""
        self.set_s = 0.0
        """Seconds by which the clock of this host was set forward since the run began here."""
        self._skew_s = 0.0
        """Seconds that another host's clock is ahead beyond that, measured when an event arrived."""
        self._caught_up_t = clock()
        """Time of the viewer at which the journals were last read to their end."""

    def note_caught_up(self) -> None:
        """Notes that the journals were read to their end."""
        self._caught_up_t = self._clock()

    def measure_skew(self, newest_t: float) -> None:
        """Measures the clock of another host by an event that just arrived: it was written after the journals were
        last read to their end."""
        ahead_s = newest_t - self.now()
        behind_s = self._of_run(self._caught_up_t) - newest_t
        skew_s = ahead_s if ahead_s > 0 else -max(behind_s, 0.0)
        self._skew_s = skew_s if abs(skew_s) > SKEW_S else 0.0

    def now(self) -> float:
        """The unix time by the clock that the processes of the run have, if that is known."""
        return self._of_run(self._clock())

    def elsewhere(self, heard: float | None) -> float:
        """Now for processes of other hosts; `heard`: time of the viewer after which nothing is known of them."""
        now = self._clock()
        return self._of_run(now if heard is None else min(now, heard)) + self._skew_s

    def _of_run(self, t: float) -> float:
        return t + (self.ahead_s if self.ahead_s is not None else -self.set_s)

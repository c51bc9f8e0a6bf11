"""The clocks of the hosts of a run: corrects the times of their journals to the clock of the first host.

The supervisor of a host records now and then how far its clock is ahead (`ClockMeasured`). A measurement holds for the
events from `DELAY_S` after it, and the first one also for all before. The delay makes the result the same for every
reader: by then the measurement is in the file, whatever a reader reads first. Without a measurement times stay as they
are. A corrected time never goes back at a measurement: if the clock was set forward since the one before, times wait
until they are right again. Journals are untrusted input, so the measurements that are stored are bounded.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import msgspec

from tputui.telemetry import logged_values
from tputui.telemetry.codec import NumberedEvent
from tputui.telemetry.compressed import CompressedTail
from tputui.telemetry.events import ClockMeasured, Event, JournalOpened, ValuesLogged, is_time
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.line_search import LineSearch
from tputui.telemetry.rundir import SEALED_SUFFIX

DELAY_S = 10.0
MEASUREMENTS_MAX = 4_096
"""Measurements of a host that are stored; one is made every few minutes."""


class HostClock:
    """The clock of one host."""

    def __init__(self, run_dir: Path, host_index: int) -> None:
        self._search = LineSearch(run_dir / f"supervisor-{host_index}{SUFFIX}", ClockMeasured)
        self._sealed = run_dir / f"supervisor-{host_index}{SEALED_SUFFIX}"
        self._is_read = False
        """Whether the sealed journal was read."""
        self._from_t: list[float] = []
        """Unix times on this clock from which the measurements hold, ascending."""
        self._ahead_s: list[float] = []
        self._least_t: list[float] = []
        """Corrected times that were reached before the measurements held."""

    @property
    def is_known(self) -> bool:
        """Whether it was measured."""
        return bool(self._ahead_s)

    def corrected(self, t: float) -> float:
        """A unix time of this clock as the clock of the first host has it."""
        if not self._ahead_s:
            return t
        index = max(0, bisect_right(self._from_t, t) - 1)
        return max(t - self._ahead_s[index], self._least_t[index])

    def refresh(self, until: float = math.inf) -> None:
        """Reads the measurements that were added since, if some may hold up to the time `until` on this clock; none if
        the journal cannot be read."""
        newest_t = self._search.newest_t
        if self._ahead_s and newest_t is not None and until < newest_t + DELAY_S:
            return
        try:
            found = self._search.fresh()
        except OSError:
            self._read_sealed()
            return
        for event in found:
            self._add(event)

    def _read_sealed(self) -> None:
        if self._is_read or self._search.is_begun:
            return
        self._is_read = True
        try:
            tail = CompressedTail(self._sealed)
        except OSError:
            return
        try:
            while events := tail.read():
                for numbered in events:
                    self._add(numbered.event)
        finally:
            tail.close()

    def _add(self, event: Event) -> None:
        if not isinstance(event, ClockMeasured) or not is_time(event.t) or not is_time(event.t - event.offset_s):
            return
        from_t = event.t + DELAY_S
        if len(self._ahead_s) == MEASUREMENTS_MAX or (self._from_t and from_t <= self._from_t[-1]):
            return
        self._least_t.append(self.corrected(from_t) if self._ahead_s else -math.inf)
        self._from_t.append(from_t)
        self._ahead_s.append(event.offset_s)


class HostClocks:
    """The clocks of the hosts of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._clocks: dict[int, HostClock] = {}

    def of_host(self, host_index: int) -> HostClock | None:
        """The clock of a host; None for the first one, to which the others are corrected."""
        if host_index <= 0:
            return None
        return self._clocks.setdefault(host_index, HostClock(self._run_dir, host_index))


class WriterClock:
    """Corrects the times of the events of one journal, as they are read."""

    def __init__(self, clocks: HostClocks, host_index: int | None = None) -> None:
        """`host_index`: index of the host of the writer, if it is known already; else its head names it."""
        self._clocks = clocks
        self.host_index = host_index
        self._clock = clocks.of_host(host_index) if host_index is not None else None
        self._is_begun = False
        """Whether events were returned that no measurement had corrected."""

    @property
    def is_settled(self) -> bool:
        """Whether the times that were returned stay as they are: of the first host, or corrected."""
        return self.host_index is not None and (self._clock is None or self._clock.is_known)

    def corrected(self, events: list[NumberedEvent]) -> list[NumberedEvent] | None:
        """The next events of the journal with corrected times.

        None if the clock was measured since the first of them were returned: read the journal again from its start,
        with a new `WriterClock`.
        """
        if self.host_index is None:
            self._look_for_head(events)
        clock = self._clock
        if clock is None or not events:
            return events
        clock.refresh(max(events[0].event.t, events[-1].event.t))
        if not clock.is_known:
            self._is_begun = True
            return events
        if self._is_begun:
            return None
        return [
            NumberedEvent(seq, _with_times(event, clock.corrected), journal_id) for seq, event, journal_id in events
        ]

    def _look_for_head(self, events: list[NumberedEvent]) -> None:
        head = next((each.event for each in events if isinstance(each.event, JournalOpened)), None)
        if head is not None:
            self.host_index = head.host_index
            self._clock = self._clocks.of_host(head.host_index)


def _with_times(event: Event, correct: Callable[[float], float]) -> Event:
    """The event with corrected times: its own, and those of the values that it contains."""
    if isinstance(event, ValuesLogged):
        event = logged_values.with_times(event, correct)
    return msgspec.structs.replace(event, t=correct(event.t))


def corrected_range(clocks: HostClocks, host_index: int, start: float, end: float) -> tuple[float, float]:
    """First and last unix time of a journal, corrected."""
    clock = clocks.of_host(host_index)
    if clock is None:
        return start, end
    clock.refresh()
    start, end = clock.corrected(start), clock.corrected(end)
    return start, max(start, end) if math.isfinite(end) else start

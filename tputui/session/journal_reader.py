"""What a run's journals say up to a moment: a reader with its reducer, and places to go back to.

A reader moves forward in time. To go back it starts from an earlier state: `CachedStates` keeps some in memory, and
the run's supervisor saves others on disk, so that a long run is never read from its beginning. Reads files and nothing
else; it reports errors and never raises them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from tputui.cache.state_cache import CachedState, StateCache
from tputui.state.reducer import RunState
from tputui.telemetry.journal import START, Bookmark, Damage
from tputui.telemetry.merge import JournalEvent, Merge, Reached

PLACES_MAX = 48
"""Of all writers together; one of a long run takes 0.3 MB."""
SLICE_S = 0.01
"""Reading between two looks at whether a place is due."""
SPACING_BYTES = 2 << 20
"""Journal read between two places of a writer, at least: about 20 ms of work."""


class CachedStates:
    """Earlier states of a run's writers, bounded in number: of a longer run they stand wider apart."""

    def __init__(
        self, most: int = PLACES_MAX, spacing_bytes: int = SPACING_BYTES, shelf: StateCache | None = None
    ) -> None:
        """`shelf` has those that the supervisor kept."""
        self.shelf = shelf
        """None where every record is to be read."""
        self._most = most
        self._spacing_bytes = spacing_bytes
        self._kept: dict[str, list[CachedState]] = {}

    def keep(self, bookmarks: dict[str, Bookmark], state: RunState) -> None:
        """Keeps the state of writers that have read far enough since their last place."""
        for name, bookmark in bookmarks.items():
            kept, writer = self._kept.get(name, []), state.processes.get(name)
            since = kept[-1].bookmark.offset if kept else 0
            if writer is None or writer.newest_t is None or bookmark.offset - since < self._spacing_bytes:
                continue
            self._kept.setdefault(name, kept).append(CachedState(bookmark, writer.fork(), writer.newest_t))
        while sum(len(kept) for kept in self._kept.values()) > self._most:
            self._spacing_bytes *= 2
            self._kept = {name: kept[1::2] for name, kept in self._kept.items()}

    def before(self, t: float, beyond: Mapping[str, int] | None = None) -> dict[str, CachedState]:
        """By writer: the last place before which nothing is newer than `t`, where that has taken in more than the
        record number in `beyond`."""
        beyond, found = beyond or {}, dict[str, CachedState]()
        for name, kept in self._kept.items():
            place = next((place for place in reversed(kept) if place.newest_t <= t), None)
            if place is not None and place.state.last_seq > beyond.get(name, -1):
                found[name] = place
        if self.shelf is not None:
            reached = {name: place.state.last_seq for name, place in found.items()}
            found |= self.shelf.before(t, {**beyond, **reached})
        return found


class JournalReader:
    """The facts of a run up to a moment, reduced."""

    def __init__(self, run_dir: Path, places: CachedStates) -> None:
        """`places` is shared by the tracks of a run, and all of them add to it."""
        self.state = RunState()
        self.caught_up = False
        """Whether everything that is written up to the moment was read."""
        self.opened = False
        """Whether that was so once since the moment last went back."""
        self.trouble: str | None = None
        """Why the run cannot be read."""
        self.moment = -math.inf
        """Unix time up to which the last call read."""
        self._run_dir = run_dir
        self._merge = Merge(run_dir)
        self._places = places

    def read(self, moment: float, budget_s: float, *, whole: bool = False) -> list[JournalEvent]:
        """Reads up to a moment for about `budget_s`; returns the facts that were taken in.

        `whole` is for the end of a recording: nothing may be held back there, and the last fact of a journal need
        not be its newest.
        """
        if moment < self.moment:
            self._go_back(moment)
        elif moment > self.moment:
            self._skip(moment)
        self.moment = moment
        until, deadline, taken = math.inf if whole else moment, time.monotonic() + budget_s, list[JournalEvent]()
        while True:
            taken += self._take(until, min(budget_s, SLICE_S))
            if self.caught_up or time.monotonic() >= deadline:
                return taken

    def damage(self, *, final: bool) -> list[Damage]:
        """Damaged regions met so far; `final` says that no writer lives."""
        return self._merge.damage(final=final)

    def close(self) -> None:
        """Closes the journals."""
        self._merge.close()

    def _take(self, until: float, budget_s: float) -> list[JournalEvent]:
        """Reads a slice and keeps the place after it where one is due."""
        fresh = [fact for fact in self._poll(until, budget_s) if self._is_new(fact)]
        for fact in fresh:
            self.state.apply(*fact)
        self.opened = self.opened or self.caught_up
        if fresh:
            self._places.keep(self._merge.bookmarks(), self.state)
        return fresh

    def _poll(self, until: float, budget_s: float) -> list[JournalEvent]:
        try:
            facts, self.caught_up = self._merge.poll(until, budget_s)
        except FileNotFoundError:
            # The directory went away. What was read stays, and files that are open are read on at the next poll.
            self.caught_up = True
            return []
        except OSError as error:
            # Records that were read and not handed over are lost with this reader; a new one brings them again, and
            # those that were taken in already change nothing.
            self.trouble = f"the run cannot be read: {error.strerror or error}: {error.filename or self._run_dir}"
            self._merge.close()
            self._merge = Merge(self._run_dir)
            self.caught_up = True
            return []
        self.trouble = None
        return facts

    def _is_new(self, fact: JournalEvent) -> bool:
        writer = self.state.processes.get(fact.writer)
        return writer is None or fact.seq > writer.last_seq

    def _go_back(self, moment: float) -> None:
        """Starts again from the places before a moment, or from the beginning."""
        places = self._places.before(moment)
        marks = {name: START for name in self.state.processes} | {
            name: place.bookmark for name, place in places.items()
        }
        self.state = RunState()
        self.opened = self.caught_up = False
        try:
            moved = self._merge.go_to(marks, _reached(places))
        except OSError:
            moved = set()
        if set(marks) - moved:
            self._merge.close()
            self._merge = Merge(self._run_dir)
            return
        self.state.processes = {name: place.state.fork() for name, place in places.items()}

    def _skip(self, moment: float) -> None:
        """Passes over what places before a moment have taken in already."""
        ahead = self._places.before(moment, {name: writer.last_seq for name, writer in self.state.processes.items()})
        if not ahead:
            return
        try:
            moved = self._merge.go_to({name: place.bookmark for name, place in ahead.items()}, _reached(ahead))
        except OSError:
            return
        for name in moved:
            self.state.processes[name] = ahead[name].state.fork()


def _reached(places: Mapping[str, CachedState]) -> dict[str, Reached]:
    states = {name: place.state for name, place in places.items()}
    return {name: Reached(state.newest_t, state.set_back_s, state.last_seq) for name, state in states.items()}

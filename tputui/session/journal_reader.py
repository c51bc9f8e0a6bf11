"""Reads and reduces the journals of a run up to a moment.

A reader moves forward in time. To go back it starts from an earlier state: `CachedStates` holds some in memory, and
the supervisor of the run saves others on disk, so that a long run is never read from its beginning. It only reads
files, and reports errors without raising them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tputui.cache.cache_file import CachedState, StateCache
from tputui.state.reducer import RunState
from tputui.telemetry.codec import Damage
from tputui.telemetry.journal import START
from tputui.telemetry.merge import JournalEvent, Merge, Reached

STATES_MAX = 48
"""States in memory, of all processes together; a state of a long run takes 0.3 MB."""
EPOCHS_OF_STATE = 1 << 16
"""A state with so many more epochs, whose table takes 3 MB, counts as one more state."""
SLICE_S = 0.01
"""Seconds of reading between two checks whether a state is to be stored."""
SPACING_BYTES = 2 << 20
"""Least bytes of journal between two states of a process: about 20 ms of work."""


class CachedStates:
    """Earlier states of a run, bounded in number: in a longer run they are further apart."""

    def __init__(
        self, most: int = STATES_MAX, spacing_bytes: int = SPACING_BYTES, on_disk: StateCache | None = None
    ) -> None:
        """`on_disk`: the states that the supervisor or the process of a mirror saved; None to read every event."""
        self.on_disk = on_disk
        self.in_memory = True
        """Whether `store` does anything."""
        self._most = most
        self._spacing_bytes = spacing_bytes
        self._kept: dict[str, list[CachedState]] = {}

    def store(self, names: Iterable[str], merge: Merge, state: RunState) -> None:
        """Stores the state of each process that was read far enough since its last stored state."""
        for name in names if self.in_memory else ():
            kept, process = self._kept.get(name, []), state.processes.get(name)
            since = kept[-1].bookmark.offset if kept else 0
            bookmark = merge.bookmark(name, since + self._spacing_bytes)
            if bookmark is None or process is None or process.newest_t is None:
                continue
            self._kept.setdefault(name, kept).append(CachedState(bookmark, process.fork(), process.newest_t))
        while sum(_size(cached_state) for kept in self._kept.values() for cached_state in kept) > self._most:
            self._spacing_bytes *= 2
            self._kept = {name: kept[1::2] for name, kept in self._kept.items()}

    def forget(self, name: str) -> None:
        """Removes the states in memory of a process whose times have changed."""
        self._kept.pop(name, None)

    def before(self, t: float, beyond: Mapping[str, int] | None = None) -> dict[str, CachedState]:
        """The newest state of each process whose events are not newer than the unix time `t`.

        A process is left out unless that state contains events after the number in `beyond`.
        """
        beyond, states = beyond or {}, dict[str, CachedState]()
        for name, kept in self._kept.items():
            cached_state = next((cached_state for cached_state in reversed(kept) if cached_state.newest_t <= t), None)
            if cached_state is not None and cached_state.state.last_seq > beyond.get(name, -1):
                states[name] = cached_state
        if self.on_disk is not None:
            reached = {name: cached_state.state.last_seq for name, cached_state in states.items()}
            states |= self.on_disk.before(t, {**beyond, **reached})
        return states


class JournalReader:
    """The events of a run up to a moment, reduced."""

    def __init__(self, run_dir: Path, cached: CachedStates) -> None:
        """`cached` is shared by all readers of a run, and all of them add to it."""
        self.state = RunState()
        self.caught_up = False
        """Whether everything written up to the moment was read."""
        self.opened = False
        """Whether it has caught up once since the moment last went back."""
        self.trouble: str | None = None
        """Why the run cannot be read."""
        self.moment = -math.inf
        """Unix time up to which the last call read."""
        self._returned: dict[str, int] = {}
        """Number of the last event that was returned of a writer before its journal was read again."""
        self._run_dir = run_dir
        self._merge = Merge(run_dir)
        self._cached = cached

    def read(self, moment: float, budget_s: float, *, whole: bool = False) -> list[JournalEvent]:
        """Reads up to a moment for about `budget_s`; returns the events that were applied.

        `whole` is for the end of a recording: nothing is held back there, and the last event of a journal need not be
        its newest.
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
        """Damaged regions found so far; `final`: no process writes any more."""
        return self._merge.damage(final=final)

    def close(self) -> None:
        self._merge.close()

    def _take(self, until: float, budget_s: float) -> list[JournalEvent]:
        """Reads for a moment, and stores the state if it is due."""
        events = self._poll(until, budget_s)
        for name in self._merge.take_restarted():
            self._cached.forget(name)
            self._returned[name] = self.state.forget(name)
        processes = self.state.processes
        fresh = [
            event for event in events if event.writer not in processes or event.seq > processes[event.writer].last_seq
        ]
        for writer, seq, event in fresh:
            self.state.apply(writer, seq, event)
        self.opened = self.opened or self.caught_up
        if fresh:
            self._cached.store({event.writer for event in fresh}, self._merge, self.state)
        if self._returned:
            fresh = [event for event in fresh if event.seq > self._returned.get(event.writer, -1)]
        return fresh

    def _poll(self, until: float, budget_s: float) -> list[JournalEvent]:
        try:
            events, self.caught_up = self._merge.poll(until, budget_s)
        except FileNotFoundError:
            # The directory was removed. The state stays, and open files are read on at the next poll.
            self.caught_up = True
            return []
        except OSError as error:
            # Events that were read but not returned are lost with this reader; a new one reads them again, and those
            # already applied are ignored.
            self.trouble = f"the run cannot be read: {error.strerror or error}: {error.filename or self._run_dir}"
            self._merge.close()
            self._merge = Merge(self._run_dir)
            self.caught_up = True
            return []
        self.trouble = None
        return events

    def _go_back(self, moment: float) -> None:
        """Starts again from the stored states before a moment, or from the beginning."""
        cached = self._cached.before(moment)
        marks = {name: START for name in self.state.processes} | {
            name: cached_state.bookmark for name, cached_state in cached.items()
        }
        self.state = RunState()
        self.opened = self.caught_up = False
        try:
            moved = self._merge.go_to(marks, _reached(cached))
        except OSError:
            moved = set()
        if set(marks) - moved:
            self._merge.close()
            self._merge = Merge(self._run_dir)
            return
        self.state.adopt({name: cached_state.state.fork() for name, cached_state in cached.items()})

    def _skip(self, moment: float) -> None:
        """Skips events that stored states before a moment already contain."""
        ahead = self._cached.before(moment, {name: writer.last_seq for name, writer in self.state.processes.items()})
        if not ahead:
            return
        try:
            moved = self._merge.go_to({name: cached.bookmark for name, cached in ahead.items()}, _reached(ahead))
        except OSError:
            return
        self.state.adopt({name: ahead[name].state.fork() for name in moved})


def _size(cached_state: CachedState) -> int:
    return 1 + len(cached_state.state.epochs) // EPOCHS_OF_STATE


def _reached(cached: Mapping[str, CachedState]) -> dict[str, Reached]:
    states = {name: cached_state.state for name, cached_state in cached.items()}
    return {
        name: Reached(
            state.newest_t, state.set_back_s, state.last_seq, state.opened.host_index if state.opened else None
        )
        for name, state in states.items()
    }

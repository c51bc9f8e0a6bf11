"""The reducer: every fact of a run goes in here, and every view is drawn from what it adds up to.

State is kept a writer at a time and combined only when it is looked at, so it cannot depend on how the writers'
journals interleave. Pure: no clock, no file, no process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tputui.state.process_state import ProcessState
from tputui.telemetry.events import Event

T = TypeVar("T")


class RunState:
    """What a run's facts so far add up to."""

    def __init__(self) -> None:
        self.processes: dict[str, ProcessState] = {}
        self._remembered: dict[str, tuple[object, Any]] = {}

    def apply(self, writer: str, seq: int, event: Event) -> None:
        """Takes the record number `seq` of the journal of `writer` in.

        Records of one writer come in the order of their numbers; one that came before changes nothing. Never raises.
        """
        state = self.processes.get(writer)
        if state is None:
            state = self.processes[writer] = ProcessState(writer)
        state.apply(seq, event)

    def memoized(self, name: str, key: object, make: Callable[[], T]) -> T:
        """What `make` gives, made again only when `key`, which says all that it depends on, has changed.

        Snapshots are taken ten times a second and share what has not changed, so what it gives is not to be changed.
        """
        held = self._remembered.get(name)
        if held is None or held[0] != key:
            held = self._remembered[name] = (key, make())
        made: T = held[1]
        return made

    @property
    def workers(self) -> list[ProcessState]:
        """The training processes, by host."""
        return self._of_role("worker")

    @property
    def ranks(self) -> list[ProcessState]:
        """The processes that train a part of the cores each, besides the one that reports for all."""
        return self._of_role("rank")

    @property
    def supervisors(self) -> list[ProcessState]:
        """The supervisors, by host."""
        return self._of_role("supervisor")

    @property
    def in_order(self) -> list[ProcessState]:
        """Every writer, by host and name."""
        return sorted(self.processes.values(), key=lambda writer: writer.place)

    @property
    def newest_t(self) -> float | None:
        """Time of the newest fact."""
        return max((w.newest_t for w in self.processes.values() if w.newest_t is not None), default=None)

    @property
    def first_t(self) -> float | None:
        """Time of the first fact."""
        return min((w.first_t for w in self.processes.values() if w.first_t is not None), default=None)

    def _of_role(self, role: str) -> list[ProcessState]:
        return [writer for writer in self.in_order if writer.role == role]

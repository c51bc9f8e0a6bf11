"""The reducer: applies the events of a run to its state, from which every view is drawn.

Each process has a state of its own; they are combined only when a snapshot is built, so the result cannot depend on how
the journals interleave. No files and no clock here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tputui.state.process_state import ProcessState
from tputui.telemetry import events as ev

T = TypeVar("T")
ROLES = ("worker", "logs", "rank", "observer", "supervisor")
"""The roles of processes; first those that know most of the training on their host."""
_FREQUENT = frozenset(
    {
        ev.StepsRecorded,
        ev.HostPaceMeasured,
        ev.ValuesLogged,
        ev.HeartbeatSent,
        ev.HostSampled,
        ev.MemorySampled,
        ev.DeviceSampled,
        ev.ProgressReported,
        ev.MetersReported,
        ev.XlaMetricsRead,
    }
)
"""Kinds of events that a process writes once a second or more often."""
_STEPS_LEAST = 2
"""The newest one and the oldest one, see `split_work`."""


def command_writer(processes: Mapping[str, ProcessState], index: int) -> str:
    """Name of the journal about the process that the supervisor of a host started: `logs-0` for a command of the user,
    else `worker-0`."""
    name = f"logs-{index}"
    return name if name in processes else f"worker-{index}"


class RunState:
    """The state of a run: one `ProcessState` per journal."""

    def __init__(self) -> None:
        self.processes: dict[str, ProcessState] = {}
        self._memo: dict[str, tuple[object, Any]] = {}
        self.behind: set[str] = set()
        """Names of the results of `memoized_in_parts` that have left a part of their work."""
        self.may_defer = False
        """Whether the snapshot that is being built may leave work on older steps to the next ones."""
        self._in_order: list[ProcessState] | None = None
        self._by_role: dict[str, list[ProcessState]] = {}
        self._of_hosts: dict[int, list[ProcessState]] = {}
        self.num_groupings = 0
        """Changes with the processes, their heads and their topologies."""
        self._num_changes = 0
        """Changes with every event."""
        self._num_rare = 0
        """Changes with every event of a kind that is not frequent."""

    def apply(self, writer: str, seq: int, event: ev.Event) -> None:
        """Applies event `seq` of the journal called `writer`.

        Events of one journal come in order; one that was applied before is ignored. Never raises.
        """
        state = self.processes.get(writer)
        if state is None:
            state = self.processes[writer] = ProcessState(writer)
            self._regroup()
        state.apply(seq, event)
        self._num_changes += 1
        if type(event) not in _FREQUENT:
            self._num_rare += 1
            if isinstance(event, ev.JournalOpened | ev.TopologyDeclared):
                self._regroup()

    def adopt(self, processes: Mapping[str, ProcessState]) -> None:
        """Takes the states of some processes in place of its own."""
        self.processes.update(processes)
        self._regroup()

    def forget(self, writer: str) -> int:
        """Removes a process, to apply its events again from the first one; returns the number of its last event."""
        self._memo.clear()
        self.behind.clear()
        process = self.processes.pop(writer, None)
        self._regroup()
        return process.last_seq if process is not None else -1

    def memoized(self, name: str, key: object, make: Callable[[], T]) -> T:
        """The result of `make`, computed again only when `key` changes; `key` covers everything that it depends on.

        Snapshots are built ten times a second and share unchanged results, so callers must not modify them.
        """
        held = self._memo.get(name)
        if held is None or held[0] != key:
            held = self._memo[name] = (key, make())
        made: T = held[1]
        return made

    def memoized_in_parts(self, name: str, key: object, make: Callable[[], tuple[T, bool]]) -> T:
        """Like `memoized`, of a result that may leave a part of its work to the next call: `make` also returns whether
        it did."""
        if name in self.behind:
            self._memo.pop(name, None)

        def go_on() -> T:
            result, is_behind = make()
            (self.behind.add if is_behind else self.behind.discard)(name)
            return result

        return self.memoized(name, key, go_on)

    def at_most(self, num_values: int, each: int) -> int:
        """How many changed steps to take in this snapshot: those that read `num_values` if one reads `each`, and at
        least some; all if the snapshot must not leave any."""
        return max(_STEPS_LEAST, num_values // max(1, each)) if self.may_defer else sys.maxsize

    def of_rare_events(self, name: str, make: Callable[[], T]) -> T:
        """Like `memoized`, for what depends only on events that are written less than once a second, such as
        checkpoints. To ask hundreds of processes for them ten times a second would take a tenth of a snapshot."""
        return self.memoized(name, self._num_rare, make)

    @property
    def workers(self) -> list[ProcessState]:
        """The training processes, by host. If none reports itself: what the supervisors read from their output."""
        if "training" not in self._by_role:
            self._by_role["training"] = self._of_role("worker") or self._of_role("logs")
        return self._by_role["training"]

    @property
    def read_logs(self) -> list[ProcessState]:
        """What the supervisors read from the output of training processes that report themselves."""
        return self._of_role("logs") if self._of_role("worker") else []

    @property
    def ranks(self) -> list[ProcessState]:
        """The processes that each train a part of the cores, beside the one that reports for all."""
        return self._of_role("rank")

    @property
    def observers(self) -> list[ProcessState]:
        """The processes of a user's command that are only observed: they do not report by themselves."""
        return self._of_role("observer")

    @property
    def trainers(self) -> list[list[ProcessState]]:
        """The training processes, each as its journals, one in which it reports first. Callers must not modify it.

        A process that trains before it joins its run, or after it left, also has a journal of its observers.
        """
        return self.memoized("trainers", self.num_groupings, self._trainers)

    @property
    def supervisors(self) -> list[ProcessState]:
        """The supervisors, by host."""
        return self._of_role("supervisor")

    @property
    def in_order(self) -> list[ProcessState]:
        """Every process, by host and name. Callers must not modify the list."""
        # Asked for a hundred times per snapshot.
        if self._in_order is None:
            self._in_order = sorted(self.processes.values(), key=lambda process: process.sort_key)
        return self._in_order

    @property
    def by_host(self) -> dict[int, list[ProcessState]]:
        """The processes by index of their host, those that know most of its training first. Not to be modified."""
        if not self._of_hosts:
            self._of_hosts = self._by_host()
        return self._of_hosts

    def _regroup(self) -> None:
        """A process was added, or its role or host may have changed."""
        self.num_groupings += 1
        self._num_changes += 1
        self._num_rare += 1
        self._in_order = None
        self._by_role.clear()
        self._of_hosts = {}

    def _by_host(self) -> dict[int, list[ProcessState]]:
        by_host: dict[int, list[ProcessState]] = {}
        for role in (*ROLES, None):
            for process in self.in_order:
                if process.role == role or (role is None and process.role not in ROLES):
                    by_host.setdefault(process.host_index, []).append(process)
        return by_host

    @property
    def steps_done(self) -> int:
        """Newest step that a training process has reported; of a restarted one only if its first step is known."""
        # Asked for five times per snapshot.
        return self.memoized("steps done", self._num_changes, self._steps_done)

    @property
    def is_imported(self) -> bool:
        """Whether the run was read from logs of another program: no process of it reports, and nobody sends heartbeats.
        The times of its events are those of the log."""
        processes = self.processes.values()
        return bool(processes) and all(process.role == "logs" and process.beat is None for process in processes)

    @property
    def newest_t(self) -> float | None:
        return max(
            (process.newest_t for process in self.processes.values() if process.newest_t is not None), default=None
        )

    @property
    def first_t(self) -> float | None:
        return min(
            (process.first_t for process in self.processes.values() if process.first_t is not None), default=None
        )

    def _trainers(self) -> list[list[ProcessState]]:
        by_process: dict[object, list[ProcessState]] = {}
        for process in (*self.workers, *self.ranks, *self.observers):
            head = process.opened
            key = (head.host, head.host_id, head.pid, head.pid_started) if head is not None else process.name
            by_process.setdefault(key, []).append(process)
        return list(by_process.values())

    @property
    def generation_t(self) -> float:
        """Unix time at which the newest generation of training processes began; failures before it ended an earlier
        one. Minus infinity if none was restarted."""
        return self.memoized("generation", self.num_groupings, self._generation_t)

    def _generation_t(self) -> float:
        heads = [process.opened for process in (*self.workers, *self.ranks) if process.opened]
        newest = max((head.generation for head in heads), default=0)
        return min((head.t for head in heads if head.generation == newest), default=-math.inf) if newest else -math.inf

    def _steps_done(self) -> int:
        with_plan = [process for process in self.workers if not process.reports.awaits_plan] or self.workers
        return max([process.steps_done for process in with_plan], default=0)

    def _of_role(self, role: str) -> list[ProcessState]:
        if role not in self._by_role:
            self._by_role[role] = [process for process in self.in_order if process.role == role]
        return self._by_role[role]

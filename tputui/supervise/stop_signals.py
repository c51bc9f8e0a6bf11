"""`StopSignals`: the signal of a request to stop, sent once to each process of a command that trains."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection

from tputui.supervise.training_processes import (
    ProcessRow,
    handles_sigterm,
    has_mapped,
    ignores,
    members,
    script_of,
    trainers,
)

FOLLOW_S = 1.0
"""Seconds between two searches for processes that the command has started again."""


class StopSignals:
    """Signals the processes that train; if none runs Python, the process group of the command, as Ctrl-C does."""

    def __init__(self, leader: int, number: signal.Signals | None, reporting: Callable[[], Collection[int]]) -> None:
        """`leader` is the first process of the command; `reporting` returns the ids of processes that report steps.
        Without a `number`, processes that handle SIGTERM get it, and the others SIGINT."""
        self._leader = leader
        self._number = number
        self._reporting = reporting
        self._signalled: set[ProcessRow] = set()
        self._at_signal: frozenset[ProcessRow] | None = None
        """The processes of the command when the signal was sent; None before."""
        self._scripts: set[str] = set()
        """What the processes ran that trained then."""
        self._due = 0.0
        self._passes_sigterm = False

    def send(self, *, by_sigterm: bool) -> None:
        """Sends the signal, unless it was sent: a second one would interrupt the save that the first one began.

        `by_sigterm`: SIGTERM requests the stop. It is passed on to processes that handle it, which may have got it
        already: clusters send it to all processes of a run, and SIGINT would interrupt the save that it began.
        """
        if self._at_signal is not None:
            return
        self._passes_sigterm = by_sigterm
        self._at_signal = frozenset(members(self._leader).values())
        for trainer in (training_processes := trainers(self._leader, self._reporting())):
            self._scripts.add(script_of(trainer.process.pid))
            self._signal(trainer.process)
        if not training_processes:
            self._signalled |= self._at_signal
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, self._number or signal.SIGINT)

    def follow(self, tick: float) -> None:
        """Signals what starts a script again after the stop ended it: its launcher, or below a shell the script
        itself. `tick` is a monotonic time."""
        if self._at_signal is None or tick < self._due:
            return
        self._due = tick + FOLLOW_S
        starters = {row.pid for row in members(self._leader).values()}
        for trainer in trainers(self._leader, self._reporting()):
            # What a process that has ended left, such as an upload, was not started again.
            is_new = trainer.process not in self._at_signal and trainer.process.parent in starters
            if is_new and script_of(trainer.process.pid) in self._scripts:
                self._signal(trainer.launcher or trainer.process)

    def send_to_heirs(self) -> None:
        """Signals what trains on although the command, which has ended by the signal, had started it."""
        for trainer in trainers(self._leader, self._reporting()) if self._at_signal is not None else ():
            if trainer.process in (self._at_signal or ()) or script_of(trainer.process.pid) in self._scripts:
                self._signal(trainer.process)

    def _signal(self, process: ProcessRow) -> None:
        if process not in self._signalled:
            self._signalled.add(process)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, self._number_for(process.pid))

    def _number_for(self, pid: int) -> signal.Signals:
        number = self._number or signal.SIGINT
        if not handles_sigterm(pid):
            return number
        # Python handles SIGINT in every script, but SIGTERM only in those that are to save when they are ended by it.
        is_better = self._number is None and not has_mapped(pid, b"/jaxlib/")
        return signal.SIGTERM if is_better or self._passes_sigterm or ignores(pid, number) else number

"""`RunRequests`: every request of a run, from the file in its directory to the receipt in the journal."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tputui import formatting as fmt
from tputui.supervise.escalation import Escalation
from tputui.supervise.hosts import Launch
from tputui.supervise.machine import MachineWatch
from tputui.supervise.outcome import WorkerEnd, unsaved_reason
from tputui.supervise.process import CommandProcess
from tputui.supervise.python_stacks import StackSignal
from tputui.supervise.record import RunRecord, log_line
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import requests


class RunRequests:
    """Reads requests, passes each on to what acts on it, and closes those that are left at the end."""

    def __init__(
        self, run_dir: Path, state: WorkerState, record: RunRecord, escalation: Escalation, stacks: StackSignal
    ) -> None:
        self._run_dir = run_dir
        self._state = state
        self._record = record
        self._stacks = stacks
        self._inbox = requests.Inbox(run_dir)
        self._process: CommandProcess
        self.escalation = escalation
        """When a request to stop must have been obeyed."""
        self.taken: list[requests.Request] = []
        """The requests so far."""
        self.killed = False
        """Whether the command was killed, because it did not obey."""
        self._is_stop_unwritten = False
        """Whether a request to stop was acted on that the disk refused."""

    def start(self, process: CommandProcess) -> None:
        """The command has started: requests concern it from now on."""
        self._process = process

    def take(self, launch: Launch, machine: MachineWatch) -> None:
        """Reads new requests and passes them on."""
        for request in self._inbox.poll():
            self.taken.append(request)
            if request.kind == "stacks":
                if self._process.takes_stacks:
                    self._stacks.add_request(request.id, time.monotonic())
                machine.request_core_states(request.id)
            self.escalation.on_request(request.kind, time.monotonic(), by=request.by)
            launch.on_request(request.kind)
            if self._process.on_request(request, time.time()):
                self.escalation.allow_grace(time.monotonic() + self._process.stop_grace_s)

    def submit(self, kind: ev.RequestKind | None, by: str = requests.BY_SIGTERM) -> None:
        """Writes the request that follows from SIGTERM or a stall, as any viewer would.

        If the disk refuses it, sends SIGTERM to the command; training then saves and ends.
        """
        if kind is None:
            return
        try:
            requests.submit(self._run_dir, kind, by=by, now=time.time())
        except OSError as error:
            log_line(f"request {kind} could not be written ({error}); sending SIGTERM to the worker instead")
            self._is_stop_unwritten = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
            self.escalation.on_request(kind, time.monotonic())

    def enforce(self) -> None:
        """Takes the next step against a command that does not stop, if one is due."""
        due = self.escalation.due(time.monotonic())
        if due == "stop_now":
            self.submit(due, by=self._process.stop_now_by)
        elif due == "kill":
            self.killed = True
            who, after_s = self._process.subject, self.escalation.kill_after_s
            self._record.warn(f"{who} did not stop at once within {after_s:g} s and was killed")
            self._process.kill()

    def fetch_stacks(self) -> None:
        """Takes the stacks of processes that cannot answer."""
        self._stacks.check(self._state.state, time.monotonic())

    @property
    def is_stop_asked(self) -> bool:
        """Whether a stop was requested that was not refused."""
        refused = self._state.refused | self._process.refused
        asked = any(request.kind in requests.STOPS and request.id not in refused for request in self.taken)
        return asked or self._is_stop_unwritten

    def close(self, ending: ev.RunEnded, end: WorkerEnd) -> None:
        """Writes a receipt for every request that has none."""
        is_early = self._state.training_ended is None and not self.killed
        has_stopped = ending.outcome == "stopped" and (is_early or not end.reports)
        for request in self.taken:
            if request.id in self._state.answered | self._process.refused:
                continue
            receipt: ev.Event
            if (request.kind == "stop_now" and self.killed) or (request.kind in requests.STOPS and has_stopped):
                lack = unsaved_reason(end) if request.kind != "stop_now" else None
                step = self._process.newest_step
                receipt = ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=step, lack=lack)
            else:
                why = fmt.with_reason("the run ended before this was done", ending.reason)
                receipt = ev.RequestRefused(t=time.time(), request=request.id, kind=request.kind, why=why)
            self._record.emit(receipt)

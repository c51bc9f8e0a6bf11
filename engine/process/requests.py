"""State shared by the worker's two threads: the loop's progress, and the queue of requests to the loop.

The loop writes its progress and checks the queue at every boundary; the monitor thread reads progress and fills the
queue. Must not touch a device or a file.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from tputui.telemetry.events import Phase, StepsDropped
from tputui.telemetry.requests import STRENGTH, Request

PHASES: dict[str, Phase] = {
    "data": "data",
    "trace": "tracing",
    "execute": "executing",
    "wait": "executing",
    "report": "reporting",
    "evaluate": "evaluating",
    "save": "saving",
}
"""Phase by section of the loop; between sections the last phase continues."""


class Activity(NamedTuple):
    """The phase of the loop, and its start."""

    phase: Phase
    since: float
    """Monotonic time in seconds."""


class Progress:
    """Progress of the loop. Each attribute is replaced as a whole, so any thread may read it."""

    def __init__(self) -> None:
        self.doing = Activity("starting", time.monotonic())
        self.step = 0
        """Newest step dispatched to the device."""
        self.reported_step: int | None = None
        """Newest step whose losses were reported; None if losses are not recorded."""
        self.epoch = 0
        """Current epoch; 0 before the first."""
        self.waits_for: str | None = None
        """What it waits for from the other processes."""
        self.saving = threading.RLock()
        """Held by the loop from the start of a save until its events are written: processes that take the place of
        these resume from the file, so the journal must have them."""

    def enter(self, phase: Phase, since: float | None = None) -> None:
        """Starts a phase; `since` (monotonic) if it began earlier, as after an interruption."""
        if since is not None or phase != self.doing.phase:
            self.doing = Activity(phase, since if since is not None else time.monotonic())

    def wait_for(self, what: str | None) -> None:
        """Starts or ends a wait for the other processes."""
        self.waits_for = what

    def unread(self) -> StepsDropped | None:
        """The event for steps whose losses are still on the device; None if there are none."""
        reported, step = self.reported_step, self.step
        if reported is None or reported >= step:
            return None
        why = f"the losses of steps {reported + 1} to {step} were not read from the device before the end"
        return StepsDropped(t=time.time(), num_records=0, num_steps=step - reported, why=why)

    def enter_section(self, name: str) -> None:
        """Starts the phase of a section."""
        if name in PHASES:
            self.enter(PHASES[name])


class RequestQueue:
    """Requests from the monitor thread to the loop."""

    def __init__(self) -> None:
        self.is_pending = False
        """Whether a request waits for the next boundary."""
        self._lock = threading.Lock()
        self._waiting: list[Request] = []
        self._known: set[str] = set()
        """Ids of the requests that have arrived, here or by another host."""
        self._adopted: set[str] = set()
        """Ids of those that the loop has served, or is about to serve."""
        self._ended = False

    def note(self, request: Request) -> bool:
        """Notes that a request has arrived at this process; False if it is known already."""
        with self._lock:
            is_new = request.id not in self._known
            self._known.add(request.id)
        return is_new

    def submit(self, request: Request) -> None:
        """Adds a request for the loop, unless that has served it: it may have arrived at another host before."""
        with self._lock:
            self._known.add(request.id)
            if request.id in self._adopted:
                return
            self._waiting.append(request)
            self.is_pending = self.is_pending or request.kind != "stop_after_epoch"

    def adopt(self, served: list[Request]) -> list[Request]:
        """Notes requests, of any host, that the loop is about to serve; returns those that had not arrived here."""
        with self._lock:
            new = [request for request in served if request.id not in self._known]
            ids = {request.id for request in served}
            self._known |= ids
            self._adopted |= ids
            # The same request may have arrived at several hosts.
            self._waiting = [request for request in self._waiting if request.id not in ids]
        return new

    def take(self, *, epoch_end: bool = False) -> list[Request]:
        """Takes the requests to be served at this boundary, the strongest last."""
        with self._lock:
            due = [r for r in self._waiting if epoch_end or r.kind != "stop_after_epoch"]
            self._waiting = [r for r in self._waiting if r not in due]
            self.is_pending = False
        return sorted(due, key=lambda request: STRENGTH[request.kind])

    def claim_end(self) -> bool:
        """Whether the caller is the first to end the run; only the first may report how it ended."""
        with self._lock:
            first, self._ended = not self._ended, True
        return first

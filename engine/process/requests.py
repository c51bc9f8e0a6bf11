"""What the worker's two threads share: what the loop is doing, and what is asked of it.

The loop writes its progress and looks at `asked`, a plain attribute, at every boundary; the watching thread reads
the one and sets the other. Must not touch a device or a file.
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
    "report": "reporting",
    "evaluate": "evaluating",
    "save": "saving",
}
"""Phase by section of the loop; between sections the last one stands."""


class Activity(NamedTuple):
    """What the loop is doing, and since when."""

    phase: Phase
    since: float
    """By the monotonic clock."""


class Progress:
    """Where the loop is. Each attribute is replaced whole, so any thread may read it."""

    def __init__(self) -> None:
        self.doing = Activity("starting", time.monotonic())
        self.step = 0
        """Newest step dispatched to the device."""
        self.reported_step: int | None = None
        """Newest step whose losses were handed to the reporter; None if nothing is recorded."""
        self.epoch = 0
        """Epoch in training; 0 before the first."""
        self.waits_for: str | None = None
        """What of the other processes it waits for."""

    def enter(self, phase: Phase, since: float | None = None) -> None:
        """Begins a phase. `since` (monotonic) is when it really began, if it goes on after an interruption."""
        if since is not None or phase != self.doing.phase:
            self.doing = Activity(phase, since if since is not None else time.monotonic())

    def wait_for(self, what: str | None) -> None:
        """Begins to wait for the other processes, or goes on."""
        self.waits_for = what

    def unread(self) -> StepsDropped | None:
        """The event for steps whose losses are still on the device; None if there is no such step."""
        reported, step = self.reported_step, self.step
        if reported is None or reported >= step:
            return None
        why = f"the losses of steps {reported + 1} to {step} were not read from the device before the end"
        return StepsDropped(t=time.time(), num_records=0, num_steps=step - reported, why=why)

    def enter_section(self, name: str) -> None:
        """Begins the phase of a section."""
        if name in PHASES:
            self.enter(PHASES[name])


class RequestQueue:
    """Requests on their way from the watching thread to the loop."""

    def __init__(self) -> None:
        self.asked = False
        """Whether a request waits for the next boundary."""
        self._lock = threading.Lock()
        self._waiting: list[Request] = []
        self._ended = False

    def submit(self, request: Request) -> None:
        """Hands a request to the loop."""
        with self._lock:
            self._waiting.append(request)
            self.asked = self.asked or request.kind != "stop_after_epoch"

    def take(self, *, epoch_end: bool = False) -> list[Request]:
        """The requests to be served at this boundary, the strongest last."""
        with self._lock:
            due = [r for r in self._waiting if epoch_end or r.kind != "stop_after_epoch"]
            self._waiting = [r for r in self._waiting if r not in due]
            self.asked = False
        return sorted(due, key=lambda request: STRENGTH[request.kind])

    def claim_end(self) -> bool:
        """Whether the caller is the first to end the run; only that one may say how it ended."""
        with self._lock:
            first, self._ended = not self._ended, True
        return first

"""`Progress`: what a process trains now. The loop writes it; the thread that sends heartbeats reads it.

Must not touch a device or a file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tputui.telemetry.events import Phase, StepsDropped

PHASES: dict[str, Phase] = {
    "data": "data",
    "trace": "tracing",
    "compile": "compiling",
    "execute": "executing",
    "wait": "executing",
    "report": "reporting",
    "evaluate": "evaluating",
    "save": "saving",
}
"""Phase by section of the loop; in other sections the phase before continues."""


class Activity(NamedTuple):
    """A phase of training, and its start."""

    phase: Phase
    since: float
    """Monotonic time in seconds."""


class Progress:
    """Progress of training. Each attribute is replaced as a whole, so any thread may read it."""

    def __init__(self) -> None:
        self.doing = Activity("starting", time.monotonic())
        self.step = 0
        """Newest step dispatched to the device."""
        self.reported_step: int | None = None
        """Newest step whose losses were reported; None if losses are not recorded, or not reported in order."""
        self.epoch = 0
        """Current epoch; 0 before the first."""
        self.knows_loop = True
        """Whether the end of the loop will be known. If not, steps are no phase: what is after them may be anything."""
        self.waits_for: str | None = None
        """What it waits for from the other processes."""
        self.compiling_since: Callable[[], float | None] = lambda: None
        """Since when (monotonic) the loop has been inside the compiler; None if it is not, or if that is not known."""
        self.saving = threading.RLock()
        """Held by the loop from the start of a save until its events are written: processes that take the place of
        these resume from the file, so the journal must have them."""

    @property
    def activity(self) -> Activity:
        """What the loop is doing; compiling takes precedence over its phase."""
        since, doing = self.compiling_since(), self.doing
        if since is not None:
            return Activity("compiling", since)
        return doing if self.knows_loop or doing.phase != "executing" else Activity("unknown", doing.since)

    def enter(self, phase: Phase, since: float | None = None) -> Phase:
        """Starts a phase; `since` (monotonic) if it began earlier, as after an interruption. Returns the one before."""
        before = self.doing.phase
        if since is not None or phase != before:
            self.doing = Activity(phase, since if since is not None else time.monotonic())
        return before

    def enter_section(self, name: str) -> Phase:
        """Starts the phase of a section; returns the one before."""
        return self.enter(PHASES.get(name, self.doing.phase))

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

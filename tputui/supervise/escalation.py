"""When asking turns into force. Pure: the clock is an argument.

SIGTERM asks to stop and save. Asked again, or when a grace time is over, it asks to stop at once; a request to stop
at once that is not obeyed in time, whoever made it, ends the training process by force.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from tputui.telemetry.events import RequestKind


class Timing(NamedTuple):
    """The supervisor's times, in seconds."""

    tick_s: float = 0.2
    """Between looks at the log, the requests and the journals."""
    sample_s: float = 1.0
    """Between samples of the host."""
    sigterm_grace_s: float = 20.0
    """From SIGTERM to a request to stop at once: with the next, within the 30 s that a preempted machine has."""
    kill_after_s: float = 10.0
    """From a request to stop at once to SIGKILL."""
    stall_grace_s: float = 120.0
    """From the request to save and stop for a stall to a request to stop at once."""
    last_words_s: float = 30.0
    """How long the end record is tried to be written where the disk refuses it."""


class Escalation:
    """What was asked so far, and what falls due next."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._sigterms = 0
        self._stop_now_at = math.inf
        self._kill_at = math.inf

    def on_sigterm(self, now: float) -> RequestKind | None:
        """What a SIGTERM asks for; None where everything was asked already."""
        self._sigterms += 1
        if self._sigterms == 1:
            self._stop_now_at = now + self._timing.sigterm_grace_s
            return "stop"
        return self._ask_harder()

    def on_stall(self, now: float) -> RequestKind | None:
        """What a stall asks for, where the run is to be saved and stopped; None where that was asked already."""
        if self._sigterms:
            return None
        self._sigterms = 1
        self._stop_now_at = now + self._timing.stall_grace_s
        return "stop"

    def on_request(self, kind: RequestKind, now: float) -> None:
        """A request was found in the run's directory, whoever wrote it."""
        if kind == "stop_now":
            self._stop_now_at = math.inf
            self._kill_at = min(self._kill_at, now + self._timing.kill_after_s)

    def falls_due(self, now: float) -> Literal["stop_now", "kill"] | None:
        """What is to be done at this moment; each is said once."""
        if now >= self._kill_at:
            self._kill_at = math.inf
            return "kill"
        return self._ask_harder() if now >= self._stop_now_at else None

    def _ask_harder(self) -> Literal["stop_now"] | None:
        """Asks to stop at once, unless that was asked."""
        if self._stop_now_at == math.inf:
            return None
        self._stop_now_at = math.inf
        return "stop_now"

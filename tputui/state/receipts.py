"""The answers of a process to the requests to its run."""

from __future__ import annotations

from tputui.state.state_struct import StateStruct
from tputui.telemetry import events as ev


class Receipts(StateStruct):
    """The answers of a process to one request."""

    seen: ev.RequestSeen | None = None
    applied: ev.RequestApplied | None = None
    refused: ev.RequestRefused | None = None

    def add(self, event: ev.RequestSeen | ev.RequestApplied | ev.RequestRefused) -> None:
        """Adds an answer; a later one of the same kind replaces it."""
        if isinstance(event, ev.RequestSeen):
            self.seen = event
        elif isinstance(event, ev.RequestApplied):
            self.applied = event
        else:
            self.refused = event

"""The queue of requests from the thread that answers them to the loop, which checks it at every boundary.

Must not touch a device or a file.
"""

from __future__ import annotations

import threading

from tputui.reporting import STRENGTH, Request


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

"""The pipe from the launcher to its supervisor. Thread-safe; a supervisor that is gone is no error."""

from __future__ import annotations

import contextlib
import os
import threading

from tputui.telemetry import launch_messages
from tputui.telemetry.events import Event


class SupervisorPipe:
    """Sends messages to the supervisor."""

    def __init__(self, fd: int | None) -> None:
        """`fd` is the end of the pipe for writing; None sends nothing."""
        self._fd = fd
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Has the supervisor record an event."""
        self.send(launch_messages.of_event(event))

    def send(self, message: launch_messages.Message) -> None:
        """Sends a message."""
        if self._fd is None:
            return
        line = launch_messages.encode(message)
        with self._lock, contextlib.suppress(OSError):
            while line:
                line = line[os.write(self._fd, line) :]

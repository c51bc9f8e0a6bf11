"""The supervisor of the launcher: the pipe to it, and SIGTERM from it, by which it passes a stop on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType

from engine.errors import Unable
from tputui.engine_api import ExitCode, launch_messages
from tputui.reporting import events as ev
from tputui.reporting import write_all


class SupervisorPipe:
    """Sends messages to the supervisor. Thread-safe; a supervisor that is gone is no error."""

    def __init__(self, fd: int | None) -> None:
        """`fd` is the end of the pipe for writing; None sends nothing."""
        self._fd = fd
        self._lock = threading.Lock()

    def emit(self, event: ev.Event) -> None:
        """Has the supervisor record an event."""
        self.send(launch_messages.of_event(event))

    def send(self, message: launch_messages.Message) -> None:
        if self._fd is None:
            return
        with self._lock, contextlib.suppress(OSError):
            write_all(self._fd, launch_messages.encode(message))


class StoppedEarly(Unable):
    """A stop was requested before training began."""

    code = ExitCode.STOPPED


class StopSignal:
    """SIGTERM: an exception in the main thread before the training process runs, then passed on to that."""

    def __init__(self, host_index: int) -> None:
        self._host_index = host_index
        self._act: Callable[[], None] = _note
        self.requested = False
        """Whether the signal came."""

    def install(self) -> None:
        """Catches the signal, which the supervisor has blocked until now."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    def arm(self) -> None:
        """From now on the signal raises `StoppedEarly`; so does this call if it came already."""
        self._begin(self._raise)

    def disarm(self) -> None:
        """From now on the signal is only noted."""
        self._act = _note

    def pass_on(self, send: Callable[[int], None]) -> None:
        """From now on the signal is passed on by `send`; so it is now if it came already."""
        self._begin(lambda: send(signal.SIGTERM))

    def error(self) -> StoppedEarly:
        """The exception, whose text is the reason of the end on all hosts."""
        return StoppedEarly(f"stopped on request before training began, at host {self._host_index}")

    def _begin(self, act: Callable[[], None]) -> None:
        self._act = act
        if self.requested:
            act()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._act()

    def _raise(self) -> None:
        # Once: the code that ends the launch must not be interrupted.
        self._act = _note
        raise self.error()


def _note() -> None:
    """The signal is noted, and nothing else."""

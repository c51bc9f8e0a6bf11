"""`StopSignal`: SIGTERM to the launcher before its training process runs, by which the supervisor passes a stop on."""

from __future__ import annotations

import signal
from types import FrameType

from engine.errors import Unable
from tputui.exit_codes import ExitCode


class StoppedEarly(Unable):
    """A stop was requested before training began."""

    code = ExitCode.STOPPED


class StopSignal:
    """SIGTERM, as an exception in the main thread while that is allowed."""

    def __init__(self, host_index: int) -> None:
        self._host_index = host_index
        self._is_armed = False
        self.requested = False
        """Whether the signal came."""

    def install(self) -> None:
        """Catches the signal, which the supervisor has blocked until now."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    def arm(self) -> None:
        """From now on the signal raises `StoppedEarly`; so does this call if it came already."""
        self._is_armed = True
        if self.requested:
            self._raise()

    def disarm(self) -> None:
        """From now on the signal is only noted."""
        self._is_armed = False

    def error(self) -> StoppedEarly:
        """The exception, whose text is the reason of the end on all hosts."""
        return StoppedEarly(f"stopped on request before training began, at host {self._host_index}")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._is_armed:
            self._raise()

    def _raise(self) -> None:
        # Once: the code that ends the launch must not be interrupted.
        self._is_armed = False
        raise self.error()

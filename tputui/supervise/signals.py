"""The signals of the supervisor, queued for its loop.

SIGTERM and SIGCHLD wake the loop; SIGINT and SIGHUP, which concern a terminal, are ignored. The handler only queues a
signal, because it may run between any two instructions.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType

CAUGHT = (signal.SIGTERM, signal.SIGCHLD)
IGNORED = (signal.SIGINT, signal.SIGHUP)


class SignalPipe:
    """Queues signals for a loop that sleeps until one arrives. Create it in the main thread."""

    def __init__(self) -> None:
        self._arrived: list[int] = []
        self._read_fd, self._write_fd = os.pipe()
        for fd in (self._read_fd, self._write_fd):
            os.set_blocking(fd, False)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self._arrived.append(number)

    def wait(self, timeout_s: float) -> list[int]:
        """The signals since the last call; sleeps up to `timeout_s` seconds if there are none."""
        if not self._arrived:
            select.select([self._read_fd], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        arrived, self._arrived = self._arrived, []
        return arrived

    @property
    def write_fd(self) -> int:
        """The file descriptor to which the interpreter writes a byte when a signal arrives."""
        return self._write_fd

    def close(self) -> None:
        """Closes both ends."""
        os.close(self._read_fd)
        os.close(self._write_fd)


@contextlib.contextmanager
def signals_caught() -> Iterator[SignalPipe]:
    """Installs the handlers and restores the former ones on exit. Only in the main thread."""
    pipe = SignalPipe()
    before = {number: signal.signal(number, pipe.handle) for number in CAUGHT}
    before.update({number: signal.signal(number, signal.SIG_IGN) for number in IGNORED})
    former_fd = signal.set_wakeup_fd(pipe.write_fd, warn_on_full_buffer=False)
    try:
        yield pipe
    finally:
        signal.set_wakeup_fd(former_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        pipe.close()

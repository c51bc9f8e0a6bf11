"""Ends the viewer when its terminal is closed, also if SIGHUP is ignored, as under `nohup`.

Writing to a closed terminal blocks the event loop forever while the input thread spins, so a separate thread checks and
ends the process. A viewer has no state to lose.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CHECK_S = 1.0
"""Seconds between checks."""

EXIT_CODE = 128 + signal.SIGHUP
"""The exit code that shells report for the signal."""


@contextmanager
def ending_with_it() -> Iterator[None]:
    """Within the block, the process ends about a second after its terminal."""
    fd = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0
    left = threading.Event()
    thread = threading.Thread(target=_watch, args=(fd, left), name="terminal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def is_gone(fd: int) -> bool:
    """Whether the terminal behind a file descriptor was closed. False for a descriptor that is not a terminal."""
    try:
        termios.tcgetattr(fd)
    except termios.error as error:
        return bool(error.args[0] != errno.ENOTTY)
    return False


def _watch(fd: int, left: threading.Event) -> None:
    while not left.wait(CHECK_S):
        if is_gone(fd):
            os._exit(EXIT_CODE)

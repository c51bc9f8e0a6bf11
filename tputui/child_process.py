"""A process of ours that works for another one: it ends when it is closed, and when the other process ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tputui.exit_codes import ExitCode

_CANCEL_S = 0.1
"""Seconds between two checks whether the user has cancelled."""


_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG."""


def end_with(parent: int | None, number: signal.Signals) -> None:
    """From now on the kernel sends this process a signal when its parent ends, even by SIGKILL; only Linux has the
    call. Ends this process if that is not the process `parent` any more, or without one, if it has no parent."""
    if sys.platform != "linux":
        return
    # Imported here so that viewers start faster.
    import ctypes

    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() == 1 if parent is None else os.getppid() != parent:
        os._exit(ExitCode.FAILED)


class Cancelled(Exception):
    """The user no longer wants to wait for the process."""


class ChildProcess(ABC):
    """A Python module that runs as a process, fills a run directory, and prints lines for this one."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cancelled: threading.Event | None,
        *,
        line_bytes_max: int,
        close_s: float,
    ) -> None:
        """Starts the module, and waits for its first line. It must end when its standard input is closed, within
        `close_s`. Raises `OSError`, what `run_dir_in` raises, and `Cancelled` if `cancelled` is set meanwhile."""
        self._line_bytes_max = line_bytes_max
        self._close_s = close_s
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        try:
            self.run_dir = self.run_dir_in(self.line(cancelled=cancelled))
            """The directory that it fills."""
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def run_dir_in(self, line: bytes | None) -> Path:
        """The directory in its first line, empty if it has ended without one. Raises an error with the reason if there
        is none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def line(self, timeout_s: float | None = None, cancelled: threading.Event | None = None) -> bytes | None:
        """The next line; None if there is none within the time, empty if the process ended or the line is too long.

        Raises `Cancelled` if `cancelled` is set meanwhile.
        """
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if cancelled is not None and cancelled.is_set():
                raise Cancelled
            if select.select([fd], [], [], _CANCEL_S)[0]:
                data = os.read(fd, 65_536)
                if not data or len(self._buffer) > self._line_bytes_max:
                    return b""
                self._buffer += data
            elif deadline is not None and time.monotonic() >= deadline:
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def last_words(self) -> str:
        """The last line of its errors, once it has ended; empty if it printed none."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until everything is in the directory, here until it has ended; returns whether that was within the
        time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Ends the process; what is in the directory stays."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if not ChildProcess.wait(self, self._close_s):
            self._process.kill()
            self._process.wait()

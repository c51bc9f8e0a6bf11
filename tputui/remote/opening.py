"""Starts the process that mirrors a run, for a viewer.

The process belongs to the viewer: it ends when `close` is called, and when the viewer's process ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import msgspec

from tputui.remote.address import RunAddress

CLOSE_S = 10.0
LINE_BYTES_MAX = 8 << 20
_CANCEL_S = 0.1


class Unreachable(Exception):
    """The run cannot be mirrored; the message is one sentence."""


class Cancelled(Exception):
    """The user no longer wants to open the run."""


class Task(msgspec.Struct, kw_only=True):
    """What a process mirrors."""

    address: RunAddress
    summary: bool = False
    """Leave out all steps of a report but the last."""


class Ready(msgspec.Struct, kw_only=True, tag=True):
    """The mirror can be opened, or why it cannot."""

    run_dir: str | None = None
    error: str | None = None


class Synced(msgspec.Struct, kw_only=True, tag=True):
    """The mirror has everything that the hosts had."""

    problems: list[str]
    """Why some hosts are not connected."""


class OpenedMirror:
    """A run of other machines that is being mirrored."""

    def __init__(self, address: RunAddress, *, summary: bool = False, cancelled: threading.Event | None = None) -> None:
        """Waits until the mirror can be opened. Raises `Unreachable`, and `Cancelled` if `cancelled` is set."""
        task = msgspec.json.encode(Task(address=address, summary=summary)).decode()
        self._buffer = b""
        self._is_synced = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tputui.remote", task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        self.problems: list[str] = []
        """Why some hosts are not connected, once everything was read."""
        try:
            self.run_dir = self._await_run_dir(address, cancelled)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the mirror has everything that the hosts had; returns whether it has."""
        line = None if self._is_synced else self._line(timeout_s, None)
        if line:
            self.problems = msgspec.json.decode(line, type=Synced).problems
        self._is_synced = self._is_synced or line is not None
        return self._is_synced

    def close(self) -> None:
        """Ends the process; what was mirrored so far stays."""
        process = self._process
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_run_dir(self, address: RunAddress, cancelled: threading.Event | None) -> Path:
        line = self._line(None, cancelled)
        if not line:
            assert self._process.stderr is not None
            last = self._process.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Unreachable(f"{address}: cannot be opened: {last or 'the process that mirrors it ended'}")
        ready = msgspec.json.decode(line, type=Ready)
        if ready.run_dir is None:
            raise Unreachable(ready.error or f"{address}: cannot be opened")
        return Path(ready.run_dir)

    def _line(self, timeout_s: float | None, cancelled: threading.Event | None) -> bytes | None:
        """The next line; None if there is none within the time, empty if the process ended."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if cancelled is not None and cancelled.is_set():
                raise Cancelled
            if select.select([fd], [], [], _CANCEL_S)[0]:
                data = os.read(fd, 65_536)
                if not data or len(self._buffer) > LINE_BYTES_MAX:
                    return b""
                self._buffer += data
            elif deadline is not None and time.monotonic() >= deadline:
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

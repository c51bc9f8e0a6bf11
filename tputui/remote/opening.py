"""Starts the process that mirrors a run, for a viewer.

The process belongs to the viewer: it ends when `close` is called, and when the viewer's process ends.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

import msgspec

from tputui.child_process import ChildProcess
from tputui.remote.address import RunAddress

CLOSE_S = 10.0
LINE_BYTES_MAX = 8 << 20


class Unreachable(Exception):
    """The run cannot be mirrored; the message is one sentence."""


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
        task = msgspec.json.encode((address, summary)).decode()
        env = {**os.environ, "PYTHONSAFEPATH": "1"}
        self._process = ChildProcess("tputui.remote", [task], env, line_bytes_max=LINE_BYTES_MAX, close_s=CLOSE_S)
        self._is_synced = False
        self.problems: list[str] = []
        """Why some hosts are not connected, once everything was read."""
        try:
            self.run_dir = self._await_run_dir(address, cancelled)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the mirror has everything that the hosts had; returns whether it has."""
        line = None if self._is_synced else self._process.line(timeout_s)
        if line:
            self.problems = msgspec.json.decode(line, type=Synced).problems
        self._is_synced = self._is_synced or line is not None
        return self._is_synced

    def close(self) -> None:
        """Ends the process; what was mirrored so far stays."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_run_dir(self, address: RunAddress, cancelled: threading.Event | None) -> Path:
        line = self._process.line(cancelled=cancelled)
        if not line:
            why = self._process.last_words() or "the process that mirrors it ended"
            raise Unreachable(f"{address}: cannot be opened: {why}")
        ready = msgspec.json.decode(line, type=Ready)
        if ready.run_dir is None:
            raise Unreachable(ready.error or f"{address}: cannot be opened")
        return Path(ready.run_dir)

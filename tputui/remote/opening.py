"""Starts the process that mirrors a run, for a viewer.

The process belongs to the viewer: it ends when `close` is called, and when the viewer's process ends.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

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


class OpenedMirror(ChildProcess):
    """A run of other machines that is being mirrored."""

    def __init__(self, address: RunAddress, *, summary: bool = False, cancelled: threading.Event | None = None) -> None:
        """Waits until the mirror can be opened. Raises `Unreachable`, and `Cancelled` if `cancelled` is set."""
        self._address = address
        self._is_synced = False
        self.problems: list[str] = []
        """Why some hosts are not connected, once everything was read."""
        task, env = msgspec.json.encode((address, summary)).decode(), {**os.environ, "PYTHONSAFEPATH": "1"}
        super().__init__("tputui.remote", [task], env, cancelled, line_bytes_max=LINE_BYTES_MAX, close_s=CLOSE_S)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the mirror has everything that the hosts had; returns whether it has."""
        line = None if self._is_synced else self.line(timeout_s)
        if line:
            self.problems = msgspec.json.decode(line, type=Synced).problems
        self._is_synced = self._is_synced or line is not None
        return self._is_synced

    def run_dir_in(self, line: bytes | None) -> Path:
        """Raises `Unreachable`."""
        if not line:
            why = self.last_words() or "the process that mirrors it ended"
            raise Unreachable(f"{self._address}: cannot be opened: {why}")
        ready = msgspec.json.decode(line, type=Ready)
        if ready.run_dir is None:
            raise Unreachable(ready.error or f"{self._address}: cannot be opened")
        return Path(ready.run_dir)

"""Starts the process that reads a log, for a viewer.

The process belongs to the viewer: it ends when `close` is called, and when the viewer's process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tputui.logs.values import UnknownLog
from tputui.supervise import spawn

FOLLOW = "--follow"
CLOSE_S = 5.0
LINE_BYTES_MAX = 1 << 20
_CANCEL_S = 0.1
"""Seconds between two checks whether the user has cancelled."""


class Cancelled(Exception):
    """The user no longer wants to open the log."""


class OpenedLog:
    """A log that is being read into a run directory, or was."""

    def __init__(self, log: Path, *, follow: bool = False, cancelled: threading.Event | None = None) -> None:
        """Waits until the first values are in the run directory. With `follow` reading goes on until `close`.

        Raises `UnknownLog`, whose message is a sentence for the user, also if the log or the cache cannot be used, and
        `Cancelled` if `cancelled` is set while it waits.
        """
        words = [*([FOLLOW] if follow else []), str(log)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tputui.log_import", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=spawn.environment(os.environ),
            start_new_session=True,
        )
        try:
            self._await_reply(cancelled)
            self.run_dir = self._run_dir(log)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the log was read to its end; returns whether it was within the time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Ends the process; what was read so far stays."""
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

    def _await_reply(self, cancelled: threading.Event | None) -> None:
        """Waits until there is something to read, or the process has ended."""
        assert self._process.stdout is not None
        while cancelled is not None and not select.select([self._process.stdout], [], [], _CANCEL_S)[0]:
            if cancelled.is_set():
                raise Cancelled

    def _run_dir(self, log: Path) -> Path:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline(LINE_BYTES_MAX)
        try:
            reply = json.loads(line)
        except ValueError:
            last = self._process.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise UnknownLog(f"{log}: cannot be imported: {last or 'the process that reads it ended'}") from None
        if "error" in reply:
            raise UnknownLog(str(reply["error"]))
        return Path(reply["run_dir"])

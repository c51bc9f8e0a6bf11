"""Starts the process that reads a log, for a viewer.

The process belongs to the viewer: it ends when `close` is called, and when the viewer's process ends.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Self

from tputui.child_process import ChildProcess
from tputui.logs.values import UnknownLog
from tputui.supervise import spawn

FOLLOW = "--follow"
CLOSE_S = 20.0
"""Seconds that the process has to end. It checks after each batch, which takes up to a second of processor time, and
many times that on a busy machine."""
LINE_BYTES_MAX = 1 << 20


class OpenedLog:
    """A log that is being read into a run directory, or was."""

    def __init__(self, log: Path, *, follow: bool = False, cancelled: threading.Event | None = None) -> None:
        """Waits until the first values are in the run directory. With `follow` reading goes on until `close`.

        Raises `UnknownLog`, whose message is a sentence for the user, also if the log or the cache cannot be used, and
        `Cancelled` if `cancelled` is set while it waits.
        """
        words = [*([FOLLOW] if follow else []), str(log)]
        env = spawn.environment(os.environ)
        self._process = ChildProcess("tputui.log_import", words, env, line_bytes_max=LINE_BYTES_MAX, close_s=CLOSE_S)
        try:
            self.run_dir = self._await_run_dir(log, cancelled)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the log was read to its end; returns whether it was within the time."""
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """Ends the process; what was read so far stays."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_run_dir(self, log: Path, cancelled: threading.Event | None) -> Path:
        line = self._process.line(cancelled=cancelled)
        try:
            reply = json.loads(line or b"")
        except ValueError:
            why = self._process.last_words() or "the process that reads it ended"
            raise UnknownLog(f"{log}: cannot be imported: {why}") from None
        if "error" in reply:
            raise UnknownLog(str(reply["error"]))
        return Path(reply["run_dir"])

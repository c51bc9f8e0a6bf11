"""Collects what a command of the user writes: its console output, as the events of the journal `logs-0`.

The command need not know of tputui, so the supervisor reports for it: a heartbeat every second, with the newest step
that its output names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

HEARTBEAT_INTERVAL_S = 1.0


class LogCollector:
    """Reports for one command. Not thread-safe; no method blocks or raises."""

    def __init__(self, run_dir: Path, pid: int, reporter: Reporter, script_config: Mapping[str, Any]) -> None:
        """`pid` is the command, `reporter` writes the journal `logs-0`, `script_config` is the table `[script]`."""
        self._run_dir = run_dir
        self._pid = pid
        self._reporter = reporter
        self._config = script_config
        self._started = time.time()
        self._beat_due = self._started
        self.newest_step = 0
        """Newest step that was read; 0 before the first."""
        self.num_lines = 0
        """Lines of console output so far."""
        self.num_values = 0
        """Values read so far."""

    def take_console(self, lines: Sequence[str]) -> None:
        """Takes lines that the command printed, as they are shown."""
        self.num_lines += len(lines)

    def poll(self, now: float) -> None:
        """Reads what was written since the last call. `now` is unix time in seconds."""
        if now < self._beat_due and self._beat_due - now <= HEARTBEAT_INTERVAL_S:
            return
        self._beat_due = now + HEARTBEAT_INTERVAL_S
        self._reporter.emit(
            ev.HeartbeatSent(
                t=now, phase="unknown", phase_s=max(0.0, now - self._started), step=self.newest_step, epoch=0
            )
        )

    def close(self) -> None:
        """Reads the rest, after the command has ended."""

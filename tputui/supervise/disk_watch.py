"""Warns if the disk of a run is nearly full, and reports when nothing could be recorded.

The journal cannot take an event while the disk is full, so the first warning comes before, and the other one after.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tputui import formatting as fmt
from tputui.telemetry.files import free_bytes, free_inodes

LOW_BYTES = 256 << 20
LOW_INODES = 100
CHECK_S = 1.0
"""Seconds between two looks at the disk."""


class DiskWatch:
    """Watches the disk of one run."""

    def __init__(self, run_dir: Path, warn: Callable[[str], None], *, host: str = "") -> None:
        """`host` names this host if the run has several."""
        self._run_dir = run_dir
        self._on_host = f" on {host}" if host else ""
        self._warn = warn
        self._due = 0.0
        self._is_low = False
        self._has_few_inodes = False
        self._failed: tuple[float, str] | None = None
        """Since when nothing can be written, as a monotonic time, and why."""

    def check(self, failure: str | None, tick: float) -> None:
        """Looks at the disk. `failure`: why the journal cannot be written, `tick`: a monotonic time."""
        if failure is not None:
            self._failed = self._failed or (tick, failure)
        elif self._failed is not None:
            since, why = self._failed
            self._failed = None
            self._warn(
                f"nothing of this run could be written for {fmt.duration(tick - since)} ({why}); "
                f"{self._disk()} has {fmt.size(free_bytes(self._run_dir))} free now"
            )
        if tick >= self._due:
            self._due = tick + CHECK_S
            self._check_space()
            self._check_inodes()

    def _check_space(self) -> None:
        free = free_bytes(self._run_dir)
        if free is None:
            return
        if free < LOW_BYTES and not self._is_low:
            self._is_low = True
            self._warn(
                f"{self._disk()} has only {fmt.size(free)} free; once it is full, the run goes on, "
                "but is not recorded: delete files there, or start runs with --runs-dir on another disk"
            )
        elif free > 2 * LOW_BYTES:
            self._is_low = False

    def _check_inodes(self) -> None:
        free = free_inodes(self._run_dir)
        if free is None:
            return
        if free < LOW_INODES and not self._has_few_inodes:
            self._has_few_inodes = True
            self._warn(
                f"{self._disk()} has only {fmt.counted(free, 'free inode')}; once there is none, no checkpoint or "
                "other file can be created: delete files there, or start runs with --runs-dir on another disk"
            )
        elif free > 2 * LOW_INODES:
            self._has_few_inodes = False

    def _disk(self) -> str:
        # The directory may have been renamed.
        return f"the disk of {self._run_dir.resolve()}{self._on_host}"

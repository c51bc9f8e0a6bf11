"""Runs that are logs of other programs: the commands that show runs open them by their path.

A log is read by a process of its own into the user's cache. It ends with this one.
"""

from __future__ import annotations

import argparse
import atexit
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tputui import user_cache
from tputui.cli.arguments import find_run, mirror_of_hosts, parent_of
from tputui.cli.console import UsageError, narrate, usage_errors
from tputui.formatting import inert
from tputui.telemetry import rundir

if TYPE_CHECKING:
    from tputui.log_import.place import OpenedLog

RUN_OR_LOG = (
    "name or directory of a run, ssh://[user@]HOST[:port]/RUN, or a log: TensorBoard, W&B, CSV, JSON lines, "
    "trainer_state.json, parquet, printed text"
)
"""Help of an argument that may be a log."""
NARRATE_S = 1.0
"""Seconds of reading after which the user is asked to wait."""


class RunOrLog:
    """A run by name or path, or the log of another program at a path."""

    def __init__(self, name: str, parent: Path, *, follow: bool = False) -> None:
        """With `follow` a log is read on until this process ends. Raises `CommandError`."""
        self._name = name
        self._log: OpenedLog | None = None
        if name.startswith("ssh://") and not follow:
            self.run_dir = find_run(name, parent)
            return
        path = Path(name)
        if _is_run(name, parent) or not name.strip() or not os.path.lexists(path):
            self.run_dir = find_run(name, parent)
            if follow:
                message = "only logs of other programs need it; a run is always followed"
                raise UsageError(f"--follow {inert(name)}: {message}")
            return
        # Imported here so that viewers of runs start faster.
        from tputui.log_import.place import OpenedLog
        from tputui.logs.rows import UnknownLog

        with usage_errors(UnknownLog):
            self._log = OpenedLog(path, follow=follow)
        atexit.register(self._log.close)
        self.run_dir = self._log.run_dir

    @property
    def is_log(self) -> bool:
        """Whether it is a log, or the run directory of one, to which no requests can be made."""
        return user_cache.holds(self.run_dir, "imports", os.environ)

    @property
    def is_read(self) -> bool:
        """Whether a log was read to its end; waits for a short time."""
        return self._log is None or self._log.wait(NARRATE_S / 2)

    def wait(self) -> None:
        if self._log is not None and not self._log.wait(NARRATE_S):
            narrate(f"reading {inert(self._name)} ...")
            self._log.wait()


def chosen_run_or_log(args: argparse.Namespace) -> Path:
    """The directory of the run or log RUN, read to its end. Raises `CommandError`."""
    if (mirror := mirror_of_hosts(args)) is not None:
        return mirror
    chosen = RunOrLog(args.run, parent_of(args))
    chosen.wait()
    return chosen.run_dir


def _is_run(name: str, parent: Path) -> bool:
    try:
        rundir.find(name, parent)
    except PermissionError:
        return True
    except rundir.RunNotFound:
        return False
    return True

"""The interface between the launcher and the engine: describe a task, check a configuration, start a run.

The command line implements it with engine processes. Every call blocks, so the screens call it from threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Protocol

from tputui.check_result import CheckResult, TaskDescription


class LaunchError(Exception):
    """The task cannot be described, or the configuration cannot be checked or started; the text is for the user."""


class Launch(NamedTuple):
    """A run to start."""

    tables: Mapping[str, Any]
    """The configuration, as `config.from_builtins` takes it."""
    source: str
    """The configuration's file, or the run that it was copied from."""
    name: str | None
    """Name of the run; None for a name made from the time and the task."""
    resume: Path | None
    """Directory of the run whose last checkpoint is resumed."""
    argv: Sequence[str]
    """The equivalent command line."""


class LaunchService(Protocol):
    """What the launcher needs from the engine. Setting `stop` cancels a call."""

    def machine_error(self) -> str | None:
        """Why this machine cannot train; None if it can."""

    def data_sets(self) -> Mapping[str, bool]:
        """The data sets that `tputui data fetch` knows, each with whether it was fetched; empty if not available."""

    def describe(self, task: str, stop: Event) -> TaskDescription:
        """Returns the options of a task. Raises `LaunchError`."""

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        """Validates a configuration; with `memory`, also estimates its memory. Raises `LaunchError`."""

    def start(self, launch: Launch) -> Path:
        """Validates and starts a run, detached; returns its directory. Raises `LaunchError`."""

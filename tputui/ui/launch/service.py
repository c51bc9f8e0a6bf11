"""What the launcher has done for it outside of the screen: a task described, a configuration checked, a run started.

The command line gives an implementation, which starts the engine in processes of its own. Every call blocks and is
made from threads only; `stop` gives it up. Pure: types alone.
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
    """A run that is to be started."""

    tables: Mapping[str, Any]
    """The configuration as `config.from_builtins` takes it."""
    source: str
    """What the configuration is called: its file, or the run that had it."""
    name: str | None
    """Of the run; None names it after the time and the task."""
    resume: Path | None
    """Run from whose last checkpoint it goes on."""
    argv: Sequence[str]
    """The command line that would have done the same."""


class LaunchService(Protocol):
    """Does it."""

    def why_not_here(self) -> str | None:
        """Why this machine cannot train; None where it can."""

    def describe(self, task: str, stop: Event) -> TaskDescription:
        """The keys of a task. Raises `LaunchError`."""

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        """Whether it can be trained, and what it comes to. Raises `LaunchError`."""

    def start(self, launch: Launch) -> Path:
        """Checks all again and starts it, detached; the directory of the run. Raises `LaunchError`."""

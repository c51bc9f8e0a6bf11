"""What the launcher has done for it outside of the screen: a task described, a configuration checked, a run started.

The command line gives an implementation, which starts the engine in processes of its own. Every call blocks and is
made from threads only; `stop` gives it up. Pure: types alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Protocol

from tputui.telemetry.events import MemoryForecast


class Unable(Exception):
    """It cannot be done; the text says why, for a person."""


class Problem(NamedTuple):
    """A value that cannot be used."""

    key: str
    """Where it stands, such as `optim.lr`; empty where it is about the whole."""
    message: str


class CheckResult(NamedTuple):
    """What the engine says of a configuration."""

    problems: Sequence[Problem]
    facts: Mapping[str, Any]
    """Figures that it comes to; empty where there are problems."""
    memory: MemoryForecast | None = None
    memory_why: str = ""
    """Why there is no prediction where one was asked for."""


class Option(NamedTuple):
    """A key of a task."""

    key: str
    schema: Mapping[str, Any]
    """JSON schema with the default."""
    doc: str


class TaskDescription(NamedTuple):
    """A task and its keys."""

    name: str
    doc: str
    meters: Sequence[str]
    data: Sequence[Option]
    model: Sequence[Option]


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
        """The keys of a task. Raises `Unable`."""

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        """Whether it can be trained, and what it comes to. Raises `Unable`."""

    def start(self, launch: Launch) -> Path:
        """Checks all again and starts it, detached; the directory of the run. Raises `Unable`."""

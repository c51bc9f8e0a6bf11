"""JSON of `python -m engine.commands.describe`: the options of a task, and the result of checking a configuration.

The engine encodes these structs; the command line and the launcher decode the same ones.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tputui.telemetry.events import MemoryForecast


class Problem(msgspec.Struct, frozen=True):
    """A value that cannot be used."""

    key: str
    """Its key in the configuration, such as `optim.lr`; empty if the problem is about the configuration as a whole."""
    message: str
    """One sentence: what is wrong, and which values are valid."""

    @property
    def sentence(self) -> str:
        """`key: message`, or the message alone if there is no key."""
        return f"{self.key}: {self.message}" if self.key else self.message


class CheckResult(msgspec.Struct, frozen=True):
    """The result of checking a configuration on this machine."""

    problems: list[Problem]
    facts: dict[str, Any]
    """Step counts, sizes and cores of the run; empty if the configuration cannot be planned."""
    memory: MemoryForecast | None = None
    """Predicted memory of a step on one core, if requested and available."""
    memory_why: str | None = None
    """Why a requested prediction is not available."""


class Option(msgspec.Struct, frozen=True):
    """One key of a task in `[data]` or `[model]`."""

    key: str
    schema: dict[str, Any]
    """JSON schema, including the default."""
    doc: str
    type: str = ""
    """Name of the Python type."""
    default: Any = None


class TaskDescription(msgspec.Struct, frozen=True):
    """A task and its options."""

    task: str
    doc: str
    meters: list[str]
    options: dict[str, list[Option]]
    """By table: `data` and `model`."""

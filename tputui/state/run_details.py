"""Where a run comes from, as views show it: command, host, versions and git commit."""

from __future__ import annotations

import msgspec


class GitView(msgspec.Struct, frozen=True, kw_only=True):
    """The git commit that was checked out in the working directory."""

    commit: str | None
    branch: str | None
    dirty: bool | None
    """Whether tracked files differed from the commit."""
    why: str | None
    """Why something is unknown."""


class RunDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run comes from. None if the run did not record it."""

    argv: list[str] | None = None
    """The command line of the user."""
    cwd: str | None = None
    """Working directory of the command."""
    config_path: str | None = None
    """Configuration file, as given on the command line."""
    host: str | None = None
    versions: dict[str, str | None] | None = None
    """By name: `python`, `tputui`, `torch`, `torch_xla`; the value is None if it was not installed."""
    git: GitView | None = None
    resumed_from: str | None = None
    """Checkpoint from which the run was resumed; also None if it was not."""

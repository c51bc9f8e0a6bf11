"""Where a run comes from: host, versions of the software, and the git commit of its working directory. Only types."""

from __future__ import annotations

import msgspec

from tputui.telemetry.secrecy import Exact, Text


class GitState(msgspec.Struct, frozen=True, kw_only=True):
    """The git commit that was checked out in a directory."""

    commit: Exact | None = None
    """Full commit id; None if unknown."""
    branch: Text | None = None
    """Name of the branch; None if no branch was checked out, or unknown."""
    dirty: bool | None = None
    """Whether tracked files differed from the commit; None if unknown. Untracked files do not count."""
    why: Text | None = None
    """Why something is unknown; None if nothing is."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run comes from. None in runs of older versions, which did not record it."""

    host: Exact | None = None
    """Host on which the run was started."""
    versions: dict[Exact, Exact | None] | None = None
    """By name: `python`, `tputui`, `torch`, `torch_xla`; the value is None if it was not installed."""
    git: GitState | None = None
    """The git commit checked out in the working directory."""

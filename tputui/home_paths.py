"""Paths that a user writes with `~` or `~name` in place of a home directory."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str | Path) -> Path:
    """The path below the home directory that it names. Raises `FileNotFoundError`, whose message is a sentence for the
    user, if there is no such user or the user has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        home = Path(path).parts[0]
        raise FileNotFoundError(f"there is no home directory {home}; write the whole path") from None

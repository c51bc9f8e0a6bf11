"""Whether the installed torch and torch_xla are the ones that this engine is built for. Imports neither."""

from __future__ import annotations

from importlib import metadata

from engine.errors import Unable
from tputui.versions import version_problem


def require() -> None:
    """Raises `Unable` where training cannot be tried."""
    why_not = problem()
    if why_not is not None:
        raise Unable(why_not)


def problem() -> str | None:
    """Why training cannot be tried, with what to type; None where it can."""
    return version_problem(_installed("torch"), _installed("torch_xla"))


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

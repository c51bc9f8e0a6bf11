"""Whether the installed torch and torch_xla are the ones that this engine is built for. Imports neither."""

from __future__ import annotations

from importlib import metadata

from engine.errors import Unable
from tputui.versions import version_problem


def require() -> None:
    """Raises `Unable` where training cannot be tried."""
    problem = version_problem(_installed("torch"), _installed("torch_xla"))
    if problem is not None:
        raise Unable(problem)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

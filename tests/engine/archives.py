"""Fake packages in a folder that replaces the registries, and data sets made of them."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tputui.data_sets import DataSet, Package

Manager = Literal["pip", "npm", "apt"]
NAME = "made-up-numbers"
VERSION = "1.0"
CONTENT = b"1\n2\n3\n"


def prepare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Copies the unpacked files."""
    tables = [path for source in sources.values() for path in source.rglob("numbers.csv")]
    (into / "numbers.csv").write_bytes(tables[0].read_bytes())
    return ["numbers.csv: 3 rows"]


def prepare_badly(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Fails after writing half of the files."""
    (into / "half.csv").write_bytes(b"1\n")
    raise OSError(28, "No space left on device", str(into / "half.csv"))


class Registry:
    """A folder of archives that pip uses instead of an index, and an `npm` that serves from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.tools.mkdir(parents=True)

    @classmethod
    @contextmanager
    def alone(cls, folder: Path) -> Iterator[Registry]:
        """An empty registry, as the only source of packages."""
        made = cls(folder)
        with pytest.MonkeyPatch.context() as patch:
            made.serve(patch)
            yield made

    def serve(self, patch: pytest.MonkeyPatch) -> None:
        """Makes this registry the only source of packages."""
        for key, value in self.environment().items():
            patch.setenv(key, value)

    def environment(self) -> dict[str, str]:
        """The environment of the package managers."""
        return {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.folder),
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_CONFIG_FILE": "/dev/null",
            "PATH": f"{self.tools}:/usr/bin:/bin",
        }

    def wheel(self, members: Mapping[str, bytes]) -> Path:
        """Writes a wheel with these members."""
        path = self.folder / f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
        info = f"{NAME.replace('-', '_')}-{VERSION}.dist-info"
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
            file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
            file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{info}/RECORD", "")
        return path

    def source(self, members: Mapping[str, bytes]) -> Path:
        """Writes a source package with these members below its folder."""
        path = self.folder / f"{NAME}-{VERSION}.tar.gz"
        tar_of({f"{NAME}-{VERSION}/{name}": content for name, content in members.items()}, path)
        return path

    def index(self, archives: Mapping[str, Path]) -> None:
        """Writes a package index of these archives by name, in the folder `simple`."""
        for name, archive in archives.items():
            folder = self.folder / "simple" / name
            folder.mkdir(parents=True)
            (folder / "index.html").write_text(f'<a href="{archive.as_uri()}">{archive.name}</a>')

    def npm(self, script: str) -> None:
        """Puts an `npm` script with these lines on the path."""
        path = self.tools / "npm"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def tar_of(members: Mapping[str, bytes], path: Path, links: Mapping[str, str] | None = None) -> Path:
    """Writes a .tar.gz with files and symbolic links."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return path


def package(manager: Manager, archive: Path | None = None, *, optional: bool = False) -> Package:
    """Pins an archive by its digest; without one, by a digest of no file."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest() if archive is not None else "0" * 64
    separator = {"pip": "==", "npm": "@", "apt": "="}[manager]
    return Package(manager, f"{NAME}{separator}{VERSION}", digest, 1_000, optional=optional)


def made_up(*packages: Package) -> DataSet:
    """A data set of fake packages."""
    what, terms = "numbers to count", "For counting only."
    return DataSet("numbers", "none.py", what, 3, "numbers.csv", "CC0-1.0", packages, restrictions=terms)

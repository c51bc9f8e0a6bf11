"""The folder of the fetched data sets. A set appears there whole or not at all.

A set is a folder with a `SOURCE.txt`. It is prepared under another name and renamed, so a folder with its name is
complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.datasets.catalog import DatasetEntry
from tputui.exit_codes import ExitCode


class CannotFetch(Exception):
    """A set cannot be fetched; the text is one sentence, `code` is the exit code of the command."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolFailed(CannotFetch):
    """A package manager is missing or could not download. An optional package is then left out."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.ENVIRONMENT, message)


SOURCE = "SOURCE.txt"


def root(environ: Mapping[str, str]) -> Path:
    """The folder of all sets: $TPUTUI_DATA, else $XDG_CACHE_HOME/tputui/data, else ~/.cache/tputui/data."""
    if environ.get("TPUTUI_DATA"):
        return Path(environ["TPUTUI_DATA"]).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "tputui/data"


def recipe_line(entry: DatasetEntry) -> str:
    """The line of `SOURCE.txt` that distinguishes a current copy from one prepared by an older tputui."""
    return f"set: {entry.name}, recipe {entry.recipe}"


def is_prepared(entry: DatasetEntry, place: Path) -> bool:
    """Whether `place` holds the set as this version prepares it."""
    try:
        first = (place / SOURCE).read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return False
    return first == recipe_line(entry)


@contextlib.contextmanager
def prepare_folder(place: Path) -> Iterator[Path]:
    """An empty folder beside `place` that replaces `place` if the block succeeds, and is removed if it fails.

    If the block leaves the folder empty, `place` is unchanged. One process at a time; leftovers of killed processes are
    removed. Raises `CannotFetch` if `place` holds other files, and `OSError`.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.parent / f".{place.name}.lock"):
        check_free(place)
        for stale in place.parent.glob(f".{place.name}.part-*"):
            shutil.rmtree(stale, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f".{place.name}.part-", dir=place.parent))
        try:
            made = part / "made"
            made.mkdir()
            yield made
            if any(made.iterdir()):
                if place.exists():
                    place.rename(part / "old")
                made.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock on the file at `path`, and removes the file afterwards."""
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_at(lock.fileno(), path):
                # The previous holder removed the file while this process waited for it.
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def check_free(place: Path) -> None:
    """Raises `CannotFetch` if `place` holds something other than a set."""
    if place.is_dir() and ((place / SOURCE).is_file() or not any(place.iterdir())):
        return
    if place.exists():
        words = f"{place} contains other files; choose another folder with --to, or move it away"
        raise CannotFetch(ExitCode.USAGE, words)

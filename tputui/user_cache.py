"""The folders of the user's cache, which nobody else can read or change, whatever the umask.

$XDG_CACHE_HOME/tputui, else ~/.cache/tputui
  imports/    logs of other programs that were read
  mirrors/    copies of runs of other machines
  ssh/        sockets of shared connections
  data/       data sets, unless $TPUTUI_DATA names another folder
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from tputui.home_paths import expanded

SOURCE = "SOURCE.txt"
"""The file in the folder of a data set with its origin; its first line is `set: NAME, recipe NUMBER`."""
_ELSEWHERE = "set XDG_CACHE_HOME to a folder of yours"
_OF_OTHERS = 0o022
"""Write permission of the group and of all."""


def folder_of(name: str, environ: Mapping[str, str]) -> Path:
    """The folder `name` of the cache, by the XDG base directories. Raises `OSError` if there is no home directory."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path(os.path.expanduser("~")) / ".cache"
    if not base.is_absolute():
        raise OSError(errno.ENOENT, f"you have no home directory for the cache; {_ELSEWHERE}")
    return base / "tputui" / name


def holds(run_dir: Path, name: str, environ: Mapping[str, str]) -> bool:
    """Whether a run directory is one of the folder `name` of the cache: `mirrors` or `imports`."""
    try:
        return run_dir.absolute().parent == folder_of(name, environ)
    except OSError:
        return False


def data_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the data sets, each in a folder of its name: $TPUTUI_DATA, else one of the cache.

    Raises `OSError`, whose `strerror` is a sentence for the user, if there is no home directory.
    """
    if not environ.get("TPUTUI_DATA"):
        return folder_of("data", environ)
    try:
        return expanded(environ["TPUTUI_DATA"]).absolute()
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, f"TPUTUI_DATA: {error}") from None


def create(folder: Path) -> None:
    """Creates a folder of the cache with those above it, all for this user only.

    Takes the right to write away from others if the folder, or the cache, is this user's. Raises `OSError`, whose
    `strerror` is a sentence for the user.
    """
    try:
        create_missing(folder)
        for path in (folder.parent, folder):
            status = path.stat()
            if status.st_uid == os.geteuid() and status.st_mode & _OF_OTHERS:
                path.chmod(stat.S_IMODE(status.st_mode) & ~_OF_OTHERS)
    except OSError as error:
        message = f"the cache {folder} cannot be created ({error.strerror}); {_ELSEWHERE}"
        raise OSError(error.errno, message) from None
    if not is_private(folder):
        raise PermissionError(errno.EACCES, f"other users can change the cache {folder.parent}; {_ELSEWHERE}")


def create_missing(folder: Path) -> None:
    """Creates a folder and those above it that are missing, all for this user only. Raises `OSError`."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        # `Path.mkdir` applies its mode to the last folder only.
        missing.mkdir(mode=0o700, exist_ok=True)


def is_private(folder: Path) -> bool:
    """Whether a folder of the cache, and the cache itself, is this user's, and nobody else can change them."""
    try:
        statuses = [path.stat() for path in (folder.parent, folder)]
    except OSError:
        return False
    return all(status.st_uid == os.geteuid() and not status.st_mode & _OF_OTHERS for status in statuses)

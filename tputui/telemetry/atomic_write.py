"""Writes files and folders that appear under their names whole or not at all, also if the process is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_NAME_CHARS = 60
"""Of the final name in the temporary one, which may be at most 255 bytes long."""


def write(
    path: Path, fill: Callable[[BinaryIO], object], *, replace: bool = True, only_owner: bool = True, sync: bool = True
) -> int:
    """Writes a file, durably if `sync`, and returns its size in bytes.

    Only the owner can read it, or, without `only_owner`, whoever the umask allows. Raises `FileExistsError` without
    `replace` if the name is taken, other `OSError`s, and what `fill` raises.
    """
    with becoming(path, replace=replace) as temporary:
        fd = open_new(temporary, os.O_WRONLY, only_owner=only_owner)
        with os.fdopen(fd, "wb") as file:
            fill(file)
            file.flush()
            if sync:
                os.fsync(fd)
            return file.tell()


def open_new(path: Path, access: int, *, only_owner: bool = True) -> int:
    """Opens an empty file: for its owner only, whatever the umask, or else for those whom the umask allows."""
    flags = access | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600 if only_owner else 0o666)
    if only_owner:
        os.fchmod(fd, 0o600)
    return fd


@contextlib.contextmanager
def becoming(path: Path, *, replace: bool = True, suffix: str = "") -> Iterator[Path]:
    """A temporary name, ending in `suffix`, for a file or folder that gets the name `path` at the end of the block.

    It is removed if the block fails. Raises `FileExistsError` without `replace` if the name is taken, also if only
    after the block, and other `OSError`s.
    """
    if not replace and os.path.lexists(path):
        raise FileExistsError(path)
    temporary = path.with_name(f".{path.name[:_NAME_CHARS]}.{os.getpid()}.tmp{suffix}")
    try:
        yield temporary
        if replace:
            temporary.rename(path)
        else:
            _give_new_name(temporary, path)
    finally:
        # Renaming a name onto another link of the same file does nothing and leaves both.
        _remove(temporary)


def _give_new_name(temporary: Path, path: Path) -> None:
    """Gives a file or folder a name that nothing else has. Raises `FileExistsError` and other `OSError`s."""
    if not temporary.is_dir():
        try:
            return os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:
            pass  # The file system has no links.
    # A folder cannot replace a folder that is not empty.
    if os.path.lexists(path):
        raise FileExistsError(path)
    temporary.rename(path)


def _remove(temporary: Path) -> None:
    if temporary.is_dir() and not temporary.is_symlink():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)

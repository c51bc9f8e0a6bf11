"""Writes files of the engine whole or not at all, durably, verified by reading them back, and under several names."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tputui.reporting import becoming, open_new


def write_checked(path: Path, fill: Callable[[Any], object], note: Callable[[str], None]) -> tuple[int, str]:
    """Writes a file atomically and durably, and reads it back before it gets its name. Returns its bytes and digest.

    `fill` writes to the file it is given, front to end; `note` is called with the digest before the file gets its name.
    The file is read back from the disk, as far as the system drops its cached pages. Raises `OSError`, also if the
    bytes read differ from those written, and what `fill` and `note` raise.
    """
    with becoming(path) as temporary:
        fd = open_new(temporary, os.O_RDWR)
        with os.fdopen(fd, "r+b") as file:
            meant = _Hashed(file)
            meant.fill(fill)
            file.flush()
            os.fsync(fd)
            size = file.tell()
            if sys.platform == "linux":
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != meant.digest:
            raise OSError(f"the disk returned other bytes than were written ({size} bytes)")
        note(digest)
    return size, digest


class _Hashed:
    """A file written front to end, with the digest of its intended content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._failure: OSError | None = None

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def fill(self, fill: Callable[[Any], object]) -> None:
        """Calls `fill`. Raises the error of the disk, which a native writer may replace by one of its own."""
        try:
            fill(self)
        except Exception as error:
            if self._failure is not None and error is not self._failure:
                raise self._failure from error
            raise

    def write(self, content: Any) -> int:
        self._sha256.update(content)
        try:
            return self._file.write(content)
        except OSError as error:
            self._failure = error
            raise

    def flush(self) -> None:
        self._file.flush()


def link(path: Path, name: Path) -> None:
    """Makes `name` another link of the file, atomically replacing what it named before."""
    with becoming(name) as temporary:
        temporary.unlink(missing_ok=True)
        os.link(path, temporary)


def duplicate(path: Path, name: Path) -> None:
    """Makes `name` the same as the file: a link, or a durable copy if the file system has no links."""
    try:
        link(path, name)
    except OSError:
        with (
            becoming(name) as temporary,
            path.open("rb") as source,
            os.fdopen(open_new(temporary, os.O_WRONLY), "wb") as file,
        ):
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Makes the entries of a directory durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Files that are written whole or not at all. Pure but for the disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple


class Written(NamedTuple):
    """A file on disk."""

    bytes: int
    sha256: str


def write(path: Path, fill: Callable[[BinaryIO], object]) -> int:
    """Writes a file whole or not at all, durably, and returns its size. Raises `OSError`, and what `fill` raises."""
    with _becoming(path) as temporary, os.fdopen(_open(temporary, os.O_WRONLY), "wb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def write_checked(path: Path, fill: Callable[[Any], object], note: Callable[[str], None]) -> Written:
    """Writes a file whole or not at all, durably, and reads it back before it gets its name.

    `fill` writes to what it is given, from front to end; `note` is told the digest before the file has its name. What
    is read back comes from the disk, as far as the system gives up the pages that it holds of it. Raises `OSError`,
    also where other bytes were read than were written, and what `fill` and `note` raise.
    """
    with _becoming(path) as temporary:
        fd = _open(temporary, os.O_RDWR)
        with os.fdopen(fd, "r+b") as file:
            meant = _Hashed(file)
            meant.fill(fill)
            file.flush()
            os.fsync(fd)
            size = file.tell()
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != meant.digest:
            raise OSError(f"what was read back from the disk is not what was written to it ({size} bytes)")
        note(found)
    return Written(size, found)


def _open(path: Path, access: int) -> int:
    """Opens a new file for its owner alone, whatever umask the user's code has set."""
    fd = os.open(path, access | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    return fd


@contextmanager
def _becoming(path: Path) -> Iterator[Path]:
    """The name under which a file is made; at the end it becomes `path`. Nothing is left where that is not reached."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.rename(path)
    finally:
        # Renaming a name onto another of the same file does nothing, and leaves both.
        temporary.unlink(missing_ok=True)


class _Hashed:
    """A file that is written from front to end, and the digest of what was meant to be in it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._failure: OSError | None = None

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def fill(self, fill: Callable[[Any], object]) -> None:
        """Has it filled. Raises what the disk said, which a writer in native code turns into words of its own."""
        try:
            fill(self)
        except Exception as error:
            if self._failure is not None and error is not self._failure:
                raise self._failure from error
            raise

    def write(self, content: Any) -> int:
        """Appends."""
        self._sha256.update(content)
        try:
            return self._file.write(content)
        except OSError as error:
            self._failure = error
            raise

    def flush(self) -> None:
        """Hands over what is buffered."""
        self._file.flush()


def link(path: Path, name: Path) -> None:
    """Makes `name` a further name of the file, in place of what it named before, at no moment naming nothing."""
    with _becoming(name) as temporary:
        temporary.unlink(missing_ok=True)
        os.link(path, temporary)


def duplicate(path: Path, name: Path) -> None:
    """Makes `name` the same as the file: a further name of it, or a durable copy where the file system has none."""
    try:
        link(path, name)
    except OSError:
        with (
            _becoming(name) as temporary,
            path.open("rb") as source,
            os.fdopen(_open(temporary, os.O_WRONLY), "wb") as file,
        ):
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Files of a run: written whole or not at all, only plain ones opened and read within bounds, and the space for them.

A pipe in the place of a file would block, a device might start, and a hole of a terabyte would be read to its end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
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


def write_all(fd: int, content: bytes) -> None:
    """Writes all bytes, which one call of the system may not do. Raises `OSError`."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


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


FULL_BYTES = 64 << 10
"""A disk with less free space counts as full."""
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE: blocks are allocated behind the end of the file."""


def free_bytes(directory: Path) -> int | None:
    """Bytes that this user can still write to the disk of a directory; None if that cannot be read."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return None
    return disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)


def free_inodes(directory: Path) -> int | None:
    """Number of files that this user can still create on the disk of a directory; None if it has no such limit."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return None
    if not disk.f_files:
        return None
    return disk.f_ffree if os.geteuid() == 0 else disk.f_favail


def reason(error: OSError, directory: Path) -> str:
    """Why a file could not be written below a directory: the system's words, and whether inodes are what is missing."""
    message = error.strerror or str(error)
    if error.errno == errno.ENOSPC and free_inodes(directory) == 0:
        return f"{message}: the disk has no free inodes; delete files there"
    return message


class ReservedSpace:
    """Keeps some blocks behind the end of a growing file, so that it still grows for a while after the disk is full.

    File systems that cannot reserve blocks are left alone.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        """Opens an existing file. Raises `OSError`."""
        import ctypes  # By writers alone: it delays the first frame of viewers.

        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._num_bytes = num_bytes
        self._end = 0
        self._allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
        if self._allocate is not None:
            self._allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def renew(self) -> None:
        """Reserves the bytes anew if half of them were used."""
        if self._allocate is None:
            return
        size = os.fstat(self._fd).st_size
        if size + self._num_bytes // 2 <= self._end:
            return
        if self._allocate(self._fd, _KEEP_SIZE, size, self._num_bytes) == 0:
            self._end = size + self._num_bytes

    def close(self) -> None:
        """Returns the blocks that were not used. Only after the last write to the file."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size)
        os.close(self._fd)


EXTENTS_MAX = 4_096


def open_plain(path: Path) -> int:
    """Opens a regular file for reading. Raises `OSError`, also for a pipe, a device or a directory.

    The type is checked before the file is opened: opening a pipe would block, and opening a device may start it.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise _not_plain(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_plain(path)
    return fd


@contextlib.contextmanager
def reading(path: Path) -> Iterator[int]:
    """A descriptor of a regular file that is open for reading. Raises `OSError` as `open_plain` does."""
    fd = open_plain(path)
    try:
        yield fd
    finally:
        os.close(fd)


def read_at(path: Path, offset: int, max_bytes: int) -> bytes:
    """Bytes of a regular file from an offset on. Raises `OSError`."""
    with reading(path) as fd:
        return os.pread(fd, max_bytes, offset)


def read_small(path: Path, max_bytes: int) -> bytes:
    """The content of a small regular file. Raises `OSError`, also if it is longer than `max_bytes`."""
    fd = open_plain(path)
    with os.fdopen(fd, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is longer than {max_bytes} bytes", str(path))
    return content


def next_data(fd: int, offset: int) -> int:
    """Offset of the first byte at or after `offset` that is not in a hole; the file size if there is none."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        # A file system without holes raises another error.
        return max(offset, os.fstat(fd).st_size) if error.errno == errno.ENXIO else offset


def data_extents(fd: int) -> list[tuple[int, int]]:
    """Start and end of the first `EXTENTS_MAX` regions of a file that are not holes."""
    extents: list[tuple[int, int]] = []
    size, start = os.fstat(fd).st_size, 0
    while (start := next_data(fd, start)) < size:
        end = size if len(extents) == EXTENTS_MAX else _next_hole(fd, start, size)
        extents.append((start, end))
        start = end
    return extents


def _next_hole(fd: int, offset: int, size: int) -> int:
    try:
        return max(offset + 1, os.lseek(fd, offset, os.SEEK_HOLE))
    except OSError:
        return size


def _not_plain(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))

"""Free space on the disk of a directory, and space that is reserved for a file which another process appends to."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from pathlib import Path

FULL_BYTES = 64 << 10
"""A disk with less free space counts as full."""
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE: blocks are allocated behind the end of the file."""


def free_bytes(directory: Path) -> int | None:
    """Bytes that this user can still write to the disk of a directory; None if that cannot be read."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)


def free_inodes(directory: Path) -> int | None:
    """Number of files that this user can still create on the disk of a directory; None if it has no such limit."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    if not found.f_files:
        return None
    return found.f_ffree if os.geteuid() == 0 else found.f_favail


def reason(error: OSError, directory: Path) -> str:
    """Why a file could not be written below a directory: the system's words, and whether inodes are what is missing."""
    words = error.strerror or str(error)
    if error.errno == errno.ENOSPC and free_inodes(directory) == 0:
        return f"{words}: the disk has no free inodes; delete files there"
    return words


class ReservedSpace:
    """Keeps some blocks behind the end of a growing file, so that it still grows for a while after the disk is full.

    File systems that cannot reserve blocks are left alone.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        """Opens an existing file. Raises `OSError`."""
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._num_bytes = num_bytes
        self._end = 0
        self._allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)

    def renew(self) -> None:
        """Reserves the bytes anew if half of them were used."""
        if self._allocate is None:
            return
        size = os.fstat(self._fd).st_size
        if size + self._num_bytes // 2 <= self._end:
            return
        length = ctypes.c_int64(self._num_bytes)
        if self._allocate(self._fd, _KEEP_SIZE, ctypes.c_int64(size), length) == 0:
            self._end = size + self._num_bytes

    def close(self) -> None:
        """Returns the blocks that were not used. Only after the last write to the file."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size)
        os.close(self._fd)

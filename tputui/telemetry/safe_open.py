"""Opens untrusted files of a run: only regular files, with bounded reads.

Otherwise a pipe would block, a device might start, and a hole of a terabyte would be read to its end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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

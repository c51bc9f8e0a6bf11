"""Files that are written whole or not at all. Pure but for the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write(path: Path, fill: Callable[[BinaryIO], object]) -> int:
    """Writes a file whole or not at all, durably, and returns its size. Raises `OSError`, and what `fill` raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def link(path: Path, name: Path) -> None:
    """Makes `name` a further name of the file, in place of what it named before, at no moment naming nothing."""
    temporary = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    os.link(path, temporary)
    try:
        temporary.rename(name)
    finally:
        # Renaming a name onto another of the same file does nothing, and leaves both.
        temporary.unlink(missing_ok=True)


def duplicate(path: Path, name: Path) -> None:
    """Makes `name` the same as the file: a further name of it, or a durable copy where the file system has none."""
    try:
        link(path, name)
    except OSError:
        temporary = name.with_name(f".{name.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(path, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.rename(name)
        finally:
            temporary.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

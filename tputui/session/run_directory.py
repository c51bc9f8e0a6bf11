"""The directory of an opened run, which a viewer keeps if it is renamed or moved while it is watched."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_DELETED = " (deleted)"
"""What the kernel appends to the path of a removed directory."""


class RunDirectory:
    """A directory that is held by a descriptor, where the system can open paths through one."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist."""
        self._given = path
        self._fd: int | None = None
        self.files = path
        """Where to read its files: valid under every name that the directory gets."""
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held = Path(f"/proc/self/fd/{self._fd}")
            self.files = held if held.is_dir() else path

    @property
    def path(self) -> Path:
        """Its path as it was given; its new one if it was renamed or moved."""
        if self._fd is None or self.files == self._given:
            return self._given
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(self._given), os.fstat(self._fd)):
                return self._given
        target = os.readlink(self.files)
        return self._given if target.endswith(_DELETED) else Path(target)

    @property
    def is_gone(self) -> bool:
        """Whether there is no such directory any more, under any name."""
        return not self.path.is_dir()

    def close(self) -> None:
        """Closes the descriptor. The directory then has the path that it has now."""
        if self._fd is not None:
            self._given = self.files = self.path
            os.close(self._fd)
            self._fd = None

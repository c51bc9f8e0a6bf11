"""A system clock that a test sets for the processes that it starts; those of others keep theirs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_PATCH = """
import mmap, os, struct, time

with open(os.environ["SYSTEM_CLOCK_FILE"], "rb") as file:
    _ahead = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
_real = time.time
time.time = lambda: _real() + struct.unpack("<d", _ahead)[0]
"""


class SystemClock:
    """The clock of the Python processes that are started with `env`."""

    def __init__(self, folder: Path, ahead_s: float = 0.0) -> None:
        """`ahead_s`: seconds that it is ahead of the real one at first."""
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_PATCH)
        self._file = folder / "ahead"
        self._file.write_bytes(struct.pack("<d", ahead_s))
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.env = {"PYTHONPATH": path, "SYSTEM_CLOCK_FILE": str(self._file)}

    def set(self, ahead_s: float) -> None:
        """Sets it, in all of the processes at once."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<d", ahead_s))

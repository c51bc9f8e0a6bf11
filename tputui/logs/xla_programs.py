"""Reads the sizes of programs that torch_xla writes about its compilations, if `PT_XLA_DEBUG_FILE` is set."""

from __future__ import annotations

import re
from pathlib import Path

VARIABLES = ("PT_XLA_DEBUG_LEVEL", "PT_XLA_DEBUG_FILE", "PT_XLA_DEBUG")
"""Environment variables that make torch_xla write them."""
BYTES_MAX = 16 << 20
"""More of the file is not read; a compilation takes 2 KB."""
_GIB = 1 << 30
_SIZE = re.compile(
    rb"^Post Compilation Analysis: (Graph input|Graph output|Aliased Input|Intermediate tensor|Compiled program) size: "
    rb"([0-9]{1,9}\.[0-9]{1,9}) GB$",
    re.M,
)
_LAST = b"Compiled program"


def variables(path: Path | None) -> dict[str, str]:
    """The environment variables that make torch_xla write them into a file; empty for None."""
    return {} if path is None else {"PT_XLA_DEBUG_LEVEL": "1", "PT_XLA_DEBUG_FILE": str(path)}


def largest_program(path: Path) -> int | None:
    """Bytes that the largest program takes on a device: inputs, outputs that are not written in place, intermediate
    results and code. None if the file describes no program that takes memory. Raises `OSError`."""
    with path.open("rb") as file:
        content = file.read(BYTES_MAX)
    largest = 0.0
    sizes: dict[bytes, float] = {}
    for name, gibibytes in _SIZE.findall(content):
        sizes[name] = float(gibibytes)
        if name == _LAST:
            total = sum(sizes.values()) - 2 * sizes.get(b"Aliased Input", 0.0)
            largest = max(largest, total)
            sizes = {}
    return round(largest * _GIB) if largest else None

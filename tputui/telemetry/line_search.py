"""Finds the events of a few kinds in a plain journal as it grows, without decoding the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tputui.telemetry.codec import DamagedLine, decode
from tputui.telemetry.events import Event
from tputui.telemetry.safe_open import open_plain

_CHUNK_BYTES = 1 << 20


class LineSearch:
    """The events of some kinds in one journal."""

    def __init__(self, path: Path, *kinds: type[Event]) -> None:
        self.newest_t: float | None = None
        """Time of the last whole line that was read; None if there is none."""
        self._path = path
        self._starts = tuple(b'{"k":"%s"' % kind.__name__.encode() for kind in kinds)
        self._offset = 0

    @property
    def is_begun(self) -> bool:
        """Whether something was read."""
        return self._offset > 0

    def fresh(self) -> list[Event]:
        """The events of these kinds that were added since the last call, except damaged ones. Raises `OSError`."""
        fd = open_plain(self._path)
        try:
            return list(self._search(fd))
        finally:
            os.close(fd)

    def _search(self, fd: int) -> Iterator[Event]:
        size = os.fstat(fd).st_size
        while self._offset < size:
            chunk = os.pread(fd, _CHUNK_BYTES, self._offset)
            end = chunk.rfind(b"\n") + 1
            if not end:
                if len(chunk) < _CHUNK_BYTES:
                    return  # the last line is still written
                end = len(chunk)
            self._offset += end
            if any(start in chunk for start in self._starts):
                for line in chunk[:end].split(b"\n"):
                    if line.startswith(self._starts) and (found := _decoded(line)) is not None:
                        yield found
            last = _decoded(chunk[chunk.rfind(b"\n", 0, end - 1) + 1 : end])
            self.newest_t = last.t if last is not None else self.newest_t


def _decoded(line: bytes) -> Event | None:
    try:
        return decode(line).event
    except DamagedLine:
        return None

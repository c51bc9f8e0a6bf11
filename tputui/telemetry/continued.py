"""Continues a journal whose writer has ended: the training processes of a run that was restarted append to the journals
of the processes that they replace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tputui.telemetry import rundir
from tputui.telemetry.codec import SHORTEST_LINE, DamagedLine, NumberedEvent, decode
from tputui.telemetry.events import JournalOpened
from tputui.telemetry.journal import LINE_BYTES_MAX, SUFFIX, Bookmark, JournalWriter
from tputui.telemetry.safe_open import open_plain

_CHUNK_BYTES = 1 << 20
_HEAD_START = b'{"k":"JournalOpened"'


class StillWritten(FileExistsError):
    """A journal cannot be continued, because the process that writes it is alive."""


def continue_journal(path: Path) -> JournalWriter:
    """A writer that appends to a journal; a new one if there is none.

    An incomplete last line is removed, so an event that was being written when its process ended is lost whole.
    Raises `StillWritten` if the process that opened it last is alive on this host, `FileExistsError` if it was sealed,
    and `OSError`.
    """
    if path.with_name(path.name.removesuffix(SUFFIX) + rundir.SEALED_SUFFIX).exists():
        raise FileExistsError(f"{path} was sealed; its run has ended")
    try:
        fd = open_plain(path)
    except FileNotFoundError:
        return JournalWriter(path)
    try:
        lines = _Backwards(fd)
        end = _end(lines, path)
        opened = _newest_head(lines)
    finally:
        os.close(fd)
    if opened is not None and rundir.is_alive(rundir.process_of(opened)):
        raise StillWritten(f"{path} is still written by process {opened.pid}")
    return JournalWriter.continued(path, end)


def newest_head(path: Path) -> JournalOpened | None:
    """The head that the newest process of a journal wrote; None if there is none, or it cannot be read."""
    try:
        fd = open_plain(path)
    except OSError:
        return None
    try:
        return _newest_head(_Backwards(fd))
    except OSError:
        return None
    finally:
        os.close(fd)


class _Backwards:
    """The whole lines of a file, from the last one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = os.fstat(fd).st_size

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """The offset after each line, and the line without its newline; text after the last newline is not one."""
        start, after, begun, is_whole = self._size, self._size, b"", False
        while start > 0:
            size = min(_CHUNK_BYTES, start)
            start -= size
            begun, *lines = (os.pread(self._fd, size, start) + begun).split(b"\n")
            for line in reversed(lines):
                if is_whole:
                    yield after, line
                after -= len(line) + is_whole
                is_whole = True
            if len(begun) > LINE_BYTES_MAX:
                # It is no event, whatever comes before it.
                after, begun = after - len(begun), b""
        if is_whole:
            yield after, begun


def _end(file: _Backwards, path: Path) -> Bookmark:
    """The position after the last whole line, with the number and the journal id of the last valid event."""
    last = 0
    for offset, line in file:
        last = last or offset
        numbered = _decoded(line)
        if numbered is not None:
            return Bookmark(path.name, last, numbered.seq + 1, journal_id=numbered.journal_id)
    return Bookmark(path.name, last)


def _newest_head(file: _Backwards) -> JournalOpened | None:
    """The head that was written last; None if there is none."""
    for _, line in file:
        numbered = _decoded(line) if line.startswith(_HEAD_START) else None
        if numbered is not None and isinstance(numbered.event, JournalOpened):
            return numbered.event
    return None


def _decoded(line: bytes) -> NumberedEvent | None:
    try:
        return decode(line) if len(line) >= SHORTEST_LINE else None
    except DamagedLine:
        return None

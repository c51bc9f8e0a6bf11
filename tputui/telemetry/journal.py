"""Writes and reads journals: append-only files of event lines, one per process.

`JournalWriter` appends whole lines. `Tail` reads a file that may still grow and continues where it stopped. An
incomplete last line is read later. A damaged line is reported and reading continues after the next newline; the gap in
the sequence numbers gives the number of lost events. Nothing is locked, so readers cannot block a writer. Journals are
untrusted input: memory is bounded whatever they contain, holes are skipped, and only regular files are opened. Secrets
in events are masked before they are written. Must not interpret events.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry.codec import SHORTEST_LINE, Damage, DamagedLine, NumberedEvent, decode, encode, journal_id_of
from tputui.telemetry.events import Event, WarningRaised
from tputui.telemetry.files import next_data, open_plain, reading

SUFFIX = ".jsonl"
LINE_BYTES_MAX = 16 << 20
"""More bytes than this without a newline are damage: the largest event, 2,048 cores x 256 steps, takes 3 MB."""
READ_BYTES = 1 << 20
FOREIGN = "it is an event of another journal"
_ID_LINES = 64
"""Lines that a reader examines to find the id of the journal."""
WHY_CHARS_MAX = 500
_CUT_BYTES = 4_096
"""Bytes of an incomplete line that are compared with the file before more of it is read."""
REGIONS_MAX = 1_000
"""Damaged regions of a journal that are reported separately; later ones are reported as a single region."""
TOO_MANY = "more damage follows, which is not listed"
_REPEATED = "are repeated"
REREAD_S = 1.0
"""Least seconds between two looks at damage that may have become whole."""
_REREAD_BYTES = 1 << 20
"""Bytes of damaged regions that are looked at again, at most."""
_ZEROS = "zeros instead of events"
_COARSE_S = 0.02
"""Changes of a file within this time may have the same time of change."""


class JournalWriter:
    """Appends events to a new journal file, readable only by its owner. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Creates the file. Raises `FileExistsError` if it exists: a journal has exactly one writer."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._begin(Bookmark(path.name))

    @classmethod
    def continued(cls, path: Path, end: Bookmark) -> JournalWriter:
        """Continues a journal after the position `end`; lines after it are removed.

        Only for a journal whose earlier writer is known to have ended. Raises `OSError`, also if the file is shorter.
        """
        writer = cls.__new__(cls)
        writer._begin(end._replace(journal=path.name))
        writer._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        size = os.fstat(writer._fd).st_size
        if size < end.offset:
            os.close(writer._fd)
            raise OSError(f"{path} has {size:,} bytes; at least {end.offset:,} were expected")
        if size > end.offset:
            os.ftruncate(writer._fd, end.offset)
        return writer

    def _begin(self, end: Bookmark) -> None:
        # Imported by writers alone: it delays the first frame of viewers.
        from tputui.telemetry.masking import TEXT_CHARS_MAX, FieldMasker

        self._name = end.journal
        self._seq = end.next_seq
        self._journal_id = end.journal_id
        self._unsent = memoryview(b"")
        self._masker = FieldMasker(TEXT_CHARS_MAX)

    @property
    def end(self) -> Bookmark:
        """The position after everything that was written."""
        size = os.fstat(self._fd).st_size
        return Bookmark(self._name, size, self._seq, journal_id=self._journal_id)

    def append(self, events: Iterable[Event]) -> None:
        """Writes the events as consecutive lines, with their secrets masked.

        Raises `OSError` if they cannot be written; they are then kept, and `push` continues at the same byte.
        """
        self.push()
        events = [self._masked(event) for event in events]
        if self._journal_id is None and events:
            # The head contains the process, the run and the time, so it is unique to the journal.
            self._journal_id = f"{zlib.crc32(_line(events[0], 0, '')):08x}"
        lines = [_line(event, self._seq + offset, self._journal_id or "") for offset, event in enumerate(events)]
        self._seq += len(lines)
        self._unsent = memoryview(b"".join(lines))
        self.push()

    def _masked(self, event: Event) -> Event:
        """The event without its secrets, or a warning if it has values of wrong types."""
        try:
            return self._masker.masked(event)
        except Exception as error:  # noqa: BLE001, RUF100 - it would end the writing thread; it is reported
            why = self._masker.text(repr(error))[:WHY_CHARS_MAX]
            return WarningRaised(t=event.t, text=f"a {type(event).__name__} could not be written: {why}")

    def push(self) -> None:
        """Writes the lines that an earlier call could not write. Raises `OSError`; nothing is lost then."""
        while self._unsent:
            self._unsent = self._unsent[os.write(self._fd, self._unsent) :]

    @property
    def num_unsent(self) -> int:
        """Number of events that `push` still has to write, including a partly written one."""
        return bytes(self._unsent).count(b"\n")

    def sync(self) -> None:
        """Syncs the file to disk, so that it survives a power cut. Raises `OSError`."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _line(event: Event, seq: int, journal_id: str) -> bytes:
    """The line of an event, or of a warning if the event cannot be encoded or its line is too long."""
    try:
        line = encode(event, seq, journal_id)
        if len(line) <= LINE_BYTES_MAX:
            return line
        why = f"its line has {len(line)} bytes, more than the maximum of {LINE_BYTES_MAX}"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        why = repr(error)[:WHY_CHARS_MAX]
    warning = WarningRaised(t=event.t, text=f"a {type(event).__name__} could not be written: {why}")
    return encode(warning, seq, journal_id)


class JournalPosition(NamedTuple):
    offset: int
    size: int


class Bookmark(NamedTuple):
    """A position between two events of a journal at which any reader can continue."""

    journal: str = ""
    """File name of the journal; empty at its start."""
    offset: int = 0
    """Bytes before it."""
    next_seq: int = 0
    """Number of the next expected event."""
    damage: tuple[Damage, ...] = ()
    """Damage found before it."""
    bad_start: int | None = None
    """Start of a damaged region whose end is not found yet."""
    bad_reason: str = ""
    journal_id: str | None = None
    """Journal id of the events before it; None if none was read."""


class _Zeros(NamedTuple):
    start: int
    state: tuple[int, ...]
    """Of the file when they were found."""
    check_at: float
    """Monotonic time at which they are looked at again in any case."""

    def is_changed(self, status: os.stat_result) -> bool:
        """Whether something else may be there now."""
        return _state_of(status) != self.state or time.monotonic() >= self.check_at


def _state_of(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


START = Bookmark()
"""The start of any journal."""


class Tail:
    """Reads the events of a journal as it grows."""

    def __init__(self, path: Path, keep: Callable[[bytes], object] | None = None) -> None:
        """Opens the file for reading. Calls `keep` with the bytes of every valid line.

        Raises `OSError`, also if it is not a regular file.
        """
        self.name = path.name
        self.damage: list[Damage] = []
        self._keep = keep
        self._fd = open_plain(path)
        self._read_to = 0
        self._partial = b""
        self._expected_seq = 0
        self._journal_id: str | None = None
        self._bad_start: int | None = None
        self._bad_reason = ""
        self._zeros: _Zeros | None = None
        """The zeros at the end of the file, which are not written yet."""
        self._reread_at = -math.inf
        self._reread_state: tuple[int, ...] = ()

    def read(self, max_bytes: int = READ_BYTES) -> list[NumberedEvent]:
        """The valid events in at most `max_bytes` more bytes; an empty list if nothing more was written yet."""
        self._forget_cut_line()
        chunk = os.pread(self._fd, max_bytes, self._read_to)
        if not chunk:
            self._notice_truncation()
            return []
        start = self._read_to - len(self._partial)
        if not chunk[-1]:
            chunk = self._without_zeros(chunk)
            if not chunk:
                return []
        self._zeros = (
            None if self._zeros is not None and self._zeros.start != self._read_to + len(chunk) else self._zeros
        )
        self._read_to += len(chunk)
        if not chunk[0] and not chunk.strip(b"\0"):
            self._pass_zeros(start)
            return []
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if self._journal_id is None:
            self._journal_id = journal_id_of(lines[:_ID_LINES])
        events: list[NumberedEvent] = []
        for line in lines:
            if not line:
                start += 1
                continue
            end = start + len(line) + 1
            self._take(line, start, end, events)
            start = end
        if len(self._partial) > LINE_BYTES_MAX:
            self._mark_bad(start, f"no newline within {LINE_BYTES_MAX} bytes")
            self._partial = b""
        return events

    @property
    def bookmark(self) -> Bookmark:
        """The position after the events that were read."""
        damage = tuple(self.damage)
        return Bookmark(
            self.name, self.offset, self._expected_seq, damage, self._bad_start, self._bad_reason, self._journal_id
        )

    @property
    def offset(self) -> int:
        """Bytes of the whole lines that were read."""
        return self._read_to - len(self._partial)

    def go_to(self, bookmark: Bookmark) -> None:
        self._read_to, self._partial, self._expected_seq = bookmark.offset, b"", bookmark.next_seq
        self._journal_id = bookmark.journal_id
        self.damage = list(bookmark.damage)
        self._bad_start, self._bad_reason = bookmark.bad_start, bookmark.bad_reason
        self._zeros = None

    @property
    def position(self) -> JournalPosition:
        """The offset up to which the file was read, and its current size. Zeros at its end count as read until the file
        changes."""
        status = os.fstat(self._fd)
        is_waiting = self._zeros is not None and not self._zeros.is_changed(status)
        return JournalPosition(status.st_size if is_waiting else self._read_to, status.st_size)

    @property
    def has_more(self) -> bool:
        """Whether the file contains something else than what was read."""
        if self._zeros is not None or self.damage or self._bad_start is not None:
            return self._may_have_more()
        # A third of the time of `fstat`; events are read with offsets, so the position of the file does not matter.
        return os.lseek(self._fd, 0, os.SEEK_END) != self._read_to

    @property
    def is_repaired(self) -> bool:
        """Whether a damaged region contains events now, so that the journal is to be read again from its start."""
        if not self.damage and self._bad_start is None:
            return False
        state = _state_of(os.fstat(self._fd))
        if not self._lost_regions() or state == self._reread_state or time.monotonic() < self._reread_at:
            return False
        self._reread_at, self._reread_state = time.monotonic() + REREAD_S, state
        num_left = _REREAD_BYTES
        for start, end in self._lost_regions():
            content = os.pread(self._fd, min(end - start, num_left), start)
            num_left -= len(content)
            if any(self._is_event(line) for line in content.split(b"\n") if len(line) >= SHORTEST_LINE):
                return True
        return False

    def regions(self, *, final: bool) -> list[Damage]:
        """The damage found so far. `final`: the writer has exited, so an incomplete last line is damage as well.

        An empty file is none: its writer may have been killed before it wrote anything.
        """
        regions = list(self.damage)
        end = self._read_to
        if self._bad_start is not None:
            regions.append(Damage(self.name, self._bad_start, end - len(self._partial), self._bad_reason, None))
        if final and self._partial:
            regions.append(Damage(self.name, end - len(self._partial), end, "the last line is truncated", None))
        if final and self._zeros is not None:
            regions.append(Damage(self.name, self._zeros.start, os.fstat(self._fd).st_size, _ZEROS, None))
        return regions

    def close(self) -> None:
        os.close(self._fd)

    def _may_have_more(self) -> bool:
        status = os.fstat(self._fd)
        if self._zeros is not None:
            return self._zeros.is_changed(status)
        if status.st_size != self._read_to:
            return True
        is_due = time.monotonic() >= self._reread_at and _state_of(status) != self._reread_state
        return is_due and bool(self._lost_regions())

    def _lost_regions(self) -> list[tuple[int, int]]:
        """Start and end of the regions from which events are missing."""
        regions = [
            (region.start, region.end) for region in self.damage if region.lost_records and region.end > region.start
        ]
        return regions if self._bad_start is None else [*regions, (self._bad_start, self._read_to)]

    def _is_event(self, line: bytes) -> bool:
        try:
            return decode(line).journal_id == self._journal_id or self._journal_id is None
        except DamagedLine:
            return False

    def _without_zeros(self, chunk: bytes) -> bytes:
        """A chunk that ends with zeros; without them if nothing else follows, since they are not written yet."""
        status, offset = os.fstat(self._fd), self._read_to + len(chunk)
        while offset < status.st_size:
            offset = next_data(self._fd, offset)
            more = os.pread(self._fd, READ_BYTES, offset)
            if more.strip(b"\0"):
                return chunk
            offset += max(1, len(more))
        chunk = chunk.rstrip(b"\0")
        age_s = time.time() - status.st_ctime
        check_at = time.monotonic() + _COARSE_S if abs(age_s) < _COARSE_S else math.inf
        self._zeros = _Zeros(self._read_to + len(chunk), _state_of(status), check_at)
        return chunk

    def _forget_cut_line(self) -> None:
        """Starts again after the last whole line, if an incomplete line was removed since it was read.

        A process that continues the journal of one that was killed removes its incomplete last line first.
        """
        tail = self._partial[-_CUT_BYTES:]
        if tail and os.pread(self._fd, len(tail), self._read_to - len(tail)) != tail:
            size, start = os.fstat(self._fd).st_size, self._read_to - len(self._partial)
            if size >= start:
                self._read_to, self._partial = start, b""

    def _take(self, line: bytes, start: int, end: int, events: list[NumberedEvent]) -> None:
        if len(line) < SHORTEST_LINE:
            self._mark_bad(start, "it is too short for an event")
            return
        try:
            numbered = decode(line)
        except DamagedLine as error:
            self._mark_bad(start, str(error))
            return
        if numbered.journal_id != self._journal_id:
            self._mark_bad(start, FOREIGN)
            return
        if numbered.seq < self._expected_seq:
            self._close_region(start, 0)
            self._add_damage(repeated(self.name, start, end, numbered.seq, numbered.seq))
            return
        self._close_region(start, numbered.seq - self._expected_seq)
        self._expected_seq = numbered.seq + 1
        events.append(numbered)
        if self._keep is not None:
            self._keep(line + b"\n")

    def _pass_zeros(self, start: int) -> None:
        """Marks a chunk of zeros as damage, since no line contains one, and skips the rest of a hole."""
        self._mark_bad(start, _ZEROS)
        self._partial = b""
        self._read_to = next_data(self._fd, self._read_to)

    def _mark_bad(self, start: int, reason: str) -> None:
        if self._bad_start is None:
            self._bad_start, self._bad_reason = start, reason

    def _close_region(self, end: int, lost: int) -> None:
        """Ends the damaged region before the valid event at `end`; `lost` is the number of events missing before it."""
        if self._bad_start is not None:
            self._add_damage(Damage(self.name, self._bad_start, end, self._bad_reason, lost))
            self._bad_start = None
        elif lost:
            self._add_damage(Damage(self.name, end, end, "events are missing here", lost))

    def _add_damage(self, damage: Damage) -> None:
        add_damage(self.damage, damage)

    def _notice_truncation(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < self._read_to:
            self._add_damage(Damage(self.name, size, self._read_to, "the file was truncated while it was read", None))
            self._read_to, self._partial = size, b""


def repeated(journal: str, start: int, end: int, first: int, last: int) -> Damage:
    """A region of events that were read before."""
    which = f"event {first} is repeated" if first == last else f"events {first} to {last} {_REPEATED}"
    return Damage(journal, start, end, which, 0)


def add_damage(regions: list[Damage], damage: Damage) -> None:
    """Adds a region, or extends the last one if both are repeated events or there are too many regions."""
    last = regions[-1] if regions else None
    if last is not None and last.end == damage.start and (joined := _joined(last, damage)) is not None:
        regions[-1] = joined
    elif last is None or len(regions) < REGIONS_MAX:
        regions.append(damage)
    else:
        lost = None if damage.lost_records is None else (last.lost_records or 0) + damage.lost_records
        regions[-1] = Damage(damage.journal, last.start, max(last.end, damage.end), TOO_MANY, lost)


def _joined(last: Damage, damage: Damage) -> Damage | None:
    """Two neighbouring regions as one if both are repeated events; otherwise None."""
    before, after = _numbers(last.reason), _numbers(damage.reason)
    if before is None or after is None or before[1] + 1 != after[0]:
        return None
    return repeated(damage.journal, last.start, damage.end, before[0], after[1])


def _numbers(reason: str) -> tuple[int, int] | None:
    """Numbers of the first and the last event in the reason of a region of repeated events; None for other regions."""
    words = reason.split()
    if words[0] == "event" and reason.endswith("is repeated"):
        return int(words[1]), int(words[1])
    return (int(words[1]), int(words[3])) if reason.endswith(_REPEATED) else None


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
        return self._offset > 0

    def fresh(self) -> list[Event]:
        """The events of these kinds that were added since the last call, except damaged ones. Raises `OSError`."""
        with reading(self._path) as fd:
            return list(self._search(fd))

    def _search(self, fd: int) -> Iterator[Event]:
        size = os.fstat(fd).st_size
        while self._offset < size:
            chunk = os.pread(fd, READ_BYTES, self._offset)
            end = chunk.rfind(b"\n") + 1
            if not end:
                if len(chunk) < READ_BYTES:
                    return  # the last line is still written
                end = len(chunk)
            self._offset += end
            if any(start in chunk for start in self._starts):
                for line in chunk[:end].split(b"\n"):
                    if line.startswith(self._starts) and (event := _decoded(line)) is not None:
                        yield event
            last = _decoded(chunk[chunk.rfind(b"\n", 0, end - 1) + 1 : end])
            self.newest_t = last.t if last is not None else self.newest_t


def _decoded(line: bytes) -> Event | None:
    try:
        return decode(line).event
    except DamagedLine:
        return None

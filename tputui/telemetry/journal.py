"""The local queue: one append-only file a writing process.

`JournalWriter` appends whole lines; `Tail` reads a file that may still grow, from where it left off. A half line is
"not yet"; a damaged one is named and stepped over at the next newline, and the gap in the sequence numbers tells how
many records it cost. Neither takes a lock, so no reader can hold up a writer, and any number of readers may come and
go. A journal is a stranger's file: what a reader keeps of it is bounded whatever stands in it, a hole takes no time,
and what is no plain file is not opened. Must not interpret events.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tputui.telemetry.codec import SHORTEST_LINE, DamagedLine, Record, decode, encode, journal_id_of
from tputui.telemetry.events import Event, WarningRaised
from tputui.telemetry.safe_open import next_data, open_plain

SUFFIX = ".jsonl"
LINE_BYTES_MAX = 16 << 20
"""A longer run of bytes without a newline is damage: the widest record, 2,048 cores x 256 steps, takes 3 MB."""
READ_BYTES = 1 << 20
FOREIGN = "it is a record of another journal"
_ID_LINES = 64
"""Lines by which a reader finds out which id the records of a journal have."""
WHY_CHARS_MAX = 500
REGIONS_MAX = 1_000
"""Damaged regions of a journal that are told one by one; what lies beyond is told as one."""
TOO_MANY = "more damage follows, which is not told one by one"
_REPEATED = "stand again"


class JournalWriter:
    """Appends events to a new journal file, readable by its owner alone. Not for use from two threads at once."""

    def __init__(self, path: Path) -> None:
        """Creates the file; raises `FileExistsError` where there is one: a journal has one writer, ever."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._seq = 0
        self._journal_id = ""
        self._unsent = memoryview(b"")

    def append(self, events: Iterable[Event]) -> None:
        """Writes the events as consecutive lines.

        Raises `OSError` where the disk does not take them; they are kept then, and `push` goes on from the very byte.
        """
        self.push()
        events = list(events)
        if not self._journal_id and events:
            # Of the head, which says who writes what run since when: no other journal has the same.
            self._journal_id = f"{zlib.crc32(_line(events[0], 0, '')):08x}"
        lines = [_line(event, self._seq + offset, self._journal_id) for offset, event in enumerate(events)]
        self._seq += len(lines)
        self._unsent = memoryview(b"".join(lines))
        self.push()

    def push(self) -> None:
        """Writes what an earlier call could not. Raises `OSError`, and then nothing is lost."""
        while self._unsent:
            self._unsent = self._unsent[os.write(self._fd, self._unsent) :]

    @property
    def num_unsent(self) -> int:
        """Records that `push` still has to write, the one that is half written among them."""
        return bytes(self._unsent).count(b"\n")

    def sync(self) -> None:
        """Makes what was written outlive a power cut. Raises `OSError`."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def _line(event: Event, seq: int, journal_id: str) -> bytes:
    """The line of an event; one that no reader would take is told instead, and costs no other."""
    try:
        line = encode(event, seq, journal_id)
        if len(line) <= LINE_BYTES_MAX:
            return line
        why = f"its line has {len(line)} bytes, and {LINE_BYTES_MAX} is the most"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        why = repr(error)[:WHY_CHARS_MAX]
    told = WarningRaised(t=event.t, text=f"a {type(event).__name__} could not be written: {why}")
    return encode(told, seq, journal_id)


class Damage(msgspec.Struct, frozen=True):
    """A region of a journal that is not what its writer wrote."""

    journal: str
    """File name of the journal."""
    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte; `start` where records are missing between two sound ones."""
    reason: str
    """How it is known."""
    lost_records: int | None
    """Records it cost, told by the sequence numbers around it; null until the next sound record is read."""


class JournalPosition(NamedTuple):
    """How far a tail has read."""

    offset: int
    size: int


class Bookmark(NamedTuple):
    """A place between two records of a journal, from which a reader goes on as the one that took it would have."""

    journal: str = ""
    """File name of the journal; empty at its start."""
    offset: int = 0
    """Bytes before it."""
    next_seq: int = 0
    """Number of the record that is expected next."""
    damage: tuple[Damage, ...] = ()
    """Damage met before it."""
    bad_start: int | None = None
    """Where damage begins that has not ended yet."""
    bad_reason: str = ""
    journal_id: str | None = None
    """Id that the records before it have; None where none was read."""


START = Bookmark()
"""Before the first record of any journal."""


class Tail:
    """Reads the records of a journal as it grows."""

    def __init__(self, path: Path, keep: Callable[[bytes], object] | None = None) -> None:
        """Opens the file for reading; `keep` is given every line that is read as a record, as it stands.

        Raises `OSError`, also where it is not a plain file.
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

    def read(self, max_bytes: int = READ_BYTES) -> list[Record]:
        """The sound records of at most `max_bytes` more bytes; an empty list is "nothing more yet"."""
        chunk = os.pread(self._fd, max_bytes, self._read_to)
        if not chunk:
            self._notice_truncation()
            return []
        start = self._read_to - len(self._partial)
        self._read_to += len(chunk)
        if not chunk[0] and not chunk.strip(b"\0"):
            self._pass_zeros(start)
            return []
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if self._journal_id is None:
            self._journal_id = journal_id_of(lines[:_ID_LINES])
        records: list[Record] = []
        for line in lines:
            if not line:
                start += 1
                continue
            end = start + len(line) + 1
            self._take(line, start, end, records)
            start = end
        if len(self._partial) > LINE_BYTES_MAX:
            self._mark_bad(start, f"no newline within {LINE_BYTES_MAX} bytes")
            self._partial = b""
        return records

    @property
    def bookmark(self) -> Bookmark:
        """The place after the records that were read."""
        offset = self._read_to - len(self._partial)
        damage = tuple(self.damage)
        return Bookmark(
            self.name, offset, self._expected_seq, damage, self._bad_start, self._bad_reason, self._journal_id
        )

    def go_to(self, place: Bookmark) -> None:
        """Reads on from a place of this journal."""
        self._read_to, self._partial, self._expected_seq = place.offset, b"", place.next_seq
        self._journal_id = place.journal_id
        self.damage = list(place.damage)
        self._bad_start, self._bad_reason = place.bad_start, place.bad_reason

    @property
    def position(self) -> JournalPosition:
        """How far it has read, and how long the file is now."""
        return JournalPosition(self._read_to, os.fstat(self._fd).st_size)

    def regions(self, *, final: bool) -> list[Damage]:
        """The damage met so far. `final` says that the writer is gone, so that a half line is damage too."""
        regions = list(self.damage)
        end = self._read_to
        if self._bad_start is not None:
            regions.append(Damage(self.name, self._bad_start, end - len(self._partial), self._bad_reason, None))
        if final and self._partial:
            regions.append(Damage(self.name, end - len(self._partial), end, "the last line is cut", None))
        if final and end == 0:
            regions.append(Damage(self.name, 0, 0, "the file is empty", None))
        return regions

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    def _take(self, line: bytes, start: int, end: int, records: list[Record]) -> None:
        if len(line) < SHORTEST_LINE:
            self._mark_bad(start, "it is too short for a record")
            return
        try:
            record = decode(line)
        except DamagedLine as error:
            self._mark_bad(start, str(error))
            return
        if record.journal_id != self._journal_id:
            self._mark_bad(start, FOREIGN)
            return
        if record.seq < self._expected_seq:
            self._close_region(start, 0)
            self._tell(repeated(self.name, start, end, record.seq, record.seq))
            return
        self._close_region(start, record.seq - self._expected_seq)
        self._expected_seq = record.seq + 1
        records.append(record)
        if self._keep is not None:
            self._keep(line + b"\n")

    def _pass_zeros(self, start: int) -> None:
        """After a chunk of zeros: no line holds one, so they are damage, and a hole of them is stepped over at once."""
        self._mark_bad(start, "zeros where records should be")
        self._partial = b""
        self._read_to = next_data(self._fd, self._read_to)

    def _mark_bad(self, start: int, reason: str) -> None:
        if self._bad_start is None:
            self._bad_start, self._bad_reason = start, reason

    def _close_region(self, end: int, lost: int) -> None:
        """A sound record at `end` closes the region before it and tells what it cost."""
        if self._bad_start is not None:
            self._tell(Damage(self.name, self._bad_start, end, self._bad_reason, lost))
            self._bad_start = None
        elif lost:
            self._tell(Damage(self.name, end, end, "records are missing here", lost))

    def _tell(self, damage: Damage) -> None:
        add_damage(self.damage, damage)

    def _notice_truncation(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < self._read_to:
            self._tell(Damage(self.name, size, self._read_to, "the file was cut while it was read", None))
            self._read_to, self._partial = size, b""


def repeated(journal: str, start: int, end: int, first: int, last: int) -> Damage:
    """A region of records that were read before."""
    which = f"record {first} stands again" if first == last else f"records {first} to {last} {_REPEATED}"
    return Damage(journal, start, end, which, 0)


def add_damage(regions: list[Damage], damage: Damage) -> None:
    """Adds a region to those of a journal: the last one goes on where it is of the same kind, or there are too many."""
    last = regions[-1] if regions else None
    if last is not None and last.end == damage.start and (joined := _joined(last, damage)) is not None:
        regions[-1] = joined
    elif last is None or len(regions) < REGIONS_MAX:
        regions.append(damage)
    else:
        lost = None if damage.lost_records is None else (last.lost_records or 0) + damage.lost_records
        regions[-1] = Damage(damage.journal, last.start, max(last.end, damage.end), TOO_MANY, lost)


def _joined(last: Damage, damage: Damage) -> Damage | None:
    """Two neighbouring regions as one, where both are records that were read before."""
    before, after = _numbers(last.reason), _numbers(damage.reason)
    if before is None or after is None or before[1] + 1 != after[0]:
        return None
    return repeated(damage.journal, last.start, damage.end, before[0], after[1])


def _numbers(reason: str) -> tuple[int, int] | None:
    """First and last number of the records that a region of repeated ones is about."""
    words = reason.split()
    if words[0] == "record" and reason.endswith("stands again"):
        return int(words[1]), int(words[1])
    return (int(words[1]), int(words[3])) if reason.endswith(_REPEATED) else None

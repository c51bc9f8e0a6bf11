"""Seals the journals of a finished run (compresses them), and reads sealed journals.

A sealed journal is a valid zstd stream: `zstdcat` prints its events as JSON lines without the `block` values. Each
frame of lines follows a skippable frame with the values of these lines as one column, regrouped by byte significance,
which saves most of the space. A damaged frame loses only its own events, and reading continues at the next header, so
even a small journal has many frames, and the head of the journal has one of its own. Sealing verifies the result before
it removes the plain journal. The unpacked size of a frame is limited before it is unpacked, so that a few bytes cannot
claim gigabytes.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from tputui.telemetry import files, float_blocks
from tputui.telemetry.codec import Damage, DamagedLine, NumberedEvent, decode, encode
from tputui.telemetry.events import JournalOpened, StepsRecorded
from tputui.telemetry.files import next_data, open_plain
from tputui.telemetry.journal import READ_BYTES, SUFFIX, Bookmark, JournalPosition, Tail, add_damage
from tputui.telemetry.rundir import SEALED_SUFFIX

FRAMES = 32
"""A frame contains about this part of the journal, so that damage to one costs no more, but within these limits:"""
FRAME_BYTES_LEAST, FRAME_BYTES_MOST = 2 << 10, 64 << 10
"""Bytes of its lines and values. Values take the same space in frames of 64 KB as in larger ones; lines take 5 % more
in frames of 64 KB, and 25 % more in frames of 13 KB."""
FRAME_EVENTS = 4_096
LEFT_OUT = ""
"""Replaces the block in a sealed line."""

_LEVEL = 9
_MAGIC = 0x184D2A54
_SIGNATURE = b"TPUS"
_HEAD = struct.Struct("<II4sIIII")
"""Magic number of a zstd skippable frame and its size; then our own fields: signature, CRC-32 of the rest of the header
and both bodies, bytes of the packed values, bytes of the packed lines, number of events."""
_REST_BYTES = _HEAD.size - 8
"""The part of the header that is included in the size of the skippable frame."""
_COLUMN_BYTES_MAX = 4 * (65_536 + float_blocks.VALUES_MAX)
"""Earlier versions began a new frame only after 65,536 values."""
_LINES_BYTES_MAX = 64 << 20
_LINES_BYTES_FREE = 1 << 20
_LINES_RATIO = 4
"""About how many times their size lines unpack to."""
_LINES_RATIO_MAX = 2_000
"""Above 1 MB, lines unpack to at most this many times their size: every line has a checksum, which cannot be
compressed. A journal that compresses better is not sealed."""
_WASTE_BYTES = 256 << 20
_WASTE_RATIO = 4
"""Limits the bytes read of invalid frames: `_WASTE_BYTES` plus this many times the size of the file."""
_NOT_A_FRAME = "a frame does not match its checksum"
_WASTEFUL = "so many frames do not match their checksums that the rest was not read"


class CompressionError(Exception):
    """The journal was not sealed and is unchanged; the message is the reason."""


def seal(path: Path, note: Callable[[int, int], object] = lambda offset, first_seq: None) -> Path:
    """Replaces a finished journal by its sealed form. Raises `CompressionError` if it is damaged, and `OSError`.

    Calls `note` with the offset of each frame and the number of its first event, and at the end with the size of the
    file and the next number.
    """
    target = path.with_name(path.name.removesuffix(SUFFIX) + SEALED_SUFFIX)
    tail = Tail(path)
    try:
        if not os.stat(path).st_size:
            raise CompressionError(f"{path.name} is empty")
        with files.becoming(target) as temporary:
            with os.fdopen(files.open_new(temporary, os.O_WRONLY), "wb") as file:
                _write_frames(file, tail, os.stat(path).st_size, note)
                if regions := tail.regions(final=True):
                    raise CompressionError(f"{path.name} is damaged: {regions[0].reason}")
                file.flush()
                os.fsync(file.fileno())
            _compare(path, temporary)
        path.unlink()
    except float_blocks.BlockError as error:
        raise CompressionError(f"{path.name} has values that cannot be read: {error}") from None
    finally:
        tail.close()
    return target


def _write_frames(file: BinaryIO, tail: Tail, size_bytes: int, note: Callable[[int, int], object]) -> None:
    """Writes all events of a journal of this size. Raises `OSError` and `BlockError`."""
    bytes_max = max(FRAME_BYTES_LEAST, min(FRAME_BYTES_MOST, size_bytes // FRAMES))
    frame = _Frame()
    while events := _next(tail):
        for numbered in events:
            if not frame.num_events:
                note(file.tell(), numbered.seq)
            frame.add(numbered)
            if frame.is_head or frame.num_bytes >= bytes_max or frame.num_events >= FRAME_EVENTS:
                file.write(frame.packed())
                frame = _Frame()
    if frame.num_events:
        file.write(frame.packed())
    note(file.tell(), tail.bookmark.next_seq)


class CompressedTail:
    """Reads the events of a sealed journal, some frames per call."""

    def __init__(self, path: Path, keep: Callable[[bytes], object] | None = None) -> None:
        """Opens the file for reading. Calls `keep` with the bytes of every frame that was read.

        Raises `OSError`, also if it is not a regular file.
        """
        self.name = path.name
        self.damage: list[Damage] = []
        self._keep = keep
        self._fd = open_plain(path)
        self._size = os.fstat(self._fd).st_size
        self._offset = 0
        self._expected_seq = 0
        self._journal_id: str | None = None
        self._bad_start: int | None = None
        self._bad_reason = ""
        self._waste_left = _WASTE_BYTES + _WASTE_RATIO * self._size

    def read(self, max_bytes: int = READ_BYTES) -> list[NumberedEvent]:
        """The events of the next valid frames, of about `max_bytes` when unpacked; an empty list only at the end."""
        events: list[NumberedEvent] = []
        end = self._offset + max_bytes // _LINES_RATIO
        while self._offset < self._size and not (events and self._offset >= end):
            start = self._offset
            frame = self._read_frame(start)
            if frame is not None:
                in_frame, self._offset = frame
                events += self._take(in_frame, start)
                continue
            if self._bad_start is None:
                self._bad_start, self._bad_reason = start, _NOT_A_FRAME
            if self._waste_left > 0:
                self._offset = self._find_header(start + 1)
            else:
                self._bad_reason, self._offset = _WASTEFUL, self._size
        return events

    def to_last_frame(self) -> None:
        """Skips to the last frame by reading headers only, or up to the first invalid header."""
        while True:
            head = os.pread(self._fd, _HEAD.size, self._offset)
            if len(head) < _HEAD.size:
                return
            magic, _, signature, _, values_bytes, lines_bytes, _ = _HEAD.unpack(head)
            end = self._offset + _HEAD.size + values_bytes + lines_bytes
            if magic != _MAGIC or signature != _SIGNATURE or end >= self._size:
                return
            self._offset = end

    @property
    def is_repaired(self) -> bool:
        """False: a sealed journal is written as a whole."""
        return False

    @property
    def has_more(self) -> bool:
        """Whether there are frames that were not read."""
        return self._offset != self._size

    @property
    def offset(self) -> int:
        """Bytes of the frames that were read."""
        return self._offset

    @property
    def bookmark(self) -> Bookmark:
        """The position after the frames that were read."""
        damage = tuple(self.damage)
        return Bookmark(
            self.name, self._offset, self._expected_seq, damage, self._bad_start, self._bad_reason, self._journal_id
        )

    def go_to(self, bookmark: Bookmark) -> None:
        self._offset, self._expected_seq, self.damage = bookmark.offset, bookmark.next_seq, list(bookmark.damage)
        self._bad_start, self._bad_reason = bookmark.bad_start, bookmark.bad_reason
        self._journal_id = bookmark.journal_id

    @property
    def position(self) -> JournalPosition:
        """The offset up to which the file was read, and its size."""
        return JournalPosition(self._offset, self._size)

    def regions(self, *, final: bool) -> list[Damage]:
        regions = list(self.damage)
        if self._bad_start is not None:
            regions.append(Damage(self.name, self._bad_start, self._offset, self._bad_reason, None))
        if final and not self._size:
            regions.append(Damage(self.name, 0, 0, "the file is empty", None))
        return regions

    def close(self) -> None:
        os.close(self._fd)

    def _read_frame(self, start: int) -> tuple[list[NumberedEvent], int] | None:
        head = os.pread(self._fd, _HEAD.size, start)
        if len(head) < _HEAD.size:
            return None
        magic, skipped, signature, crc, values_bytes, lines_bytes, num_events = _HEAD.unpack(head)
        if magic != _MAGIC or signature != _SIGNATURE or skipped != _REST_BYTES + values_bytes:
            return None
        if values_bytes > _COLUMN_BYTES_MAX or lines_bytes > _LINES_BYTES_MAX or not 0 < num_events <= FRAME_EVENTS:
            return None
        end = start + _HEAD.size + values_bytes + lines_bytes
        if end > self._size:
            return None
        body = os.pread(self._fd, values_bytes + lines_bytes, start + _HEAD.size)
        matches = zlib.crc32(head[16:] + body) == crc
        events = _unpack_frame(body[:values_bytes], body[values_bytes:]) if matches else []
        if not matches or len(events) != num_events:
            self._waste_left -= len(body)
            return None
        return events, end

    def _find_header(self, start: int) -> int:
        """Offset of the next header at or after `start`, or the end of the file."""
        wanted = struct.pack("<I", _MAGIC)
        while (start := next_data(self._fd, start)) < self._size:
            chunk = os.pread(self._fd, READ_BYTES, start)
            place = chunk.find(wanted)
            while place >= 0:
                if os.pread(self._fd, 4, start + place + 8) == _SIGNATURE:
                    return start + place
                place = chunk.find(wanted, place + 1)
            start += max(1, len(chunk) - len(wanted) + 1) if len(chunk) == READ_BYTES else len(chunk) or 1
        return self._size

    def _take(self, events: list[NumberedEvent], start: int) -> list[NumberedEvent]:
        """The events of the frame at `start` that were not read before. Reports missing and repeated ones as damage."""
        if self._journal_id is None:
            self._journal_id = Counter(numbered.journal_id for numbered in events).most_common(1)[0][0]
        own_events = [numbered for numbered in events if numbered.journal_id == self._journal_id]
        fresh: list[NumberedEvent] = []
        lost = 0
        for numbered in own_events:
            if numbered.seq >= self._expected_seq:
                lost += numbered.seq - self._expected_seq
                self._expected_seq = numbered.seq + 1
                fresh.append(numbered)
        if fresh and self._bad_start is not None:
            add_damage(self.damage, Damage(self.name, self._bad_start, start, self._bad_reason, lost))
            self._bad_start = None
        elif lost:
            add_damage(self.damage, Damage(self.name, start, start, "events are missing here", lost))
        if len(own_events) < len(events):
            foreign = f"{len(events) - len(own_events)} events in it are of another journal"
            add_damage(self.damage, Damage(self.name, start, self._offset, foreign, 0))
        if len(fresh) < len(own_events):
            again = f"{len(own_events) - len(fresh)} events in it are repeated"
            add_damage(self.damage, Damage(self.name, start, self._offset, again, 0))
        if fresh and self._keep is not None:
            whole = len(fresh) == len(events)
            self._keep(os.pread(self._fd, self._offset - start, start) if whole else _frame_of(fresh))
        return fresh


class _Frame:
    """Events that are sealed together."""

    def __init__(self) -> None:
        self.num_events = 0
        self.num_bytes = 0
        """Of the lines without blocks, and of the values."""
        self.is_head = False
        """Whether it contains only the head of a journal, without which nothing is known of its process."""
        self._column = bytearray()
        self._lines: list[bytes] = []

    def add(self, numbered: NumberedEvent) -> None:
        """Adds an event. Raises `BlockError` if its values cannot be read."""
        seq, event, journal_id = numbered
        column_bytes = len(self._column)
        if isinstance(event, StepsRecorded):
            self._column += float_blocks.unpack_bytes(event.block, event.n * event.cores)
            event = msgspec.structs.replace(event, block=LEFT_OUT)
        line = encode(event, seq, journal_id)
        self._lines.append(line)
        self.is_head = not self.num_events and isinstance(event, JournalOpened)
        self.num_events += 1
        self.num_bytes += len(line) + len(self._column) - column_bytes

    def packed(self) -> bytes:
        """The header, the values and the lines."""
        import zstandard

        values = _pack_column(self._column)
        text = zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(self._lines))
        rest = struct.pack("<III", len(values), len(text), self.num_events)
        crc = zlib.crc32(rest + values + text)
        return struct.pack("<II4sI", _MAGIC, _REST_BYTES + len(values), _SIGNATURE, crc) + rest + values + text


def _frame_of(events: list[NumberedEvent]) -> bytes:
    frame = _Frame()
    for numbered in events:
        frame.add(numbered)
    return frame.packed()


def _pack_column(column: bytearray) -> bytes:
    """Compresses values. A zstd block per byte significance, since these differ most in how their bytes are spread."""
    import zstandard

    grouped = float_blocks.shuffle(column)
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj(size=len(grouped))
    packed = bytearray()
    for start in range(0, len(grouped), max(1, len(grouped) // 4)):
        packed += compressor.compress(grouped[start : start + len(grouped) // 4])
        packed += compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return bytes(packed + compressor.flush())


def _unpack_frame(packed_values: bytes, packed_lines: bytes) -> list[NumberedEvent]:
    import zstandard

    lines_max = max(_LINES_BYTES_FREE, min(_LINES_BYTES_MAX, _LINES_RATIO_MAX * len(packed_lines)))
    try:
        column = memoryview(float_blocks.unshuffle(_decompress(packed_values, _COLUMN_BYTES_MAX)))
        events = [decode(line) for line in _decompress(packed_lines, lines_max).split(b"\n") if line]
    except (zstandard.ZstdError, float_blocks.BlockError, DamagedLine):
        return []
    restored: list[NumberedEvent] = []
    for seq, event, journal_id in events:
        if isinstance(event, StepsRecorded):
            size = event.n * event.cores * 4
            if not 0 <= size <= len(column):
                return []
            event = msgspec.structs.replace(event, block=float_blocks.pack_plain(column[:size]))
            column = column[size:]
        restored.append(NumberedEvent(seq, event, journal_id))
    return restored


def _decompress(packed: bytes, max_bytes: int) -> bytes:
    """Unpacks a frame with a known content size. Raises `ZstdError`, also if that is more than `max_bytes`."""
    import zstandard

    if not 0 <= zstandard.frame_content_size(packed) <= max_bytes:
        raise zstandard.ZstdError(f"it does not unpack to at most {max_bytes} bytes")
    return zstandard.ZstdDecompressor(max_window_size=_LINES_BYTES_MAX).decompress(packed, max_output_size=max_bytes)


def _next(tail: Tail | CompressedTail) -> list[NumberedEvent]:
    """The next records; an empty list only at the end. A single `read` may return none in the middle of a line."""
    while True:
        events = tail.read()
        offset, size = tail.position
        if events or offset >= size:
            return events


def _compare(plain: Path, sealed: Path) -> None:
    """Raises `CompressionError` if a sealed journal does not contain every event of the plain one."""
    plain_tail, sealed_tail = Tail(plain), CompressedTail(sealed)
    try:
        left: list[NumberedEvent] = []
        right: list[NumberedEvent] = []
        while True:
            left = left or _next(plain_tail)
            right = right or _next(sealed_tail)
            if not left or not right:
                break
            both = min(len(left), len(right))
            if any(not _same(a, b) for a, b in zip(left[:both], right[:both], strict=True)):
                raise CompressionError(f"{plain.name} reads differently when sealed")
            left, right = left[both:], right[both:]
        if left or right:
            raise CompressionError(f"{plain.name} reads differently when sealed")
    finally:
        plain_tail.close()
        sealed_tail.close()


def _same(left: NumberedEvent, right: NumberedEvent) -> bool:
    if isinstance(left.event, StepsRecorded) and isinstance(right.event, StepsRecorded):
        size = left.event.n * left.event.cores
        if float_blocks.unpack_bytes(left.event.block, size) != float_blocks.unpack_bytes(right.event.block, size):
            return False
        left = left._replace(event=msgspec.structs.replace(left.event, block=LEFT_OUT))
        right = right._replace(event=msgspec.structs.replace(right.event, block=LEFT_OUT))
    return encode(left.event, left.seq, left.journal_id) == encode(right.event, right.seq, right.journal_id)

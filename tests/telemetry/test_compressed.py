"""A sealed journal contains the same events as the plain one, and is smaller."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import zstandard

from tests import recorded
from tests.telemetry.test_fuzz import frame
from tputui.telemetry import compressed, float_blocks
from tputui.telemetry import events as ev
from tputui.telemetry.codec import Damage, NumberedEvent, decode, encode
from tputui.telemetry.compressed import CompressedTail, CompressionError, seal

HEADER_BYTES = 28


def steps_journal(path: Path, num_records: int = 200) -> list[ev.Event]:
    events: list[ev.Event] = [recorded.opened(1.0, "worker")]
    for number in range(num_records):
        rows = [recorded.losses(100 * number + row) for row in range(100)]
        events.append(recorded.steps_recorded(2.0 + number, 100 * number + 1, rows))
    recorded.write_journal(path, events)
    return events


def read(path: Path) -> tuple[list[NumberedEvent], list[Damage]]:
    tail = CompressedTail(path)
    events: list[NumberedEvent] = []
    while tail.position.offset < tail.position.size:
        events += tail.read()
    regions = tail.regions(final=True)
    tail.close()
    return events, regions


def events_in(plain: Path) -> list[NumberedEvent]:
    return [decode(line) for line in plain.read_bytes().splitlines()]


def values(event: ev.Event) -> object:
    if isinstance(event, ev.StepsRecorded):
        return event.first, event.mean, event.max, float_blocks.unpack(event.block, event.n * event.cores)
    return event


def test_every_event_and_value_round_trips(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    events = steps_journal(plain)
    size = plain.stat().st_size
    path = seal(plain)
    assert not plain.exists()
    assert path.stat().st_size < 0.8 * size
    restored, damage = read(path)
    assert damage == []
    assert [values(numbered.event) for numbered in restored] == [values(event) for event in events]


def test_zstdcat_prints_its_lines(tmp_path: Path) -> None:
    steps_journal(tmp_path / "worker-0.jsonl", num_records=3)
    packed = seal(tmp_path / "worker-0.jsonl").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
        lines = reader.read().splitlines()
    assert [line[:21] for line in lines] == [b'{"k":"JournalOpened",'] + 3 * [b'{"k":"StepsRecorded",']


@pytest.mark.parametrize("offset", [0, 9, 14, 20, 500, -3])
def test_damaged_frame_loses_only_its_events(tmp_path: Path, offset: int) -> None:
    steps_journal(tmp_path / "worker-0.jsonl")
    path = seal(tmp_path / "worker-0.jsonl")
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x55
    path.write_bytes(content)
    events, damage = read(path)
    assert 0 < len(events) < 201
    assert len(damage) == 1
    assert damage[0].lost_records == (None if offset < 0 else 201 - len(events))


def test_head_of_a_journal_is_lost_only_with_its_own_small_frame(tmp_path: Path) -> None:
    steps_journal(tmp_path / "worker-0.jsonl")
    path, frames = sealed(tmp_path / "worker-0.jsonl")
    (_, _), (end, first_seq), (after, _) = frames[:3]
    assert first_seq == 1
    assert end < 600, "of 128 KB"
    content = path.read_bytes()
    for offset in range(end, after, 97):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        assert isinstance(read(path)[0][0].event, ev.JournalOpened)


def test_damaged_journal_is_not_compressed(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    steps_journal(plain)
    content = plain.read_bytes()[:-5]
    plain.write_bytes(content)
    with pytest.raises(CompressionError, match="truncated"):
        seal(plain)
    assert plain.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["worker-0.jsonl"]


def test_empty_compressed_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl.zst"
    path.touch()
    assert [region.reason for region in read(path)[1]] == ["the file is empty"]


def sealed(plain: Path) -> tuple[Path, list[tuple[int, int]]]:
    """Seals a journal; returns the file, and the offset and first event of each frame, and finally of its end."""
    frames: list[tuple[int, int]] = []
    return seal(plain, lambda offset, first_seq: frames.append((offset, first_seq))), frames


def test_frame_is_a_small_part_of_a_journal(tmp_path: Path) -> None:
    short, longer = tmp_path / "rank-1.jsonl", tmp_path / "rank-2.jsonl"
    recorded.write_journal(short, recorded.worker_events())
    steps_journal(longer)
    assert 5 < len(sealed(short)[1]) < compressed.FRAMES
    plain_bytes = longer.stat().st_size
    frames = sealed(longer)[1]
    assert 20 < len(frames) < 2 * compressed.FRAMES
    assert max(after[0] - before[0] for before, after in pairwise(frames)) < plain_bytes / compressed.FRAMES


def test_frame_of_a_long_journal_is_bounded(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    rows = [recorded.losses(row) for row in range(1_000)]
    wide = [recorded.steps_recorded(2.0 + number, 1_000 * number + 1, rows) for number in range(100)]
    recorded.write_journal(plain, [recorded.opened(1.0, "worker"), *wide])
    assert plain.stat().st_size > compressed.FRAMES * compressed.FRAME_BYTES_MOST
    # Each event has 32,000 bytes of values.
    assert {after[1] - before[1] for before, after in pairwise(sealed(plain)[1][1:-1])} == {3}


def test_values_in_short_frames_take_no_more_space(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    steps_journal(plain, num_records=100)
    column = b"".join(
        float_blocks.unpack_bytes(numbered.event.block, numbered.event.n * numbered.event.cores)
        for numbered in events_in(plain)
        if isinstance(numbered.event, ev.StepsRecorded)
    )
    at_once = len(zstandard.ZstdCompressor(level=9).compress(float_blocks.shuffle(column)))
    assert seal(plain).stat().st_size < 1.1 * at_once


def test_any_flipped_bit_costs_its_own_frame_only(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    recorded.write_journal(plain, recorded.worker_events()[5:25])
    path, frames = sealed(plain)
    content, whole = path.read_bytes(), read(path)[0]
    assert len(frames) - 1 == 3
    for (start, first), (end, after) in pairwise(frames):
        rest = [numbered for numbered in whole if not first <= numbered.seq < after]
        lost = after - first if end < len(content) else None
        for offset in range(start, end):
            # Every bit of the header; of the bodies, which share a checksum, one bit of each byte.
            for bit in range(8) if offset < start + HEADER_BYTES else (offset % 8,):
                path.write_bytes(content[:offset] + bytes([content[offset] ^ 1 << bit]) + content[offset + 1 :])
                events, damage = read(path)
                assert events == rest
                assert [(one.start, one.end, one.lost_records) for one in damage] == [(start, end, lost)]


def test_journal_sealed_in_a_single_frame_is_readable(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    events = steps_journal(plain, num_records=5)
    column, lines = b"", b""
    for seq, event, journal_id in events_in(plain):
        if isinstance(event, ev.StepsRecorded):
            column += float_blocks.unpack_bytes(event.block, event.n * event.cores)
            event = msgspec.structs.replace(event, block="")
        lines += encode(event, seq, journal_id)
    path = tmp_path / "worker-0.jsonl.zst"
    pack = zstandard.ZstdCompressor(level=9).compress
    path.write_bytes(frame(pack(float_blocks.shuffle(column)), pack(lines), len(events)))
    restored, damage = read(path)
    assert damage == []
    assert [values(numbered.event) for numbered in restored] == [values(event) for event in events]


def test_plain_and_compressed_tails_are_interchangeable(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    steps_journal(plain, num_records=2)
    before = [values(numbered.event) for numbered in events_in(plain)]
    assert [values(numbered.event) for numbered in read(seal(plain))[0]] == before

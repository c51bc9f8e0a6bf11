"""A sealed journal contains the same events as the plain one, and is smaller."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from tests import recorded
from tputui.telemetry import compressed, float_blocks
from tputui.telemetry import events as ev
from tputui.telemetry.codec import NumberedEvent
from tputui.telemetry.compressed import CompressedTail, CompressionError, seal
from tputui.telemetry.journal import Damage, Tail


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


def test_frame_size_is_bounded() -> None:
    numbered = NumberedEvent(0, recorded.steps_recorded(0.0, 1, [[1.0] * 8] * 1024))
    assert compressed._frame_end([numbered] * 7, final=False) == 0
    assert compressed._frame_end([numbered] * 20, final=False) == 8


def test_plain_and_compressed_tails_are_interchangeable(tmp_path: Path) -> None:
    plain = tmp_path / "worker-0.jsonl"
    steps_journal(plain, num_records=2)
    tail = Tail(plain)
    before = [values(numbered.event) for numbered in tail.read()]
    tail.close()
    assert [values(numbered.event) for numbered in read(seal(plain))[0]] == before

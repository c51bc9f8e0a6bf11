"""A short run of the fuzzer with fixed seeds, and regression tests for its findings."""

from __future__ import annotations

import base64
import inspect
import os
import re
import signal
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard

from tests import recorded
from tests.cost import bounded
from tests.telemetry import fuzz
from tests.telemetry.hostile import DEEP, forged
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, requests, rundir
from tputui.telemetry.codec import Damage, DamagedLine, decode, encode
from tputui.telemetry.compressed import CompressedTail, CompressionError, seal
from tputui.telemetry.files import open_plain, read_small
from tputui.telemetry.journal import REGIONS_MAX, TOO_MANY, Tail
from tputui.telemetry.merge import events_of, open_tail
from tputui.text.show_page import show_text

SECONDS_MAX = 20.0


@pytest.fixture(autouse=True)
def _nothing_hangs() -> Iterator[None]:
    """A reader that waits for a pipe, or reads a terabyte, is interrupted and fails its test."""

    def interrupt(number: int, frame: object) -> None:
        raise fuzz.TooLong(f"not done in {SECONDS_MAX:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def read(path: Path) -> tuple[int, list[Damage]]:
    """The number of valid events in a journal, and its damage."""
    tail = open_tail(path)
    count = sum(1 for _ in events_of(tail))
    regions = tail.regions(final=True)
    tail.close()
    return count, regions


def with_line(run_dir: Path, body: bytes, *, seq: bytes = b"9") -> Path:
    """Writes a journal of another process: its head and a forged line."""
    path = run_dir / "rank-1.jsonl"
    recorded.write_journal(path, [recorded.opened(recorded.T0, "rank", 1)])
    head = decode(path.read_bytes())
    with path.open("ab") as file:
        file.write(forged(body, seq, head.journal_id))
    return path


@pytest.mark.parametrize("seed", range(12))
def test_no_hostile_run_makes_any_view_fail(tmp_path: Path, seed: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert fuzz.try_seed(seed, tmp_path) < fuzz.RUN_SECONDS_MAX


@pytest.mark.parametrize(
    "body",
    [
        b'{"k":"RunStarted","t":1,"run":"a","argv":[],"config":{"a":' + DEEP[1].encode() + b"}",
        b'{"k":"RunStarted","t":1,"run":"a","argv":[],"config":{"a":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"k":"RunStarted","t":1,"run":"a","argv":[],"config":{"a":1' + b"0" * 400 + b"}",
        b'{"k":"EpochStarted","t":1,"epoch":1' + b"0" * 4000 + b',"first_step":1',
        b'{"k":"EpochStarted","t":1,"epoch":1,"first_step":9223372036854775808',
        b'{"k":"LogWritten","t":1e999,"line":"a"',
        b'{"k":"New","t":[]',
        b'{"k":"New","t":1' + b"0" * 400,
        b'{"k":"New","t":1,"x":' + b"[" * 200 + b"]" * 200,
        b'{"k":"LogWritten","t":1,"line":"\xff\xfe"',
        b"[1,2",
    ],
    ids=range(11),
)
def test_forged_line_is_damage(recorded_run: Path, body: bytes) -> None:
    with pytest.raises(DamagedLine):
        decode(forged(body, b"1"))
    count, regions = read(with_line(recorded_run, body))
    assert (count, len(regions)) == (1, 1)
    assert "damage" in show_text(session.load(recorded_run))


@pytest.mark.parametrize("seq", [b"-5", b"+5", b"1_0", b" 7", b"", b"9" * 17, b"9" * 5000, b"\xd9\xa3"])
def test_absurd_sequence_number_is_damage(seq: bytes) -> None:
    with pytest.raises(DamagedLine):
        decode(forged(b'{"k":"LogWritten","t":1,"line":"a"', seq))


def test_every_integer_of_an_event_is_bounded() -> None:
    nested = (ev.MeterReading, ev.ProcessSample, ev.HbmReading, ev.MemoryForecast, ev.ModuleMemory)
    kinds: list[type] = [*ev.EVENT_TYPES, *nested]
    for kind in kinds:
        for name, hint in (item for base in kind.__mro__ for item in inspect.get_annotations(base).items()):
            assert re.search(r"\bint\b", str(hint)) is None, f"{kind.__name__}.{name} is an int and should be an Int"


@pytest.mark.parametrize("num_values", [-1, float_blocks.VALUES_MAX + 1, 10**30])
@pytest.mark.parametrize("form", ["r", "z"])
def test_block_with_absurd_size_is_not_decoded(num_values: int, form: str) -> None:
    with pytest.raises(float_blocks.BlockError, match="are allowed"):
        float_blocks.unpack(form + "AAAA", num_values)


@pytest.mark.parametrize("core", [1 << 40, -1])
def test_absurd_core_number_allocates_nothing(tmp_path: Path, core: int) -> None:
    path = recorded.write_run(tmp_path) / "rank-1.jsonl"
    topology = ev.TopologyDeclared(
        t=recorded.T0, strategy="spmd", device="CPU", num_cores=1, num_hosts=1, host_index=0, cores=[core]
    )
    steps = recorded.steps_recorded(recorded.T0 + 1, 1, [[0.5]])
    recorded.write_journal(path, [recorded.opened(recorded.T0, "rank", 1), topology, steps])
    snapshot = session.load(path.parent)
    assert snapshot.num_senseless == 1
    assert max(len(column.means) for column in snapshot.core_columns) == 8
    assert "left out 1 events that contradict themselves" in " ".join(show_text(snapshot).split())


def test_absurd_core_count_allocates_nothing(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    steps = msgspec.structs.replace(recorded.steps_recorded(recorded.T0 + 1, 1, [[0.5]]), cores=1 << 20, block="")
    recorded.write_journal(run_dir / "worker-1.jsonl", [recorded.opened(recorded.T0, "worker", 1), steps])
    snapshot = session.load(run_dir)
    assert snapshot.num_senseless == 1
    assert len(snapshot.cores) == 8


def test_block_inflation_stops_at_declared_size() -> None:
    bomb = "z" + base64.b64encode(zlib.compress(bytes(64 << 20), 9)).decode()
    tracemalloc.start()
    try:
        with pytest.raises(float_blocks.BlockError):
            float_blocks.unpack(bomb, 8)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def frame(values: bytes, lines: bytes, num_records: int) -> bytes:
    """A sealed frame with any content, whose checksum matches."""
    rest = struct.pack("<III", len(values), len(lines), num_records)
    crc = zlib.crc32(rest + values + lines)
    return struct.pack("<II4sI", 0x184D2A54, 20 + len(values), b"TPUS", crc) + rest + values + lines


PACK = zstandard.ZstdCompressor(level=1).compress
LINE = forged(b'{"k":"LogWritten","t":1,"line":"a"', b"0")
STEPS = b'{"k":"StepsRecorded","t":1,"first":1,"mean":1,"min":1,"max":1,"block":"",'


@pytest.mark.parametrize(
    "content",
    [
        frame(PACK(b""), PACK(bytes(1 << 30)), 1),
        frame(PACK(bytes(1 << 30)), PACK(LINE), 1),
        frame(struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 40) + b"\x01\0\0", PACK(LINE), 1),
        frame(PACK(b""), PACK(forged(STEPS + b'"n":-1,"cores":9', b"0")), 1),
        frame(PACK(b""), PACK(forged(STEPS + b'"n":1,"cores":9', b"0")), 1),
        frame(PACK(b"abc"), PACK(LINE), 1),
        frame(PACK(b""), PACK(LINE), 2**32 - 1),
        frame(b"", b"", 0),
    ],
    ids=["lines", "values", "claim", "negative", "short", "odd", "count", "empty"],
)
def test_invalid_unpacked_frame_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "worker-0.jsonl.zst"
    path.write_bytes(content + frame(PACK(b""), PACK(LINE), 1))
    count, regions = read(path)
    assert count == 1
    assert [(region.start, region.end) for region in regions] == [(0, len(content))]


def test_unlimited_false_headers_take_bounded_time(tmp_path: Path) -> None:
    head = struct.pack("<II4sIIII", 0x184D2A54, 20 + (4 << 20), b"TPUS", 0, 4 << 20, 0, 1)
    path = tmp_path / "worker-0.jsonl.zst"
    path.write_bytes(head * (8 << 20 >> 5))
    count, regions = read(path)
    assert count == 0
    assert "the rest was not read" in regions[-1].reason


def test_duplicate_frame_is_reported_and_ignored(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl.zst"
    path.write_bytes(frame(PACK(b""), PACK(LINE), 1) * 2)
    count, regions = read(path)
    assert count == 1
    assert [region.reason for region in regions] == ["1 events in it are repeated"]


def test_event_wider_than_a_read_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    row = struct.unpack("<262144f", os.urandom(4 * 262_144))
    recorded.write_journal(path, [recorded.opened(1.0, "worker"), recorded.steps_recorded(2.0, 1, [list(row)])])
    assert path.stat().st_size > 1 << 20
    assert read(seal(path)) == (2, [])


def test_journal_with_unreadable_values_is_not_compressed(tmp_path: Path) -> None:
    path = with_line(tmp_path, STEPS + b'"n":3,"cores":2', seq=b"1")
    with pytest.raises(CompressionError, match="values that cannot be read"):
        seal(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rank-1.jsonl"]


@pytest.mark.parametrize("name", ["rank-1.jsonl", "rank-1.jsonl.zst"])
@pytest.mark.parametrize("kind", ["pipe", "device", "endless", "directory", "circle", "nowhere"])
def test_non_regular_file_is_reported_and_never_opened(recorded_run: Path, name: str, kind: str) -> None:
    path = recorded_run / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        leads_to = {"device": "/dev/tty", "endless": "/dev/zero", "circle": name, "nowhere": "gone.jsonl"}
        path.symlink_to(leads_to[kind])
    snapshot = session.load(recorded_run)
    (region,) = snapshot.damage.regions
    assert region.journal == name
    assert "cannot be opened" in region.reason
    assert snapshot.steps == 66


@pytest.mark.parametrize("name", ["rank-1.jsonl", "rank-1.jsonl.zst"])
def test_terabyte_hole_is_skipped_at_once(recorded_run: Path, name: str) -> None:
    path = recorded_run / name
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with bounded(20.0):
        snapshot = session.load(recorded_run)
        session.extent(recorded_run)
    assert any(region.journal == name and region.end == 1 << 40 for region in snapshot.damage.regions)


def test_hole_in_a_journal_loses_only_its_events(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    recorded.write_journal(path, recorded.worker_events()[:10])
    last = recorded.worker_events()[10]
    with path.open("r+b") as file:
        journal_id = decode(file.readline()).journal_id
        file.seek(1 << 40)
        file.write(b"\n" + encode(last, 12, journal_id))
    count, (region,) = read(path)
    assert (count, region.lost_records) == (11, 2)


def test_pipe_as_manifest_or_request_does_not_block(recorded_run: Path) -> None:
    (recorded_run / "run.json").unlink()
    os.mkfifo(recorded_run / "run.json")
    os.mkfifo(recorded_run / "requests" / "0-1.json")
    assert requests.read_all(recorded_run) == []
    with pytest.raises(rundir.RunNotFound, match="not a regular file"):
        rundir.read_manifest(recorded_run)
    assert session.load(recorded_run).steps == 66


@pytest.mark.parametrize("content", [DEEP[0], '{"a": 1' + "0" * 5000 + "}", "", "\0" * 100, "[" * 100_000])
def test_invalid_manifest_or_request_is_rejected(recorded_run: Path, content: str) -> None:
    (recorded_run / "run.json").write_text('{"run":"a","created":1,"config":' + content)
    (recorded_run / "requests" / "0-1.json").write_text('{"id":' + content)
    with pytest.raises(rundir.RunNotFound, match=r"run\.json"):
        rundir.read_manifest(recorded_run)
    assert requests.read_all(recorded_run) == []


def test_oversized_small_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="longer than 64 bytes"):
        read_small(path, 64)


def test_endless_damage_has_a_bounded_report(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    lines = [forged(b'{"k":"LogWritten","t":1,"line":"a"', str(2 * n).encode()) for n in range(5_000)]
    path.write_bytes(b"".join(lines))
    count, regions = read(path)
    assert (count, len(regions), regions[-1].reason) == (5_000, REGIONS_MAX, TOO_MANY)
    assert sum(region.lost_records or 0 for region in regions) == 4_999


def test_repeated_events_are_one_region(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    recorded.write_journal(path, recorded.worker_events()[:20])
    content = path.read_bytes()
    path.write_bytes(content + content)
    count, (region,) = read(path)
    assert (count, region.reason) == (20, "events 0 to 19 are repeated")
    assert (region.start, region.end, region.lost_records) == (len(content), 2 * len(content), 0)


@pytest.mark.parametrize("junk", [b"\0", b"\n", b"x", b"a\n", b"\xff\n", b'{"a":'])
def test_garbage_is_skipped_in_bounded_time(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "worker-0.jsonl"
    recorded.write_journal(path, recorded.worker_events()[:1])
    with path.open("ab") as file:
        file.write((junk * (3 << 20))[: 3 << 20] + b"\n")
    with bounded(40.0):
        assert read(path)[0] == 1


@pytest.mark.parametrize("t", [b"1e20", b"1e308", b"-1e308"])
def test_huge_clock_jump_does_not_delay_replay(recorded_run: Path, t: bytes) -> None:
    with_line(recorded_run, b'{"k":"LogWritten","t":' + t + b',"line":"later"', seq=b"1")
    assert fuzz._command(["replay", str(recorded_run), "--no-ui"])


def test_a_tail_is_never_opened_on_a_pipe_even_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    os.mkfifo(path)
    for opens in (Tail, CompressedTail, open_plain):
        with pytest.raises(OSError, match="not a regular file"):
            opens(path)

"""Reading journals while they grow and after a crash."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import recorded
from tests.supervise.harness import wait_for
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.codec import Damage, NumberedEvent, encode
from tputui.telemetry.journal import JournalWriter, Tail
from tputui.telemetry.merge import Merge
from tputui.telemetry.reporter import continue_journal

EVENTS: list[ev.Event] = [ev.LogWritten(t=float(number), line=f"line {number}") for number in range(6)]
LINES = [encode(event, seq) for seq, event in enumerate(EVENTS)]
WHOLE = b"".join(LINES)


def read_all(path: Path, *, final: bool = True, max_bytes: int = 1 << 20) -> tuple[list[NumberedEvent], list[Damage]]:
    """The valid events of a journal, and its damage."""
    tail = Tail(path)
    events: list[NumberedEvent] = []
    while tail.position.offset < tail.position.size:
        events += tail.read(max_bytes)
    regions = tail.regions(final=final)
    tail.close()
    return events, regions


def journal(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "worker-0.jsonl"
    path.write_bytes(content)
    return path


def test_appended_events_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    recorded.write_journal(path, EVENTS)
    events, damage = read_all(path)
    assert [numbered.event for numbered in events] == EVENTS
    assert [numbered.seq for numbered in events] == list(range(6))
    assert damage == []


def test_journal_is_private_and_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    JournalWriter(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        JournalWriter(path)


@given(cut=st.integers(0, len(WHOLE)), chunk=st.integers(1, 200))
def test_every_byte_prefix_reads_as_a_prefix_of_the_events(
    tmp_path_factory: pytest.TempPathFactory, cut: int, chunk: int
) -> None:
    path = journal(tmp_path_factory.mktemp("cut"), WHOLE[:cut])
    events, damage = read_all(path, max_bytes=chunk)
    whole_lines = WHOLE[:cut].count(b"\n")
    assert [numbered.event for numbered in events] == EVENTS[:whole_lines]
    at_a_line_end = cut == sum(map(len, LINES[:whole_lines]))
    assert [region.reason for region in damage] == ([] if at_a_line_end else ["the last line is truncated"])


def test_partial_line_of_a_live_writer_is_pending(tmp_path: Path) -> None:
    path = journal(tmp_path, LINES[0] + LINES[1][:10])
    tail = Tail(path)
    assert [numbered.event for numbered in tail.read()] == EVENTS[:1]
    assert tail.regions(final=False) == []
    with path.open("ab") as file:
        file.write(LINES[1][10:])
    assert [numbered.event for numbered in tail.read()] == EVENTS[1:2]
    assert tail.regions(final=True) == []
    tail.close()


@given(offset=st.integers(len(LINES[0]), len(WHOLE) - len(LINES[-1]) - 2), flip=st.integers(1, 255))
def test_flipped_byte_loses_one_event_and_is_reported(
    tmp_path_factory: pytest.TempPathFactory, offset: int, flip: int
) -> None:
    content = bytearray(WHOLE)
    content[offset] ^= flip
    events, damage = read_all(journal(tmp_path_factory.mktemp("flip"), bytes(content)))
    kept = [numbered.event for numbered in events]
    assert all(event in EVENTS for event in kept)
    assert kept[0] == EVENTS[0]
    assert kept[-1] == EVENTS[-1]
    assert len(damage) == 1
    assert damage[0].start <= offset < damage[0].end
    assert damage[0].lost_records == len(EVENTS) - len(kept)
    assert 1 <= damage[0].lost_records <= 2


def test_missing_and_repeated_events_are_reported(tmp_path: Path) -> None:
    path = journal(tmp_path, LINES[0] + LINES[3] + LINES[3] + LINES[4])
    events, damage = read_all(path)
    assert [numbered.seq for numbered in events] == [0, 3, 4]
    assert [(region.reason, region.lost_records) for region in damage] == [
        ("events are missing here", 2),
        ("event 3 is repeated", 0),
    ]


@given(st.binary(min_size=1, max_size=2000))
def test_garbage_never_crashes_the_reader(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    events, damage = read_all(journal(tmp_path_factory.mktemp("garbage"), garbage), max_bytes=64)
    assert events == []
    assert damage or not garbage.strip(b"\n")


def test_truncation_while_reading_is_reported(tmp_path: Path) -> None:
    path = journal(tmp_path, WHOLE)
    tail = Tail(path)
    assert len(tail.read()) == 6
    os.truncate(path, 20)
    assert tail.read() == []
    assert tail.regions(final=False)[0].reason == "the file was truncated while it was read"
    tail.close()


def test_full_disk_loses_no_event_once_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "worker-0.jsonl"
    writer = JournalWriter(path)
    real_write = os.write
    room = len(LINES[0]) + 7

    def write_until_full(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real_write(fd, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write_until_full)
    with pytest.raises(OSError, match="No space"):
        writer.append(EVENTS[:3])
    room = 1 << 20
    writer.append(EVENTS[3:])
    writer.close()
    events, damage = read_all(path)
    assert [numbered.event for numbered in events] == EVENTS
    assert damage == []


def test_unserialisable_event_affects_no_other(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    recorded.write_journal(
        path, [EVENTS[0], ev.RunStarted(t=1.0, run="r", config={"when": object()}, argv=[]), EVENTS[2]]
    )
    events, damage = read_all(path)
    assert damage == []
    assert [numbered.event for numbered in events][::2] == [EVENTS[0], EVENTS[2]]
    warning = events[1].event
    assert isinstance(warning, ev.WarningRaised)
    assert "RunStarted could not be written" in warning.text


def continued_by(path: Path, events: list[ev.Event]) -> None:
    """Appends events to a journal as the process of a later generation does."""
    writer = continue_journal(path)
    writer.append(events)
    writer.close()


@given(cut=st.integers(0, len(WHOLE)), seen=st.integers(0, len(WHOLE)), read=st.integers(0, 2 * len(WHOLE)))
def test_continued_journal_has_every_whole_line_and_reads_on(
    tmp_path_factory: pytest.TempPathFactory, cut: int, seen: int, read: int
) -> None:
    path = journal(tmp_path_factory.mktemp("continued"), WHOLE[:cut])
    follower = Tail(path)
    events = follower.read(seen) if seen else []
    continued_by(path, EVENTS)
    kept = WHOLE[:cut].count(b"\n")
    events += follower.read(read) if read else []
    while follower.position.offset < follower.position.size:
        events += follower.read()
    # A reader that had followed the journal sees the same as one that opens it now.
    assert events == read_all(path)[0]
    assert follower.regions(final=True) == read_all(path)[1] == []
    assert [numbered.event for numbered in events] == EVENTS[:kept] + EVENTS
    assert [numbered.seq for numbered in events] == list(range(kept + len(EVENTS)))
    follower.close()


def test_continued_journal_keeps_its_id_and_numbers_past_damage(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    recorded.write_journal(path, EVENTS)
    with path.open("ab") as file:
        file.write(b"\0" * 100 + b"\nno event\n" + b"x" * 100)
    continued_by(path, EVENTS[:2])
    events, damage = read_all(path)
    assert [numbered.seq for numbered in events] == list(range(8))
    assert len({numbered.journal_id for numbered in events}) == 1
    assert [(region.lost_records, region.reason) for region in damage] == [(0, "its checksum does not match")]


def test_sealed_journal_is_not_continued(tmp_path: Path) -> None:
    sealed = tmp_path / f"worker-0{rundir.SEALED_SUFFIX}"
    sealed.touch()
    with pytest.raises(FileExistsError, match="its run has ended"):
        continue_journal(tmp_path / "worker-0.jsonl")


@pytest.mark.parametrize("zeros", [1, 100, 1 << 21])
def test_zeros_at_the_end_are_read_once_they_are_written(tmp_path: Path, zeros: int) -> None:
    path = journal(tmp_path, LINES[0] + LINES[1][:20] + bytes(zeros))
    tail = Tail(path)
    events = tail.read()
    assert [numbered.event for numbered in events] == EVENTS[:1]
    assert tail.position.offset == tail.position.size
    assert tail.regions(final=False) == []
    assert [region.reason for region in tail.regions(final=True)][-1] == "zeros instead of events"
    path.write_bytes(WHOLE + bytes(zeros))
    assert tail.has_more
    events += tail.read()
    assert [numbered.event for numbered in events] == EVENTS
    assert tail.regions(final=False) == []
    tail.close()


def test_damage_that_was_repaired_is_read_when_a_run_is_followed(tmp_path: Path) -> None:
    start, end = len(LINES[0]) + 10, sum(map(len, LINES[:3])) + 5
    run_dir = rundir.create(tmp_path, recorded.manifest())
    path = run_dir / "worker-0.jsonl"
    path.write_bytes(WHOLE[:start] + bytes(end - start) + WHOLE[end:])
    merge = Merge(run_dir)
    events, _ = merge.poll()
    assert [event.event for event in events] == [EVENTS[0], *EVENTS[4:]]
    assert merge.damage(final=False)
    path.write_bytes(WHOLE)

    def is_read_again() -> bool:
        events[:] = merge.poll()[0]
        return bool(merge.take_restarted())

    wait_for(is_read_again, "the events that were damaged")
    assert [event.event for event in events] == EVENTS
    assert merge.damage(final=False) == []
    merge.close()

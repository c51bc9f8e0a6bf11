"""Reading all journals of a run together."""

from __future__ import annotations

import os
from pathlib import Path

from tests import recorded
from tputui.telemetry import events as ev
from tputui.telemetry.compressed import seal
from tputui.telemetry.merge import JournalEvent, Merge


def everything(run_dir: Path, until: float = float("inf")) -> list[JournalEvent]:
    merge = Merge(run_dir)
    entries: list[JournalEvent] = []
    quiet = False
    while not quiet:
        more, quiet = merge.poll(until)
        entries += more
    merge.close()
    return entries


def test_both_writers_are_read_in_order_of_time(recorded_run: Path) -> None:
    entries = everything(recorded_run)
    times = [entry.event.t for entry in entries]
    assert {entry.writer for entry in entries} == {"supervisor-0", "worker-0"}
    assert times == sorted(times)


def test_reading_up_to_a_moment_yields_nothing_later(recorded_run: Path) -> None:
    moment = recorded.T0 + 5
    entries = everything(recorded_run, until=moment)
    assert max(entry.event.t for entry in entries) <= moment
    assert len(entries) == sum(entry.event.t <= moment for entry in everything(recorded_run))


def test_reading_continues_where_it_stopped(recorded_run: Path) -> None:
    merge = Merge(recorded_run)
    early, _ = merge.poll(until=recorded.T0 + 5)
    late, quiet = merge.poll()
    while not quiet:
        more, quiet = merge.poll()
        late += more
    merge.close()
    assert sorted(map(str, early + late)) == sorted(map(str, everything(recorded_run)))


def test_a_short_poll_of_many_journals_reads_a_part_of_each(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    lines = [ev.LogWritten(t=recorded.T0 + k, line="x" * 1_000) for k in range(200)]
    writers = {f"worker-{host}" for host in range(1, 33)}
    for writer in writers:
        recorded.write_journal(run_dir / f"{writer}.jsonl", lines)
    merge = Merge(run_dir)
    part, _ = merge.poll(budget_s=0.0)
    merge.close()
    assert writers <= {entry.writer for entry in part}
    assert len(part) < len(writers) * len(lines) / 4


def test_compressed_journal_reads_like_a_plain_one(recorded_run: Path) -> None:
    before = [(entry.writer, entry.seq) for entry in everything(recorded_run)]
    seal(recorded_run / "worker-0.jsonl")
    assert [(entry.writer, entry.seq) for entry in everything(recorded_run)] == before


def test_garbage_between_events_does_not_end_reading(recorded_run: Path) -> None:
    path = recorded_run / "worker-0.jsonl"
    content = path.read_bytes()
    cut = content.index(b"\n") + 1
    path.write_bytes(content[:cut] + os.urandom(3 << 20).replace(b"\n", b" ") + b"\n" + content[cut:])
    entries = everything(recorded_run)
    assert sum(entry.writer == "worker-0" for entry in entries) == content.count(b"\n")


def test_unreadable_journal_does_not_affect_others(recorded_run: Path) -> None:
    (recorded_run / "a-0.jsonl").symlink_to(recorded_run / "a-0.jsonl")
    merge = Merge(recorded_run)
    entries, quiet = merge.poll()
    while not quiet:
        more, quiet = merge.poll()
        entries += more
    assert {entry.writer for entry in entries} == {"supervisor-0", "worker-0"}
    (region,) = merge.damage(final=True)
    merge.close()
    assert region.journal == "a-0.jsonl"
    assert "cannot be opened" in region.reason


def test_poll_without_budget_makes_progress(recorded_run: Path) -> None:
    merge = Merge(recorded_run)
    assert merge.poll(budget_s=0.0)[0]
    merge.close()

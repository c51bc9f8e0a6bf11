"""A mirror has cached states of its own, so that a long run of another machine opens fast; none comes from the host."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests import longrun, recorded
from tests.remote.linked import Linked, equal_journals
from tests.supervise.harness import wait_for
from tputui.cache import cache_file
from tputui.cache.cache_file import CacheVerifier
from tputui.cache.cache_writer import CacheWriter
from tputui.remote.address import parse_address
from tputui.remote.opening import OpenedMirror
from tputui.session.session import read_events
from tputui.telemetry import compressed, rundir
from tputui.telemetry import events as ev
from tputui.telemetry.compressed import seal
from tputui.telemetry.journal import Bookmark, JournalWriter, Tail

POLLS = 2_000


def writer_of(mirror_dir: Path) -> CacheWriter:
    """A process that caches states of a mirror."""
    return CacheWriter(mirror_dir, spacing_bytes=longrun.SPACING_BYTES, spacing_share=0, cpu_share=1.0, of_copies=True)


def cache(mirror_dir: Path, cache_writer: CacheWriter | None = None) -> list[Path]:
    """Caches states until there is no more to do; returns the files."""
    cache_writer = cache_writer or writer_of(mirror_dir)
    for _ in range(POLLS):
        cache_writer._due = 0.0
        if cache_writer.poll() >= 1:
            break
    assert cache_writer.error is None
    return cache_file.listed(mirror_dir)


def wrong_files(run_dir: Path) -> list[str]:
    """Why cached states do not agree with the journals."""
    verifier = CacheVerifier(run_dir)
    for event in read_events(run_dir):
        verifier.take(event.writer, event.seq, event.event)
    return [finding.why_not for finding in verifier.findings() if finding.why_not]


@pytest.fixture(params=["plain", "sealed"])
def linked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Linked:
    """A mirror of a long run."""
    run_dir = longrun.write(tmp_path)
    if request.param == "sealed":
        monkeypatch.setattr(compressed, "FRAME_EVENTS", 64)
        seal(run_dir / "worker-0.jsonl")
    made = Linked(run_dir, tmp_path / "mirror")
    made.pump()
    return made


def test_a_mirror_opens_from_its_cached_states_with_the_same_views(linked: Linked) -> None:
    before, whole = longrun.rendered(linked.mirror_dir), longrun.num_read(linked.mirror_dir)
    assert len(cache(linked.mirror_dir)) > 1
    assert longrun.num_read(linked.mirror_dir) < whole / 4
    assert longrun.rendered(linked.mirror_dir) == before
    assert wrong_files(linked.mirror_dir) == []


def test_the_next_process_continues_the_cached_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = longrun.write(tmp_path)
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    cache(linked.mirror_dir)
    written = {path: path.stat().st_mtime_ns for path in cache_file.listed(linked.mirror_dir)}
    append(run_dir / "worker-0.jsonl", 200)
    linked.pump()
    read: list[int] = []
    original = Tail.go_to

    def go_to(tail: Tail, bookmark: Bookmark) -> None:
        read.append(bookmark.next_seq)
        original(tail, bookmark)

    monkeypatch.setattr(Tail, "go_to", go_to)
    after = {path: path.stat().st_mtime_ns for path in cache(linked.mirror_dir)}
    assert read == [int(max(written).stem.rpartition("-")[2]) + 1]
    assert max(after) > max(written)
    assert all(after[path] == written[path] for path in written.keys() & after.keys())
    assert len(written.keys() & after.keys()) > len(written) / 2
    assert wrong_files(linked.mirror_dir) == []


@pytest.mark.parametrize("is_same_process", [True, False])
def test_states_of_a_journal_that_was_replaced_are_removed(tmp_path: Path, is_same_process: bool) -> None:
    run_dir = longrun.write(tmp_path)
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    first = writer_of(linked.mirror_dir)
    cached = {path.name: path.read_bytes() for path in cache(linked.mirror_dir, first)}
    other = longrun.write(tmp_path / "other", tone=1.5)
    shutil.copy(other / "worker-0.jsonl", run_dir / "worker-0.jsonl")
    again = Linked(run_dir, linked.mirror_dir)
    again.pump()
    assert equal_journals(run_dir, linked.mirror_dir)
    assert longrun.rendered(linked.mirror_dir).replace("mirror", "long-1") == longrun.rendered(run_dir)
    found = cache(linked.mirror_dir, first if is_same_process else None)
    assert len(found) > 1
    for path in found:
        assert path.read_bytes() != cached.get(path.name)
    assert wrong_files(linked.mirror_dir) == []


def test_states_of_another_host_are_cached_once_its_clock_is_known(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest("pod"))
    _, *events = read_events(longrun.write(tmp_path))
    head = recorded.opened(recorded.T0, "worker", host_index=1)
    steps = [each.event for each in events if each.writer == "worker-0"]
    recorded.write_journal(run_dir / "worker-1.jsonl", [head, *steps])
    assert cache(run_dir) == []
    measured = ev.ClockMeasured(t=recorded.T0 + 1, offset_s=90.0, error_s=0.01, reference="host-0")
    supervisor = recorded.opened(recorded.T0, "supervisor", host_index=1)
    recorded.write_journal(run_dir / "supervisor-1.jsonl", [supervisor, measured])
    assert len(cache(run_dir)) > 1
    assert wrong_files(run_dir) == []


def append(journal: Path, num_reports: int) -> None:
    """Appends reports to the journal of a finished training."""
    tail = Tail(journal)
    while tail.read():
        pass
    writer = JournalWriter.continued(journal, tail.bookmark)
    tail.close()
    t = recorded.T0 + 2 * longrun.NUM_REPORTS
    writer.append(ev.WarningRaised(t=t + number, text=f"late {number} " + 500 * "x") for number in range(num_reports))
    writer.close()


def test_the_mirroring_process_caches_states_and_takes_none_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = longrun.write(tmp_path / "runs")
    append(run_dir / "worker-0.jsonl", 12_000)
    of_host = longrun.write_cache(run_dir, spacing_bytes=1 << 20)
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\ntest "$1" = -G && exit 0\nfor command; do :; done\n'
        f'TPUTUI_RUNS={tmp_path}/runs exec sh -c "$command"\n'
    )
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with OpenedMirror(parse_address("ssh://vm/long-1")) as mirror:
        mirror.wait()
        wait_for(lambda: cache_file.listed(mirror.run_dir), "a cached state")
    cached = {path.name for path in cache_file.listed(mirror.run_dir)}
    assert cached.isdisjoint(path.name for path in of_host)
    whole = sum(1 for _ in read_events(mirror.run_dir))
    assert longrun.num_read(mirror.run_dir) < 3 * whole / 4
    assert wrong_files(mirror.run_dir) == []

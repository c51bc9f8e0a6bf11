"""A run opens from cached states on disk exactly as without them; an invalid cache file only costs time."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests import longrun, recorded
from tests.state.test_reducer import snapshot_text
from tests.supervise.harness import wait_for
from tests.telemetry.hostile import BYTES, hostile_run
from tputui.cache import cache_file, state_codec
from tputui.cache.cache_file import CacheFinding, CacheVerifier
from tputui.cache.cache_writer import BYTES_MAX, OF_A_WRITER_MAX, CacheWriter, SealedFrame
from tputui.cli.main import main
from tputui.session import session
from tputui.session.session import Session
from tputui.state.process_state import ProcessState
from tputui.telemetry import compressed
from tputui.telemetry import events as ev
from tputui.telemetry.compressed import seal
from tputui.telemetry.journal import Bookmark, Tail

JOURNAL = "worker-0.jsonl"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return longrun.write(tmp_path_factory.mktemp("written"))


@pytest.fixture
def run_dir(tmp_path: Path, written: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(written, tmp_path / written.name))


def seal_with_cache(run_dir: Path) -> list[Path]:
    """Seals the worker's journal as the supervisor does."""
    cache_writer = CacheWriter(run_dir, spacing_bytes=longrun.SPACING_BYTES, spacing_share=0)
    cache_writer.finish(60.0)
    frames: list[SealedFrame] = []
    target = seal(run_dir / JOURNAL, lambda offset, first_seq: frames.append(SealedFrame(offset, first_seq)))
    cache_writer.retarget_to_sealed("worker-0", target.name, frames)
    assert cache_writer.error is None
    return cache_file.listed(run_dir)


@pytest.fixture
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small frames, so that the journal of a test has many."""
    monkeypatch.setattr(compressed, "FRAME_EVENTS", 64)


def shown(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The output of `show --json` without the present time."""
    assert main(["show", str(run_dir), "--json"]) == 0
    page: dict[str, Any] = json.loads(capsys.readouterr().out)
    del page["now"]
    return page


def flip_bit(journal: Path) -> int:
    """Flips a bit in the middle of a journal; returns the offset of its byte."""
    content = bytearray(journal.read_bytes())
    offset = len(content) // 2
    content[offset] ^= 0x01
    journal.write_bytes(content)
    return offset


def check(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["check", str(run_dir)])
    return code, capsys.readouterr().out


def test_state_that_is_too_large_is_rarely_encoded_again(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets: list[int] = []

    def write(run_dir: Path, bookmark: Bookmark, state: ProcessState) -> int:
        offsets.append(bookmark.offset)
        return original(run_dir, bookmark, state)

    original = cache_file.write
    monkeypatch.setattr(cache_file, "FILE_BYTES_MAX", 1_000)
    monkeypatch.setattr(cache_file, "write", write)
    cache_writer = CacheWriter(run_dir, lambda writer: writer == "worker-0", spacing_bytes=2_000, spacing_share=0)
    cache_writer.finish(60.0)
    assert cache_writer.error is not None
    assert cache_file.listed(run_dir) == []
    assert len(offsets) > 4
    assert all(2 * before <= after for before, after in pairwise(offsets))


def test_newest_cached_state_opens_the_same_run(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, whole = longrun.rendered(run_dir), longrun.num_read(run_dir)
    page = shown(run_dir, capsys)
    cached_files = longrun.write_cache(run_dir)
    assert 1 < len(cached_files) <= OF_A_WRITER_MAX
    assert longrun.num_read(run_dir) < whole / 10
    assert longrun.rendered(run_dir) == before
    assert shown(run_dir, capsys) == page
    assert check(run_dir, capsys) == (
        0,
        f"long-1: no damage: {whole:,} events in 2 journals, {len(cached_files)} cached states\n",
    )


@pytest.mark.usefixtures("_small_frames")
def test_compressed_run_opens_from_cached_states(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, whole, page = longrun.rendered(run_dir), longrun.num_read(run_dir), shown(run_dir, capsys)
    cached_files = seal_with_cache(run_dir)
    assert not (run_dir / JOURNAL).exists()
    assert cached_files
    assert longrun.num_read(run_dir) < whole / 10
    assert longrun.rendered(run_dir) == before
    assert shown(run_dir, capsys) == page
    code, out = check(run_dir, capsys)
    assert (code, f"{len(cached_files)} cached states" in out) == (0, True)


@pytest.mark.usefixtures("_small_frames")
@pytest.mark.parametrize("is_sealed", [False, True])
def test_every_moment_is_equal_with_and_without_cache(run_dir: Path, is_sealed: bool) -> None:
    reach = session.extent(run_dir)
    moments = [reach.start + share / 23 * (reach.end - reach.start) for share in range(24)]
    before = [snapshot_text(session.load_at(run_dir, t)) for t in moments]
    assert seal_with_cache(run_dir) if is_sealed else longrun.write_cache(run_dir)
    assert [snapshot_text(session.load_at(run_dir, t)) for t in moments] == before


def test_playing_and_seeking_skip_cached_events(run_dir: Path) -> None:
    longrun.write_cache(run_dir)
    plain = longrun.write(run_dir.parent, "long-2")
    clock = [0.0]
    source, straight = (
        Session.replay(which, speed=37.0, clock=lambda: clock[0]) for which in (run_dir, plain)
    )  # fmt: skip
    for number in range(40):
        clock[0] += 1.0
        if number in (12, 30):
            for one in (source, straight):
                one.player.seek(recorded.T0 + 40.0 * number / 3)
        for one in (source, straight):
            one.poll(5.0)
        assert state_codec.encode(source._shown.state.processes["worker-0"]) == state_codec.encode(
            straight._shown.state.processes["worker-0"]
        )
    source.close()
    straight.close()


def test_full_read_ignores_cached_states(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [(numbered.writer, numbered.seq) for numbered in session.read_events(run_dir)]
    assert main(["replay", str(run_dir), "--json"]) == 0
    lines = capsys.readouterr().out
    longrun.write_cache(run_dir)
    assert [(numbered.writer, numbered.seq) for numbered in session.read_events(run_dir)] == every
    assert main(["replay", str(run_dir), "--json"]) == 0
    assert capsys.readouterr().out == lines
    assert main(["attach", str(run_dir), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(every)


def test_grown_journal_continues_from_newest_state(run_dir: Path) -> None:
    journal = run_dir / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:800]))
    longrun.write_cache(run_dir)
    journal.write_bytes(b"".join(lines))
    assert longrun.num_read(run_dir) < 500
    before = longrun.rendered(run_dir)
    shutil.rmtree(run_dir / "places")
    assert longrun.rendered(run_dir) == before


# Invalid cache files -------------------------------------------------------------------------------------------------


def _offset_inside_a_line(run_dir: Path, path: Path) -> None:
    longrun.forge(path, offset=cache_file.read_head(path).offset - 7)


def _offset_of_an_earlier_record(run_dir: Path, path: Path) -> None:
    """With a correct checksum of everything before it."""
    content = (run_dir / JOURNAL).read_bytes()
    offset = content.rindex(b"\n", 0, cache_file.read_head(path).offset - 1) + 1
    longrun.forge(path, offset=offset, before=zlib.crc32(content[max(0, offset - cache_file.BEFORE_BYTES) : offset]))


def _beyond_the_end(run_dir: Path, path: Path) -> None:
    longrun.forge(path, offset=1 << 50)


def _of_another_run(run_dir: Path, path: Path) -> None:
    other = longrun.write(run_dir.parent, "other", tone=3.0)
    longrun.write_cache(other)
    shutil.rmtree(run_dir / "places")
    shutil.copytree(other / "places", run_dir / "places")


def _truncated(run_dir: Path, path: Path) -> None:
    for number, cached in enumerate(cache_file.listed(run_dir)):
        cached.write_bytes(cached.read_bytes()[: (0, 1, 50, 300, 5_000, -1)[number % 6]])


def _flipped(run_dir: Path, path: Path) -> None:
    for number, cached in enumerate(cache_file.listed(run_dir)):
        content = bytearray(cached.read_bytes())
        content[300 + 97 * number] ^= 0x10
        cached.write_bytes(content)


def _huge_counts(run_dir: Path, path: Path) -> None:
    for number, cached in enumerate(cache_file.listed(run_dir)):
        content = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff" + bytes(99), b"\x91" * 100_000)[number % 3]
        longrun.forge(cached, content=content, bytes=len(content), crc=zlib.crc32(content))


def _claims_a_terabyte(run_dir: Path, path: Path) -> None:
    longrun.forge(path, bytes=1 << 40)
    with path.open("r+b") as file:
        file.truncate(1 << 40)


def _a_pipe_and_a_link(run_dir: Path, path: Path) -> None:
    for cached in cache_file.listed(run_dir):
        cached.unlink()
    os.mkfifo(path)
    path.with_name("worker-0-0000000000000009.place").symlink_to("/dev/zero")


def _another_name(run_dir: Path, path: Path) -> None:
    for cached in cache_file.listed(run_dir):
        cached.rename(cached.with_name(cached.name.replace("worker-0-", "supervisor-0-")))


def _another_journal(run_dir: Path, path: Path) -> None:
    longrun.forge(path, journal="../../etc/passwd")


def _later_than_it_says(run_dir: Path, path: Path) -> None:
    longrun.forge(path, newest_t=recorded.T0)


def _garbage(run_dir: Path, path: Path) -> None:
    for cached in cache_file.listed(run_dir):
        cached.write_bytes(bytes(range(256)) * 200)


def _heads_of_anything(run_dir: Path, path: Path) -> None:
    for number, cached in enumerate(cache_file.listed(run_dir)):
        head = (b"[" * 900, b"{}", b'{"format":1,"version":7}', b'{"format":1e999}', b"null", b"\xff\xfe")[number % 6]
        cached.write_bytes(head + b"\n" + bytes(100))


def _a_folder_elsewhere(run_dir: Path, path: Path) -> None:
    (run_dir / "places").rename(run_dir.parent / "elsewhere")
    (run_dir / "places").symlink_to(run_dir.parent / "elsewhere")


CORRUPTIONS: list[Callable[[Path, Path], None]] = [
    _offset_inside_a_line,
    _offset_of_an_earlier_record,
    _beyond_the_end,
    _of_another_run,
    _truncated,
    _flipped,
    _huge_counts,
    _claims_a_terabyte,
    _a_pipe_and_a_link,
    _another_name,
    _another_journal,
    _later_than_it_says,
    _garbage,
    _heads_of_anything,
    _a_folder_elsewhere,
]
NOT_REPORTED = {_a_pipe_and_a_link, _a_folder_elsewhere}
"""Not regular files: `check` does not list them."""


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_false_state_is_rejected_and_reported(
    run_dir: Path, capsys: pytest.CaptureFixture[str], corrupt: Callable[[Path, Path], None]
) -> None:
    expected, half_way = longrun.rendered(run_dir), recorded.T0 + 300
    then = snapshot_text(session.load_at(run_dir, half_way))
    newest = longrun.write_cache(run_dir)[-1]
    corrupt(run_dir, newest)
    assert longrun.rendered(run_dir) == expected
    assert snapshot_text(session.load_at(run_dir, half_way)) == then
    code, out = check(run_dir, capsys)
    assert (code, "places/" in out) == ((0, False) if corrupt in NOT_REPORTED else (1, True))


@pytest.mark.parametrize("changes", [{"format": cache_file.FORMAT + 1}, {"version": "99.0"}], ids=["format", "version"])
def test_state_of_other_version_is_ignored_not_damage(
    run_dir: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    expected, whole = longrun.rendered(run_dir), longrun.num_read(run_dir)
    for cached in longrun.write_cache(run_dir):
        longrun.forge(cached, **changes)
    assert longrun.num_read(run_dir) == whole
    assert longrun.rendered(run_dir) == expected
    code, out = check(run_dir, capsys)
    assert code == 0
    assert "not used: tputui " in out


def test_states_of_compressed_journal_are_not_damage(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A supervisor that is killed after sealing and before rewriting its cache files leaves them."""
    expected = longrun.rendered(run_dir)
    cached_files = longrun.write_cache(run_dir)
    seal(run_dir / JOURNAL)
    assert longrun.rendered(run_dir) == expected
    code, out = check(run_dir, capsys)
    assert (code, out.count("not used: its journal was sealed since")) == (0, len(cached_files))


def test_check_finds_a_matching_forged_state(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached = longrun.write_cache(run_dir)[-1]
    head = cache_file.read_head(cached)
    state, _ = cache_file.read_state(cached, head)
    state.steps_done += 1_000
    content = state_codec.encode(state)
    longrun.forge(cached, content=content, bytes=len(content), crc=zlib.crc32(content))
    code, out = check(run_dir, capsys)
    assert code == 1
    assert f"places/{cached.name}, bytes 0 to {cached.stat().st_size}: it differs from its journal" in out


def test_truncated_journal_opens_from_earlier_state(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached_files = longrun.write_cache(run_dir)
    journal = run_dir / JOURNAL
    content = journal.read_bytes()
    cut = cache_file.read_head(cached_files[-3]).offset + 50
    journal.write_bytes(content[:cut])
    before, read = longrun.rendered(run_dir), longrun.num_read(run_dir)
    assert read < 100
    code, out = check(run_dir, capsys)
    assert (code, out.count(f"{JOURNAL} is shorter than it was")) == (1, 2)
    shutil.rmtree(run_dir / "places")
    assert longrun.rendered(run_dir) == before


def test_check_finds_damage_before_a_cached_state(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longrun.write_cache(run_dir)
    flip_bit(run_dir / JOURNAL)
    code, out = check(run_dir, capsys)
    assert code == 1
    assert f"{JOURNAL}, bytes" in out


def test_no_state_is_written_after_damage(run_dir: Path) -> None:
    at = flip_bit(run_dir / JOURNAL)
    expected = longrun.rendered(run_dir)
    cached_files = longrun.write_cache(run_dir)
    assert cached_files
    assert all(cache_file.read_head(cached).offset < at for cached in cached_files)
    assert longrun.rendered(run_dir) == expected
    assert "damage" in expected


@pytest.mark.parametrize("seed", range(40))
def test_damaged_states_of_hostile_run_change_no_snapshot(tmp_path: Path, seed: int) -> None:
    run_dir, chance = hostile_run(tmp_path, seed), random.Random(seed)
    expected = longrun.rendered(run_dir)
    for _ in range(2):
        cache_writer = CacheWriter(run_dir, spacing_bytes=chance.choice((500, 2_000, 9_000)), spacing_share=0)
        cache_writer.poll()
        cache_writer.finish(60.0)
    assert longrun.rendered(run_dir) == expected
    for cached in cache_file.listed(run_dir):
        content = cached.read_bytes()
        for damage in chance.sample(BYTES, 2):
            content = damage(content, chance) if content else content
        cached.write_bytes(content)
    assert longrun.rendered(run_dir) == expected
    assert main(["check", str(run_dir)]) in (0, 1)


# Writing -------------------------------------------------------------------------------------------------------------


def test_states_are_bounded_spaced_and_include_the_newest(run_dir: Path) -> None:
    cached_files = longrun.write_cache(run_dir, spacing_bytes=4_000)
    heads = [cache_file.read_head(cached) for cached in cached_files if cached.name.startswith("worker")]
    assert len(heads) == OF_A_WRITER_MAX
    assert sum(cached.stat().st_size for cached in cached_files) < BYTES_MAX
    size = (run_dir / JOURNAL).stat().st_size
    offsets = [0, *(head.offset for head in heads)]
    assert size - offsets[-1] < size / 10
    assert max(after - before for before, after in itertools.pairwise(offsets)) < size / 4
    assert all(cached.stat().st_mode & 0o777 == 0o600 for cached in cached_files)
    assert (run_dir / "places").stat().st_mode & 0o777 == 0o700


def test_occasional_cache_writer_writes_the_same_states(run_dir: Path) -> None:
    """A journal that grows while it is read, by pieces that end anywhere."""
    journal = run_dir / JOURNAL
    content = journal.read_bytes()
    journal.write_bytes(b"")
    cache_writer = CacheWriter(run_dir, spacing_bytes=longrun.SPACING_BYTES, spacing_share=0, cpu_share=1e9)
    with journal.open("ab", buffering=0) as file:
        for start in range(0, len(content), 70_001):
            file.write(content[start : start + 70_001])
            cache_writer._due = 0.0
            cache_writer.poll()
    cache_writer.finish(60.0)
    assert not any(one.why_not for one in _findings(run_dir))
    assert longrun.num_read(run_dir) < 100


def _findings(run_dir: Path) -> list[CacheFinding]:
    verifier = CacheVerifier(run_dir)
    for numbered in session.read_events(run_dir):
        verifier.take(*numbered)
    return verifier.findings()


class SteadyClock:
    """Clocks by which each piece of work takes the same time, on any machine."""

    WORK_S = 0.005

    def __init__(self) -> None:
        self.now = 0.0
        self.num_readings = 0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def thread_time(self) -> float:
        """Seconds of work: it is read before and after each piece."""
        self.num_readings += 1
        self.now += self.WORK_S
        return self.num_readings * self.WORK_S


def test_cache_writer_sleeps_much_longer_than_it_works(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polled in a tight loop, with more to read at every poll."""
    path = run_dir / "rank-1.jsonl"
    recorded.write_journal(
        path, [ev.LogWritten(t=recorded.T0 + number, line="a line" * 30) for number in range(20_000)]
    )
    clock = SteadyClock()
    monkeypatch.setattr("tputui.cache.cache_writer.time", clock)
    cache_writer = CacheWriter(run_dir, cpu_share=0.05)
    while clock.now < 1.0:
        cache_writer.poll()
        clock.now += 0.001
    assert cache_writer._followed["rank-1"].unread
    worked_s = clock.num_readings / 2 * clock.WORK_S
    assert 0.8 * 0.05 < worked_s <= 0.05
    cache_writer.finish(60.0)


# In a subprocess, because the limit applies to every file that the process writes, including captured output.
_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from tputui.cache.cache_writer import CacheWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
cache_writer = CacheWriter(Path(sys.argv[1]), spacing_bytes=int(sys.argv[2]), spacing_share=0)
cache_writer.finish(60.0)
print(cache_writer.error)
"""


def test_full_disk_only_loses_the_state(run_dir: Path) -> None:
    expected = longrun.rendered(run_dir)
    words = [sys.executable, "-P", "-c", _ON_A_FULL_DISK, str(run_dir), str(longrun.SPACING_BYTES)]
    trouble = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert trouble == os.strerror(errno.EFBIG)  # a full disk gives ENOSPC
    assert list((run_dir / "places").iterdir()) == []
    assert longrun.rendered(run_dir) == expected


def test_unwritable_cache_folder_only_loses_states(run_dir: Path) -> None:
    (run_dir / "places").write_text("no folder")
    cache_writer = CacheWriter(run_dir, spacing_bytes=longrun.SPACING_BYTES, spacing_share=0)
    cache_writer.poll()
    cache_writer.finish(60.0)
    assert cache_writer.error == "File exists"
    assert longrun.num_read(run_dir) > 1_000


_WRITES_REPEATEDLY = """
import sys
from pathlib import Path
from tputui.cache.cache_writer import CacheWriter
while True:
    CacheWriter(Path(sys.argv[1]), spacing_bytes=8_000, spacing_share=0).finish(60.0)
"""


@pytest.mark.parametrize("num_kept", [1, 3, 6, 10, 14])
def test_kill_during_cache_write_leaves_intact_states(
    run_dir: Path, capsys: pytest.CaptureFixture[str], num_kept: int
) -> None:
    expected = longrun.rendered(run_dir)
    process = subprocess.Popen([sys.executable, "-P", "-c", _WRITES_REPEATEDLY, str(run_dir)])
    try:
        wait_for(lambda: len(cache_file.listed(run_dir)) >= num_kept, "places")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert longrun.rendered(run_dir) == expected
    code, out = check(run_dir, capsys)
    assert (code, "cached state" in out) == (0, True)  # one or more


def test_repaired_copy_has_no_cached_states(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longrun.write_cache(run_dir)
    flip_bit(run_dir / JOURNAL)
    main(["repair", str(run_dir)])
    capsys.readouterr()
    copy = run_dir.with_name(f"{run_dir.name}-repaired")
    assert not (copy / "places").exists()
    assert "1 event" in longrun.rendered(copy)


def test_short_run_has_no_cached_state(recorded_run: Path) -> None:
    cache_writer = CacheWriter(recorded_run)
    cache_writer.poll()
    cache_writer.finish()
    assert not (recorded_run / "places").exists()


def test_unsupported_state_is_not_written(run_dir: Path) -> None:
    state = ProcessState("worker-0")
    with contextlib.closing(Tail(run_dir / JOURNAL)) as tail:
        for numbered in tail.read():
            state.apply(numbered.seq, numbered.event)
        state.dropped_steps = 1 << 70
        with pytest.raises(state_codec.NotCacheable):
            cache_file.write(run_dir, tail.bookmark, state)
    assert cache_file.listed(run_dir) == []


def test_state_dropped_meanwhile_is_not_damage(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    longrun.write_cache(run_dir)
    listed = cache_file.listed

    def then_dropped(of: Path) -> list[Path]:
        found = listed(of)
        found[1].unlink()
        return found

    monkeypatch.setattr(cache_file, "listed", then_dropped)
    code, out = check(run_dir, capsys)
    assert (code, "places/" in out) == (0, False)


def test_verification_does_not_hold_all_states_in_memory(run_dir: Path) -> None:
    cached_files = longrun.write_cache(run_dir)
    CacheVerifier(run_dir)
    tracemalloc.start()
    try:
        verifier = CacheVerifier(run_dir)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < sum(cached.stat().st_size for cached in cached_files) / 10
    assert {found.why_not for found in verifier.findings()} == {"the journal has no event with its number"}


def test_check_json_lists_every_cached_state(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached_files = longrun.write_cache(run_dir)
    cached_files[0].write_bytes(b"garbage")
    assert main(["check", str(run_dir), "--json"]) == 1
    before = json.loads(capsys.readouterr().out)
    assert [one["place"] for one in before["places"]] == [f"places/{cached.name}" for cached in cached_files]
    assert [one["why_not"] is None for one in before["places"]] == [False] + [True] * (len(cached_files) - 1)

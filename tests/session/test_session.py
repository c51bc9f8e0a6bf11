"""Sessions of live, replayed, damaged and removed runs."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.recorded import (
    CONFIG,
    T0,
    Growing,
    ManualClock,
    opened,
    steps_recorded,
    supervisor_events,
    worker_events,
    write_journal,
    write_run,
)
from tputui.compare.compare import compare
from tputui.session import journal_reader
from tputui.session.journal_reader import CachedStates, JournalReader
from tputui.session.session import Session, extent, load, load_at
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.codec import decode, encode
from tputui.telemetry.compressed import seal
from tputui.telemetry.journal import JournalWriter


def read_all(session: Session) -> Snapshot:
    session.read_all()
    return session.snapshot()


def test_a_live_run_is_followed_as_it_is_written(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    writer = JournalWriter(run_dir / "worker-0.jsonl")
    session = Session.live(run_dir, clock=lambda: T0 + 12)
    read_all(session)
    events = worker_events()
    for event in events:
        writer.append([event])
        assert [entry.event for entry in session.poll()] == [event]
    assert session.snapshot().steps == 66
    writer.close()
    session.close()


def test_load_reads_everything(recorded_run: Path) -> None:
    snapshot = load(recorded_run)
    assert (snapshot.condition, snapshot.steps, snapshot.created, snapshot.config) == ("done", 66, T0, CONFIG)


def as_ours(run_dir: Path, writer: str, pid: int) -> None:
    """Makes a journal's head name a process of this host."""
    lines = (run_dir / f"{writer}.jsonl").read_bytes().splitlines(keepends=True)
    me = rundir.this_process()
    head = msgspec.structs.replace(
        opened(T0, writer[:-2]), host_id=me.host_id, pid=pid, pid_started=rundir.start_ticks(pid)
    )  # fmt: skip
    lines[0] = encode(head, 0, decode(lines[0]).journal_id)
    (run_dir / f"{writer}.jsonl").write_bytes(b"".join(lines))


def test_liveness_uses_processes_of_this_host(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, ended=False)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for writer in ("worker-0", "supervisor-0"):
        as_ours(run_dir, writer, child.pid)
    newest = T0 + 10.25
    session = Session.live(run_dir, clock=lambda: newest + 1)
    assert read_all(session).condition == "running"
    assert not session.settled
    child.kill()
    child.communicate()
    snapshot = session.snapshot()
    assert (snapshot.condition, session.settled) == ("lost", True)
    assert "gone for 1 s" in snapshot.condition_reason
    session.close()


def test_ended_run_is_settled(recorded_run: Path) -> None:
    session = Session.live(recorded_run)
    assert not session.settled
    read_all(session)
    assert session.settled
    session.close()


def test_silent_run_of_another_machine_is_lost(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, ended=False)
    assert load(run_dir, clock=lambda: T0 + 11).condition == "running"
    assert load(run_dir, clock=lambda: T0 + 99_999).condition == "lost"


def test_active_run_of_another_machine_is_running(tmp_path: Path) -> None:
    """A viewer whose clock is 100 s ahead: first lost but not settled, and running after the next event."""
    run_dir = write_run(tmp_path, ended=False)
    for writer in ("worker-0", "supervisor-0"):
        (run_dir / f"{writer}.jsonl").unlink()
    write_journal(run_dir / "supervisor-0.jsonl", supervisor_events(None)[:3])
    journal = JournalWriter(run_dir / "worker-0.jsonl")
    events = worker_events()[:12]
    journal.append(events)
    now = [events[-1].t + 100.0]
    session = Session.live(run_dir, clock=lambda: now[0])
    read_all(session)
    assert session.snapshot().condition == "lost"
    assert not session.settled
    journal.append([ev.HeartbeatSent(t=now[0] - 100, phase="executing", phase_s=0.1, step=11, epoch=1)])
    assert session.poll()
    assert session.snapshot().condition == "running"
    now[0] += 5
    assert session.snapshot().condition == "running"
    now[0] += 60
    assert session.snapshot().condition == "lost"
    assert session.settled
    session.close()
    journal.close()


def test_clock_set_back_shortens_neither_run_nor_replay(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    whole = load(run_dir)
    for writer in ("worker-0", "supervisor-0"):
        path = run_dir / f"{writer}.jsonl"
        events = [numbered.event for numbered in map(decode, path.read_bytes().splitlines())]
        # A supervisor samples its host all the time; time without an event of any writer is lost.
        samples = [ev.LogWritten(t=T0 + 5.2 + k, line="") for k in range(1, 6) if writer == "supervisor-0"]
        events[-2:-2] = samples
        back = [msgspec.structs.replace(e, t=e.t - 3600) if e.t > T0 + 7.6 else e for e in events]
        path.unlink()
        write_journal(path, back)
    shown = load(run_dir)
    assert whole.started is not None and whole.ended is not None and shown.ended is not None  # noqa: PT018
    took = whole.ended - whole.started
    assert shown.started == whole.started
    assert shown.ended - whole.started == pytest.approx(took, abs=3)
    assert compare([shown, shown], 0).runs[0].duration_s == pytest.approx(took, abs=3)
    assert any("host's clock was set back by " in line.text for line in shown.logs)
    reach = extent(run_dir)
    assert reach.end - reach.start == pytest.approx(took, abs=3)
    halfway = load_at(run_dir, reach.start + 0.8 * took)
    assert 0 < halfway.steps < whole.steps
    assert load_at(run_dir, reach.end).steps == whole.steps


def test_requests_are_read_with_the_journals(recorded_run: Path) -> None:
    request = requests.submit(recorded_run, "stop", by="test", now=T0 + 9)
    [view] = load(recorded_run).requests
    assert (view.id, view.kind, view.state, view.by, view.t) == (request.id, "stop", "requested", "test", T0 + 9)


# Damage


def flipped(content: bytes, offset: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 0x41]) + content[offset + 1 :]


@given(st.data())
@settings(max_examples=60)
def test_damage_in_a_journal_is_skipped_and_reported(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run_dir = write_run(tmp_path_factory.mktemp("runs"))
    path = run_dir / data.draw(st.sampled_from(["worker-0.jsonl", "supervisor-0.jsonl"]))
    content = path.read_bytes()
    offset = data.draw(st.integers(1, len(content) - 2))
    garbage = bytes(range(255, 1, -1)) * 20
    damaged = {
        "cut": content[:offset],
        "flipped": flipped(content, offset),
        "empty": b"",
        "garbage": content[:offset] + garbage + content[offset:],
        "only garbage": garbage,
        "one line of garbage": b"\n" + b"x" * 5_000 + b"\n",
    }
    left = damaged[data.draw(st.sampled_from(sorted(damaged)))]
    path.write_bytes(left)
    snapshot = load(run_dir)
    # A supervisor's journal that was truncated between two lines looks like one whose writer was killed.
    may_be_killed = path.name.startswith("supervisor") and b"WorkerStarted" in left and left.endswith(b"\n")
    is_sound = left == content or (content.startswith(left) and may_be_killed)
    assert {region.journal for region in snapshot.damage.regions} == (set() if is_sound else {path.name})
    replayed = Session.replay(run_dir)
    assert replayed.player is not None
    replayed.player.seek(replayed.player.end)
    assert read_all(replayed).damage == snapshot.damage
    replayed.close()


def test_run_without_manifest_is_read_from_journals(recorded_run: Path) -> None:
    (recorded_run / "run.json").write_bytes(b"{damaged")
    snapshot = load(recorded_run)
    assert (snapshot.run, snapshot.condition, snapshot.config, snapshot.created) == ("digits-1", "done", CONFIG, None)
    assert [region.journal for region in snapshot.damage.regions] == ["run.json"]


def test_empty_directory_is_reported_lost(tmp_path: Path) -> None:
    snapshot = load(tmp_path)
    assert (snapshot.condition, snapshot.config, snapshot.run) == ("lost", {}, tmp_path.name)


def test_vanished_directory_is_reported(recorded_run: Path) -> None:
    session = Session.live(recorded_run)
    before = read_all(session)
    shutil.rmtree(recorded_run)
    session.poll()
    after = session.snapshot()
    assert (after.condition, after.steps, after.run) == (before.condition, 66, "digits-1")
    assert any("is gone" in text for text in after.troubles)
    session.close()


@pytest.mark.parametrize("renamed", ["run", "parent"])
def test_renamed_directory_is_followed(recorded_run: Path, renamed: str) -> None:
    whole = recorded_run.parent / "moving" / recorded_run.name
    whole.parent.mkdir()
    recorded_run.rename(whole)
    journal = whole / "worker-0.jsonl"
    content = journal.read_bytes()
    journal.write_bytes(content[: len(content) // 2])
    session = Session.live(whole)
    before = read_all(session)
    old = whole if renamed == "run" else whole.parent
    old.rename(old.with_name("moved"))
    moved = whole.with_name("moved") if renamed == "run" else whole.parent.with_name("moved") / whole.name
    (moved / "worker-0.jsonl").write_bytes(content)
    requests.submit(moved, "stop", by="test", now=1.0)
    after = read_all(session)
    assert before.steps < after.steps == 66
    assert [request.by for request in after.requests][-1] == "test"
    assert (after.dir, after.troubles, session.run_dir) == (str(moved), [], moved)
    shutil.rmtree(moved)
    assert any("is gone" in text for text in session.snapshot().troubles)
    session.close()


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    snapshot = load(tmp_path / "nowhere")
    assert snapshot.condition == "lost"
    assert any("is gone" in text for text in snapshot.troubles)


# Replay


def straight(run_dir: Path, t: float) -> Snapshot:
    """A replay that starts at `t`."""
    session = Session.replay(run_dir, clock=ManualClock())
    assert session.player is not None
    session.player.pause()
    session.player.seek(t)
    snapshot = read_all(session)
    session.close()
    return snapshot


@pytest.fixture(scope="module")
def played_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose processes were killed."""
    return write_run(tmp_path_factory.mktemp("runs"), ended=False)


@given(st.lists(st.tuples(st.sampled_from(["seek", "wait", "pause", "play", "speed"]), st.floats(0, 12)), max_size=12))
@settings(max_examples=60)
def test_snapshot_of_a_moment_does_not_depend_on_the_path(played_run: Path, moves: list[tuple[str, float]]) -> None:
    clock = ManualClock()
    session = Session.replay(played_run, clock=clock)
    player = session.player
    assert player is not None
    for move, amount in moves:
        if move == "seek":
            player.seek(player.start + amount)
        elif move == "wait":
            clock.now += amount
        elif move == "speed":
            player.set_speed(amount + 0.1)
        else:
            (player.pause if move == "pause" else player.play)()
        session.poll()
    snapshot = read_all(session)
    assert snapshot == straight(played_run, snapshot.now)
    session.close()


@given(st.floats(0, 12))
@settings(max_examples=30)
def test_replay_moment_reduces_events_up_to_it(played_run: Path, seconds: float) -> None:
    state = RunState()
    for name, events in (("worker-0", worker_events()[:-1]), ("supervisor-0", supervisor_events(None))):
        for seq, event in enumerate(events):
            if event.t <= T0 + seconds:
                state.apply(name, seq, event)
    snapshot = straight(played_run, T0 + seconds)
    assert snapshot.newest_fact == state.newest_t
    assert snapshot.steps == max((worker.steps_done for worker in state.workers), default=0)
    assert len(snapshot.logs) == sum(len(writer.log.logs) for writer in state.processes.values())


def test_a_player_plays_pauses_seeks_and_changes_speed(recorded_run: Path) -> None:
    clock = ManualClock(100.0)
    session = Session.replay(recorded_run, speed=2.0, clock=clock)
    player = session.player
    assert player is not None
    assert player.end == pytest.approx(T0 + 11, abs=1e-3)
    assert (player.start, player.position, player.playing) == (T0, T0, True)
    clock.now += 2
    assert player.position == T0 + 4
    player.pause()
    clock.now += 50
    assert (player.position, player.playing) == (T0 + 4, False)
    player.play()
    player.set_speed(1.0)
    clock.now += 1
    assert player.position == T0 + 5
    player.seek(T0 - 99)
    assert player.position == T0
    clock.now += 99
    assert (player.position, player.playing, player.at_end) == (player.end, False, True)
    player.play()
    assert (player.position, player.playing) == (T0, True)
    with pytest.raises(ValueError, match="must be more than 0"):
        player.set_speed(0)
    session.close()


def test_replayed_killed_run_is_lost_only_at_its_end(played_run: Path) -> None:
    assert [straight(played_run, T0 + t).condition for t in (0.1, 4, 6, 8, 10, 99)] == [
        "starting", "starting", "running", "running", "running", "lost"]  # fmt: skip


def test_replay_is_settled_only_at_its_end(played_run: Path) -> None:
    clock = ManualClock()
    session = Session.replay(played_run, clock=clock)
    read_all(session)
    assert not session.settled
    clock.now += 60
    read_all(session)
    assert session.settled
    session.close()


def test_compressed_run_plays_like_a_plain_one(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain")
    sealed = Path(shutil.copytree(plain, tmp_path / "sealed" / "digits-1"))
    for path in sealed.glob("*.jsonl"):
        seal(path)
    for t in (T0 + 1, T0 + 6, T0 + 99):
        left, right = straight(plain, t), straight(sealed, t)
        assert msgspec.structs.replace(left, dir="") == msgspec.structs.replace(right, dir="")


def test_a_moment_hides_requests_that_came_later(recorded_run: Path) -> None:
    requests.submit(recorded_run, "checkpoint", by="test", now=T0 + 9)
    assert [len(straight(recorded_run, T0 + t).requests) for t in (8, 10)] == [0, 1]


def test_run_being_read_is_never_reported_lost(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    long = [steps_recorded(T0 + 5 + k / 1_000, 1 + 2_000 * k, [[1.0] * 64] * 2_000) for k in range(12)]
    write_journal(run_dir / "worker-0.jsonl", [*worker_events()[:5], *long, *worker_events()[-1:]])
    (run_dir / "supervisor-0.jsonl").unlink()
    for session in (Session.live(run_dir), Session.replay(run_dir, speed=1e9)):
        conditions = set()
        while True:
            session.poll(budget_s=0.002)
            conditions.add(session.snapshot().condition)
            if session.settled:
                break
        assert conditions <= {"starting", "running", "done"}
        session.close()


# Cost

PROBE = """
import json, sys
from pathlib import Path
import tputui.session.session
snapshot = tputui.session.session.load(Path(sys.argv[1]))
heavy = {"textual", "rich", "psutil", "numpy", "zstandard", "torch", "asyncio", "subprocess"} & set(sys.modules)
print(json.dumps([snapshot.condition, sorted(heavy)]))
"""


def test_opening_a_run_needs_nothing_heavy(recorded_run: Path) -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, str(recorded_run)], capture_output=True, check=True, cwd=recorded_run
    )  # fmt: skip
    assert json.loads(probe.stdout) == ["done", []]


def test_partial_line_is_damage_only_after_writer_exits(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, ended=False)
    with (run_dir / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"k":"LogWritten","t":')
    assert load(run_dir, clock=lambda: T0 + 11).damage.regions == []
    [region] = load(run_dir, clock=lambda: T0 + 9_999).damage.regions
    assert region.reason == "the last line is truncated"


def test_run_that_is_being_read_is_not_damaged(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    lines = [ev.LogWritten(t=T0 + 5 + k / 1_000, line="x" * 10_000) for k in range(400)]
    write_journal(run_dir / "worker-0.jsonl", [*worker_events()[:5], *lines, *worker_events()[-1:]])
    session = Session.live(run_dir)
    half_read = set()
    while not session.caught_up:
        session.poll(budget_s=0.0)
        snapshot = session.snapshot()
        assert snapshot.damage.regions == []
        half_read |= set() if session.caught_up else {snapshot.condition}
    assert "done" in half_read
    session.close()


def test_unknown_kind_of_event_is_reported(recorded_run: Path) -> None:
    write_journal(recorded_run / "helper-0.jsonl", [ev.UnknownEvent(t=T0, kind="TeaMade", fields={"cups": 2})])
    warning = load(recorded_run).newer_format
    assert warning is not None
    assert "TeaMade" in warning


# Looking back while the run continues


def as_then(snapshot: Snapshot) -> Snapshot:
    """A snapshot without the fields that depend on whether the run continues."""
    return msgspec.structs.replace(
        snapshot,
        condition="running",
        condition_reason="",
        cores=[],
        hosts=[],
        phase_s=0.0,
        eta_s=None,
        throughput=None,
        time_spent=None,
        marks=[],
        num_marks=0,
    )


MOVES = st.tuples(st.sampled_from(["seek", "wait", "pause", "play", "speed", "follow"]), st.floats(0.01, 6))


@given(st.lists(MOVES, max_size=14))
@example([("wait", 1.0), ("wait", 5.0), ("wait", 6.0)])
@settings(max_examples=40)
def test_looking_back_shows_the_earlier_snapshot(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, float]]
) -> None:
    growing = Growing(tmp_path_factory.mktemp("runs"))
    growing.go_on(5)
    session, player = growing.session, growing.session.player
    read_all(session)
    for move, amount in moves:
        if move == "seek":
            player.seek(player.start + 2 * amount)
        elif move == "wait":
            growing.go_on(amount)
        elif move == "speed":
            player.set_speed(amount)
        else:
            {"pause": player.pause, "play": player.play, "follow": player.follow}[move]()
        snapshot = read_all(session)
        position = player.position
        assert player.start <= position <= player.end
        assert snapshot.now == (growing.clock.now if player.live else position)
        assert (snapshot.newest_fact or 0.0) <= snapshot.now
        then = straight(growing.run_dir, snapshot.now)
        if snapshot.now < growing.known_until:
            assert snapshot == then
        else:
            assert as_then(snapshot) == as_then(msgspec.structs.replace(then, now=snapshot.now))
    growing.close()


def test_live_player_follows_looks_back_and_returns(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.go_on(7)
    session, player = growing.session, growing.session.player
    newest = read_all(session)
    assert (player.live, player.playing, player.position, player.start, player.end) == (True, True, T0 + 7, T0, T0 + 7)
    player.play()
    assert player.live, "there is nothing to play while now is followed"
    player.seek(T0 + 5)
    assert (player.live, player.playing) == (False, False), "a person who looks back wants to look"
    growing.go_on(1)
    assert (read_all(session).now, player.position, player.end) == (T0 + 5, T0 + 5, T0 + 8)
    player.play()
    growing.go_on(1)
    assert (read_all(session).now, player.playing, player.live) == (T0 + 6, True, False)
    player.follow()
    assert [entry for entry in session.poll(0.0) if entry.event.t < newest.now] == [], "what came meanwhile was read"
    assert (session.snapshot().now, player.live) == (T0 + 9, True)
    player.pause()
    growing.go_on(1)
    assert (read_all(session).now, player.live) == (T0 + 9, False)
    player.seek(T0 + 99)
    assert (read_all(session).now, player.live) == (T0 + 10, True)
    growing.close()


def test_playing_fast_reaches_now_and_follows_it_again(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.go_on(7)
    session, player = growing.session, growing.session.player
    read_all(session)
    player.seek(T0 + 1)
    player.set_speed(10)
    player.play()
    growing.go_on(0.5)
    assert (read_all(session).now, player.live) == (T0 + 6, False)
    growing.go_on(0.5)
    assert (read_all(session).now, player.live) == (T0 + 8, True)
    growing.close()


def test_run_that_ended_live_can_be_played_from_start(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.go_on(60)
    session, player = growing.session, growing.session.player
    assert read_all(session).condition == "done"
    assert (player.live, player.playing, player.end) == (True, False, T0 + 11.1)
    player.play()
    growing.clock.now += 5
    assert (read_all(session).now, player.live, player.playing) == (T0 + 5, False, True)
    growing.clock.now += 60
    assert (read_all(session).condition, player.live, player.playing) == ("done", True, False)
    growing.close()


def test_looking_back_hides_requests_that_came_later(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.go_on(8)
    requests.submit(growing.run_dir, "checkpoint", by="test", now=T0 + 7)
    session = growing.session
    assert [len(read_all(session).requests), read_all(session).marks[-1].kind] == [1, "request"]
    session.player.seek(T0 + 6)
    back = read_all(session)
    assert (back.requests, [mark for mark in back.marks if mark.kind == "request"]) == ([], [])
    growing.close()


def test_events_written_while_looking_back_are_read(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.go_on(7)
    session = growing.session
    read_all(session)
    session.player.seek(T0 + 5)
    read_all(session)
    growing.go_on(2)
    assert read_all(session).steps < 60
    session.player.follow()
    session.poll(0.0)
    assert session.snapshot().newest_fact == straight(growing.run_dir, T0 + 9).newest_fact
    growing.close()


# Cached states


@given(st.lists(st.tuples(st.floats(0, 12), st.floats(0, 0.004)), min_size=1, max_size=12), st.integers(1, 6))
@settings(max_examples=40)
def test_seeking_reader_equals_a_sequential_one(
    played_run: Path, moments: list[tuple[float, float]], most: int
) -> None:
    states = CachedStates(most, spacing_bytes=1)
    track = JournalReader(played_run, states)
    for seconds, budget_s in moments:
        moment = T0 + seconds
        track.read(moment, budget_s)
        while not track.caught_up:
            track.read(moment, budget_s)
        fresh = JournalReader(played_run, CachedStates())
        fresh.read(moment, 9.0)
        around = ViewerContext(now=moment, run="digits-1", dir="")
        assert build_snapshot(track.state, around) == build_snapshot(fresh.state, around)
        fresh.close()
    track.close()


def test_kept_states_are_few_and_before_the_moment(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    rough = [[math.sin(1e6 * (64 * step + core)) for core in range(64)] for step in range(500)]
    long = [steps_recorded(T0 + 5 + k, 1 + 500 * k, rough) for k in range(60)]
    write_journal(run_dir / "worker-0.jsonl", [*worker_events()[:5], *long])
    states = CachedStates(4, spacing_bytes=1)
    track = JournalReader(run_dir, states)
    while not track.caught_up:
        track.read(math.inf, 0.0)
    assert states.before(T0 - 1) == {}
    found = [states.before(T0 + 5 + t).get("worker-0") for t in range(60)]
    kept = {state.bookmark.offset: state for state in found if state is not None}
    assert 2 <= len(kept) <= 4
    assert all(state is None or state.newest_t <= T0 + 5 + t for t, state in enumerate(found))
    track.close()


def test_states_with_many_epochs_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    before = worker_events()[:5]
    ended = next(event for event in worker_events() if isinstance(event, ev.EpochEnded))
    ended = msgspec.structs.replace(ended, train={}, sections_s={})
    epochs = [msgspec.structs.replace(ended, t=T0 + 5 + k, epoch=k + 1, step=k + 1) for k in range(20_000)]
    write_journal(run_dir / "worker-0.jsonl", [*before, *epochs])
    monkeypatch.setattr(journal_reader, "EPOCHS_OF_STATE", 10_000)
    states = CachedStates(6, spacing_bytes=1)
    track = JournalReader(run_dir, states)
    while not track.caught_up:
        track.read(math.inf, 0.0)
    found = [states.before(T0 + 5 + k).get("worker-0") for k in range(0, 21_000, 500)]
    kept = {len(state.state.epochs) for state in found if state is not None}
    assert kept
    assert sum(1 + num_epochs // 10_000 for num_epochs in kept) <= 6
    assert len(track.state.processes["worker-0"].epochs) == 20_000
    track.close()


def test_position_in_compressed_journal_is_not_reused(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    states = CachedStates(spacing_bytes=1)
    first = JournalReader(run_dir, states)
    while not first.caught_up:
        first.read(math.inf, 0.0)
    first.close()
    for path in run_dir.glob("*.jsonl"):
        seal(path)
    second = JournalReader(run_dir, states)
    second.read(T0 + 6, 9.0)
    second.read(T0 + 99, 9.0)
    second.read(T0 + 8, 9.0)
    around = ViewerContext(now=T0 + 8, run="", dir="")
    fresh = JournalReader(run_dir, CachedStates())
    fresh.read(T0 + 8, 9.0)
    assert build_snapshot(second.state, around) == build_snapshot(fresh.state, around)
    for track in (second, fresh):
        track.close()

"""The thread between a session and the screen."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.ui import made
from tputui.diagnosis.diagnose import diagnose
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.telemetry import requests, rundir
from tputui.ui.base.reader_thread import Frame, PlayerControls, ReaderThread


class Counting(made.HandSource):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__(made.empty())
        self.polls = 0
        self.caught_up = False

    def poll(self, budget_s: float) -> list[object]:
        self.polls += 1
        return []


def pumped(
    source: made.HandSource, until: Callable[[ReaderThread, list[Frame]], bool], *, draws: bool = True
) -> list[Frame]:
    """Runs a thread until a condition holds; returns the frames."""
    frames: list[Frame] = []
    got = threading.Condition()

    def deliver(frame: Frame) -> None:
        with got:
            frames.append(frame)
            got.notify()
        if draws:
            pump.drawn()

    pump = ReaderThread(source, deliver, frame_s=0.01, age_s=0.01)
    thread = threading.Thread(target=pump.run)
    thread.start()
    with got:
        held = got.wait_for(lambda: until(pump, frames), timeout=DEADLINE_S)
    pump.stop()
    thread.join(DEADLINE_S)
    assert held
    assert not thread.is_alive()
    return frames


def test_reader_closes_the_source() -> None:
    source = made.HandSource(made.empty())
    frames = pumped(source, lambda _, frames: len(frames) >= 2)
    assert source.closed
    assert frames[0] == Frame(made.empty(), None, True, made.empty(), diagnose(made.empty()))


def test_undrawn_frame_does_not_stop_reading() -> None:
    source = Counting()
    frames = pumped(source, lambda _, frames: len(frames) == 1, draws=False)
    assert len(frames) == 1


def test_frame_rate_is_limited() -> None:
    source = Counting()
    began = time.monotonic()
    frames = pumped(source, lambda _, frames: len(frames) >= 5)
    assert time.monotonic() - began >= 0.01 * (len(frames) - 1)
    assert source.polls > len(frames)


class Idle:
    """A thread with a source, whose ages change only after the test."""

    def __init__(self, source: made.HandSource, *, age_s: float = 3_600.0, long_age_s: float = 3_600.0) -> None:
        self.frames: list[Frame] = []
        self._got = threading.Condition()
        self.reader = ReaderThread(source, self._deliver, frame_s=0.0, age_s=age_s, long_age_s=long_age_s)
        self._thread = threading.Thread(target=self.reader.run)

    def __enter__(self) -> Idle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def wait_for(self, number: int) -> None:
        """Waits for a number of frames."""
        with self._got:
            assert self._got.wait_for(lambda: len(self.frames) >= number, timeout=DEADLINE_S)

    def wait_until(self, condition: Callable[[Snapshot], bool]) -> None:
        """Waits for a frame of a snapshot that fulfils a condition."""
        with self._got:
            assert self._got.wait_for(
                lambda: bool(self.frames) and condition(self.frames[-1].snapshot), timeout=DEADLINE_S
            )

    def _deliver(self, frame: Frame) -> None:
        with self._got:
            self.frames.append(frame)
            self._got.notify()
        self.reader.drawn()


@pytest.mark.parametrize("snapshot", [made.finished(), made.running()], ids=lambda snapshot: snapshot.condition)
def test_without_news_only_commands_cause_frames(snapshot: Snapshot) -> None:
    source = made.HandSource(snapshot, made.LivePlayer())
    with Idle(source) as idle:
        for number in range(1, 21):
            idle.wait_for(number)
            idle.reader.ask(lambda player: player.set_speed(2.0))
        idle.wait_for(21)
    assert len(idle.frames) == 21


def test_news_causes_one_frame() -> None:
    source = made.HandSource(made.running())
    with Idle(source) as idle:
        idle.wait_for(1)
        source.served = made.changed(made.running(), steps=12_345)
        idle.wait_for(2)
    assert [frame.snapshot.steps for frame in idle.frames][1:] == [12_345]


def test_frames_go_on_without_news_until_the_snapshot_has_all() -> None:
    class Behind(made.HandSource):
        def snapshot(self, *, may_defer: bool = False) -> Snapshot:
            self.served = made.changed(self.served, steps=self.served.steps + 1)
            return made.changed(self.served, is_behind=may_defer and self.served.steps < 1_005)

        def poll(self, budget_s: float) -> list[object]:
            return []

    with Idle(Behind(made.changed(made.finished(), steps=1_000))) as idle:
        idle.wait_for(5)
        idle.reader.refresh()
        idle.wait_for(6)
    assert [frame.snapshot.is_behind for frame in idle.frames] == [*[True] * 4, False, False]


def test_frames_go_on_until_the_present_has_all_while_the_past_is_shown() -> None:
    class Behind(made.HandSource):
        def newest(self, *, may_defer: bool = False) -> Snapshot:
            number = self.newest_served.steps + 1 if self.newest_served is not None else 1
            self.newest_served = made.changed(self.served, steps=number, is_behind=may_defer and number < 5)
            return self.newest_served

        def poll(self, budget_s: float) -> list[object]:
            return []

    player = made.LivePlayer()
    player.pause()
    with Idle(Behind(made.finished(), player)) as idle:
        idle.wait_for(5)
        idle.reader.refresh()
        idle.wait_for(6)
    assert [frame.newest.is_behind for frame in idle.frames] == [*[True] * 4, False, False]


def test_refresh_causes_a_frame() -> None:
    with Idle(made.HandSource(made.finished())) as idle:
        idle.wait_for(1)
        idle.reader.refresh()
        idle.wait_for(2)


@pytest.mark.parametrize("shown", [made.finished(), made.running()], ids=lambda snapshot: snapshot.condition)
def test_ages_are_shown_less_often_the_older_they_are(shown: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a frame whenever an age changes, a run with a fresh event or end is drawn often, an old one hardly ever."""
    for age_s, is_often in ((3.0, True), (30.0, False), (600.0, False)):
        at = shown.now - age_s
        over = made.changed(shown, ended=at if shown.ended else None, newest_fact=at, requests=[])
        source, polled = made.HandSource(over), threading.Semaphore(0)
        poll = source.poll

        def counted(
            budget_s: float, poll: Callable[[float], object] = poll, polled: threading.Semaphore = polled
        ) -> object:
            polled.release()
            return poll(budget_s)

        monkeypatch.setattr(source, "poll", counted)
        with Idle(source, age_s=0.001) as idle:
            for _ in range(8):
                assert polled.acquire(timeout=DEADLINE_S)
        assert (len(idle.frames) >= 5) == is_often


class Silent(made.HandSource):
    """A run without events, in simulated time that begins with its newest event."""

    def __init__(self, served: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(served)
        self.silent_s = 0.0
        self.polls = self.checks = 0
        monkeypatch.setattr(time, "monotonic", lambda: 1e6 + self.silent_s)

    def poll(self, budget_s: float) -> list[object]:
        self.polls += 1
        return []

    def fingerprint(self) -> object:
        self.checks += 1
        return None

    def snapshot(self, *, may_defer: bool = False) -> Snapshot:
        return made.changed(self.served, now=self.served.now + self.silent_s)


@pytest.mark.parametrize(("shown", "polls_a_minute"), [(made.finished(), 30), (made.running(), 60)])
def test_silence_costs_little_after_a_minute(
    shown: Snapshot, polls_a_minute: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = shown.now
    source = Silent(made.changed(shown, ended=at if shown.ended else None, newest_fact=at, requests=[]), monkeypatch)
    frames: list[Frame] = []

    def deliver(frame: Frame) -> None:
        frames.append(frame)
        reader.drawn()

    reader = ReaderThread(source, deliver)
    per_minute: list[tuple[int, int, int]] = []
    for minute in range(1, 6):
        source.polls = source.checks = 0
        frames.clear()
        while source.silent_s < 60 * minute:
            source.silent_s += reader.poll()
        per_minute.append((source.polls, source.checks, len(frames)))
    assert per_minute[0][2] >= 15, "ages of seconds are shown"
    for polls, checks, num_frames in per_minute[1:]:
        assert polls <= polls_a_minute + 1
        assert checks <= 31
        assert num_frames == 1


def test_end_of_the_process_of_a_silent_run_is_noticed(tmp_path: Path) -> None:
    """GIVEN no event for minutes, so that ages are rarely drawn, the death of the process is shown within seconds."""
    run_dir = rundir.create(tmp_path, recorded.manifest())
    # It ends with the test, because its input does.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        known = msgspec.structs.asdict(rundir.process_with(process.pid))
        head = msgspec.structs.replace(recorded.opened(recorded.T0, "worker"), **known)
        recorded.write_journal(run_dir / "worker-0.jsonl", [head])
        session = Session.live(run_dir, clock=lambda: recorded.T0 + 200.0)
        with Idle(cast("made.HandSource", session), age_s=0.05) as idle:
            idle.wait_until(lambda snapshot: snapshot.condition == "stalled")
            process.kill()
            process.wait()
            idle.wait_until(lambda snapshot: snapshot.condition == "lost")


def test_other_files_of_an_ended_run_are_noticed(tmp_path: Path) -> None:
    """GIVEN the end of the run long ago, a request is shown within seconds."""
    run_dir = recorded.write_run(tmp_path)
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 86_400.0)
    with Idle(cast("made.HandSource", session), age_s=0.05) as idle:
        idle.wait_for(1)
        seen = len(idle.frames)
        requests.submit(run_dir, "checkpoint", by="test", now=recorded.T0 + 86_000.0)
        idle.wait_for(seen + 1)
    assert [request.by for request in idle.frames[-1].snapshot.requests][-1:] == ["test"]


def test_events_of_a_continued_run_are_noticed(tmp_path: Path) -> None:
    """GIVEN a viewer of an ended run, a new journal is read within seconds."""
    run_dir = recorded.write_run(tmp_path)
    worker = run_dir / "worker-0.jsonl"
    hidden = worker.rename(tmp_path / "hidden")
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 86_400.0)
    with Idle(cast("made.HandSource", session), age_s=0.05) as idle:
        idle.wait_for(1)
        assert idle.frames[0].snapshot.steps == 0
        hidden.rename(worker)
        idle.wait_until(lambda snapshot: snapshot.steps == 66)


def test_events_of_a_continued_run_change_the_fingerprint_while_its_past_is_shown(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, ended=False)
    worker = run_dir / "worker-0.jsonl"
    lines = worker.read_bytes().splitlines(keepends=True)
    worker.write_bytes(b"".join(lines[: len(lines) // 2]))
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 86_400.0)
    session.read_all()
    player = session.player
    assert player is not None
    player.seek(player.start)
    session.poll()
    before = session.fingerprint()
    with worker.open("ab") as file:
        file.write(b"".join(lines[len(lines) // 2 :]))
    session.poll()
    assert session.newest().steps == 66
    assert session.fingerprint() != before
    session.close()


def test_player_commands_run_in_the_reader_thread() -> None:
    player = made.HandPlayer()
    threads: list[threading.Thread] = []
    asked = False

    def command(player: PlayerControls) -> None:
        threads.append(threading.current_thread())
        player.seek(made.NOW + 7)

    def until(pump: ReaderThread, frames: list[Frame]) -> bool:
        nonlocal asked
        if frames and not asked:
            asked = True
            pump.ask(command)
        return bool(frames) and frames[-1].player is not None and frames[-1].player.position == made.NOW + 7

    pumped(made.HandSource(made.running(), player), until)
    assert threads[0] is not threading.main_thread()


def test_recorded_run_is_delivered(tmp_path: Path) -> None:
    session = Session.live(recorded.write_run(tmp_path), clock=lambda: recorded.T0 + 100)
    frames: list[Frame] = []

    def deliver(frame: Frame) -> None:
        frames.append(frame)
        pump.stop()

    pump = ReaderThread(session, deliver)
    pump.run()
    assert frames[0].snapshot.steps == 66


def test_live_run_looks_back_and_returns(tmp_path: Path) -> None:
    clock = [recorded.T0 + 9.0]
    session = Session.live(recorded.write_run(tmp_path, ended=False), clock=lambda: clock[0])
    frames: list[Frame] = []
    commands: list[Callable[[PlayerControls], None]] = [
        lambda player: player.seek(recorded.T0 + 7.5),
        lambda player: player.follow(),
    ]

    def deliver(frame: Frame) -> None:
        pump.drawn()
        if not frame.caught_up:
            return
        frames.append(frame)
        if commands:
            pump.ask(commands.pop(0))
        else:
            pump.stop()

    pump = ReaderThread(session, deliver, frame_s=0.0)
    pump.run()
    moments = [(frame.player.live, frame.snapshot.now - recorded.T0) for frame in frames if frame.player is not None]
    assert moments[0] == (True, 9.0)
    assert (False, 7.5) in moments
    assert moments[-1] == (True, 9.0)

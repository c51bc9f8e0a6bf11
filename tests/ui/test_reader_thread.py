"""The thread between a session and the screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests import recorded
from tests.ui import made
from tputui.session.session import Session
from tputui.ui.base.reader_thread import Frame, Player, ReaderThread


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

    pump = ReaderThread(source, deliver, frame_s=0.01)
    thread = threading.Thread(target=pump.run)
    thread.start()
    with got:
        held = got.wait_for(lambda: until(pump, frames), timeout=60)
    pump.stop()
    thread.join(10)
    assert held
    assert not thread.is_alive()
    return frames


def test_reader_closes_the_source() -> None:
    source = made.HandSource(made.empty())
    frames = pumped(source, lambda _, frames: len(frames) >= 2)
    assert source.closed
    assert frames[0] == Frame(made.empty(), None, True, made.empty())


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


def test_ended_run_redraws_rarely_or_on_key() -> None:
    """GIVEN an idle pause longer than the test, only commands cause frames."""
    source = made.HandSource(made.finished(), made.LivePlayer())
    source.hand_player.playing = False  # type: ignore[union-attr]
    frames: list[Frame] = []
    got = threading.Condition()

    def deliver(frame: Frame) -> None:
        with got:
            frames.append(frame)
            got.notify()
        pump.drawn()

    pump = ReaderThread(source, deliver, frame_s=0.0, idle_s=3_600.0)
    thread = threading.Thread(target=pump.run)
    thread.start()
    for number in range(1, 21):
        with got:
            assert got.wait_for(lambda number=number: len(frames) >= number, timeout=60)  # type: ignore[misc]
        pump.ask(lambda player: player.pause())
    pump.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert len(frames) <= 21


def test_player_commands_run_in_the_reader_thread() -> None:
    player = made.HandPlayer()
    threads: list[threading.Thread] = []
    asked = False

    def command(player: Player) -> None:
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
    commands: list[Callable[[Player], None]] = [
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
    told = [(frame.player.live, frame.snapshot.now - recorded.T0) for frame in frames if frame.player is not None]
    assert told[0] == (True, 9.0)
    assert (False, 7.5) in told
    assert told[-1] == (True, 9.0)

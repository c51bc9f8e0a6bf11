"""Keys and resizes while every frame changes everything."""

from __future__ import annotations

import gc
import itertools
import random

import pytest
from textual import events

from tests.ui import made
from tests.ui.driving import AppPilot, drive, until
from tputui.state.snapshot import LogLine, Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base.reader_thread import FRAME_S
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.screen import MonitorScreen

KEYS = 60
LINES = 200


class Flood(made.HandSource):
    """A source whose snapshot differs completely at every poll."""

    def __init__(self) -> None:
        super().__init__(made.running())
        self._number = itertools.count(1)
        self.taken = 0

    def poll(self, budget_s: float) -> list[object]:
        self.taken = next(self._number)
        return [self.taken]

    def snapshot(self, *, may_defer: bool = False) -> Snapshot:
        run, number = made.running(), self.taken
        logs = [
            LogLine(
                t=made.NOW + (number + index) / 1000, source="worker-0", level="info", text=f"line {number + index}"
            )
            for index in range(LINES)
        ]
        return made.changed(
            run,
            now=made.NOW + number,
            newest_fact=made.NOW + number,
            steps=number,
            logs=logs,
            loss=[*run.loss[number % 20 :], made.segment(1_000 + number, [0.1, 0.2 + number % 7])],
            meters=[m for m in run.meters if number % 3 or m.split == "train"],
        )


class CountingBody(Body):
    """Counts the actions of the key under test."""

    cycled = 0

    def action_cycle(self, by: int) -> None:
        self.cycled += 1
        super().action_cycle(by)


def test_keys_are_answered_during_an_event_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tputui.ui.monitor.screen.Body", CountingBody)
    source = Flood()
    screen = MonitorScreen(source, made.RUN_DIR)
    screen._reader._frame_s = FRAME_S / 10

    async def script(pilot: AppPilot) -> None:
        frames = screen.frame
        for _ in range(KEYS):
            # As the driver posts them: without waiting for the action of the previous key.
            pilot.app.post_message(events.Key("tab", None))
        await until(pilot, lambda: screen.query_one(CountingBody).cycled == KEYS)
        await until(pilot, lambda: screen.frame is not frames)
        await pilot.press("7", "slash", *"line")
        await until(pilot, lambda: screen.frame is not None and screen.frame.snapshot.steps > 20)
        await pilot.press("escape", "q")

    result = drive(ScreenApp(lambda: screen), script, size=(160, 45))
    assert result is not None
    assert source.closed


def test_any_resize_at_any_time() -> None:
    sizes = random.Random(4)
    screen = MonitorScreen(Flood(), made.RUN_DIR)

    async def script(pilot: AppPilot) -> None:
        presses = itertools.cycle(["tab", "enter", "7", "up", "v", "2", "question_mark", "escape", "e", "escape", "s"])
        for size in [(1, 1), *((sizes.randint(1, 250), sizes.randint(1, 70)) for _ in range(15)), (1, 1), (120, 36)]:
            await pilot.resize_terminal(*size)
            await pilot.press(next(presses))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: pilot.app.screen is screen)

    drive(ScreenApp(lambda: screen), script)


def test_frames_leave_nothing_to_the_garbage_collector() -> None:
    # What only the collector can free adds up to pauses that last longer than a frame.
    source, found = Flood(), [0]
    screen = MonitorScreen(source, made.RUN_DIR)
    screen._reader._frame_s = FRAME_S / 10

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: source.taken > 5)
        gc.collect()
        gc.disable()
        try:
            first = source.taken
            await until(pilot, lambda: source.taken > first + 30)
            found[0] = gc.collect()
        finally:
            gc.enable()

    drive(ScreenApp(lambda: screen), script, size=(160, 45))
    assert found[0] < 1_000  # of tens of thousands of objects

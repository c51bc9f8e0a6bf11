"""Runs the comparison screen without a terminal, over snapshots made by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.ui.driving import AppPilot, text, until
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.compare.screen import CompareScreen


class FakeSource:
    """A run whose snapshot the test sets."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.served = snapshot
        self.caught_up = True
        self.settled = False
        self.broken: OSError | None = None
        self.closed = False
        self.events: list[object] = []
        """Returned by the next poll."""

    def poll(self, budget_s: float) -> object:
        if self.broken is not None:
            raise self.broken
        events, self.events = self.events, []
        return events

    def snapshot(self) -> Snapshot:
        return self.served

    def close(self) -> None:
        self.closed = True


class Bench:
    """An app that compares made runs."""

    def __init__(self, snapshots: Sequence[Snapshot], *, base: int = 0) -> None:
        self.sources = {Path(snapshot.dir): FakeSource(snapshot) for snapshot in snapshots}
        self.app = ScreenApp(lambda: CompareScreen(list(self.sources), base=base, open_run=self.sources.__getitem__))

    @property
    def screen(self) -> CompareScreen:
        """The comparison screen, even with another screen on top of it."""
        return next(screen for screen in self.app.screen_stack if isinstance(screen, CompareScreen))

    @property
    def text(self) -> str:
        """The text of the terminal."""
        return text(self.app.screen)

    def drive(self, script: Callable[[AppPilot], Awaitable[None]], *, size: tuple[int, int] = (160, 45)) -> None:
        """Runs the app with a script."""

        async def run() -> None:
            async with self.app.run_test(size=size) as pilot:
                await first_reading(pilot)
                await script(pilot)

        asyncio.run(run())


async def first_reading(pilot: AppPilot) -> None:
    """Waits until the comparison has drawn a reading."""
    await until(pilot, lambda: len(pilot.app.screen_stack) > 1)
    screen = pilot.app.screen
    assert isinstance(screen, CompareScreen)
    await until(pilot, lambda: screen.reading is not None)

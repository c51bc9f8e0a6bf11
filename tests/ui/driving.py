"""Drives the app without a terminal: opens it at a size, presses keys, reads the screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

from tests.deadline import DEADLINE_S
from tests.ui import made
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.screen import MonitorResult, MonitorScreen

AppPilot = Pilot[MonitorResult]


def monitor(
    served: Snapshot,
    *,
    player: made.HandPlayer | None = None,
    run_dir: Path = made.RUN_DIR,
    read_only: bool = False,
) -> ScreenApp:
    """An app that shows a snapshot."""
    source = made.HandSource(served, player)
    return ScreenApp(lambda: MonitorScreen(source, run_dir, read_only=read_only))


def drive(
    app: ScreenApp, script: Callable[[AppPilot], Awaitable[None]], *, size: tuple[int, int] = (120, 36)
) -> MonitorResult | None:
    """Run the app with a script; returns the result of the app."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await first_frame(pilot)
            await script(pilot)

    asyncio.run(run())
    return app.return_value


async def until(pilot: AppPilot, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; fails after a while."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if holds():
            await pilot.pause()
            return
        await pilot.pause(0.01)
    raise AssertionError(f"the condition never held; on the screen:\n{text(pilot.app.screen)}")


async def first_frame(pilot: AppPilot) -> None:
    """Wait until the monitor, if the screen is one, has drawn a frame."""
    await until(pilot, lambda: len(pilot.app.screen_stack) > 1)
    if isinstance(pilot.app.screen, MonitorScreen):
        screen = pilot.app.screen
        await until(pilot, lambda: screen.frame is not None)


def text(screen: Screen[Any]) -> str:
    """The text of a screen, without colours."""
    strips = screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)

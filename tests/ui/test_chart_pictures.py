"""The charts as they look, at three sizes: pictures that a change must not move by accident."""

from __future__ import annotations

import pytest
import textual

from tests.ui import made
from tests.ui.driving import AppPilot, first_frame, monitor, until
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui.ui.monitor.screen import MonitorScreen

pytestmark = pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"drawn by Textual {DRAWN_BY}")

SIZES = [(80, 24), (120, 36), (200, 50)]
VIEWS = {
    "overlay": ("v", "plus", "plus", "x"),
    "multiples": ("v", "v"),
    "heat": ("v", "v", "v", "comma", "comma"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
def test_view(snap_compare: Compare, view: str, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press(*VIEWS[view])

    assert snap_compare(monitor(made.outlying()), terminal_size=size, run_before=script)


@pytest.mark.parametrize("keys", ["2z+il", "8z", "9z"])
def test_full_screen(snap_compare: Compare, keys: str) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press(*("plus" if key == "+" else key for key in keys))

    assert snap_compare(monitor(made.diverged()), terminal_size=(120, 36), run_before=script)


def shown_position(pilot: AppPilot) -> float:
    """The moment that the monitor shows."""
    screen = pilot.app.screen
    assert isinstance(screen, MonitorScreen)
    assert screen.frame is not None
    assert screen.frame.player is not None
    return screen.frame.player.position


def test_looking_back(snap_compare: Compare) -> None:
    player = made.HandPlayer()
    player.start, player.end, player.position, player.live = made.NOW - 60, made.NOW, made.NOW, True
    app = monitor(made.running(), player=player)

    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        player.live, player.playing, player.position = False, False, made.NOW - 20
        await pilot.press("left")
        await until(pilot, lambda: shown_position(pilot) < made.NOW - 20)

    assert snap_compare(app, terminal_size=(120, 36), run_before=script)

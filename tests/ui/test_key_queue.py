"""Keys that come faster than anything is drawn: each finds what the one before left."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tests.ui.fake_launch_service import edit, home, make_place
from tputui.ui.help import HelpScreen
from tputui.ui.launch.screen import LauncherScreen
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.screen import RunsScreen

NAMES = {"/": "slash", "?": "question_mark", "\r": "enter", "\x1b": "escape", "\v": "down", "\f": "up"}


def press_without_waiting(pilot: AppPilot, keys: str) -> None:
    """Presses keys without waiting for anything in between."""
    for key in keys:
        pilot.app.post_message(events.Key(NAMES.get(key, key), key if key.isprintable() else None))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a configuration."""
    return make_place(tmp_path)


def test_a_field_is_found_changed_and_left_in_one_go(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, LauncherScreen)
        press_without_waiting(pilot, "/epochs\r\v\r9\r\f\r7\r\x1b\v")
        await until(pilot, lambda: "1279" not in text(screen) and "127" in text(screen) and "seed" in text(screen))
        assert "2 changed" in text(screen)

    drive(home(place), script, size=(120, 36))


def test_opening_screen_receives_keys_typed_ahead(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        press_without_waiting(pilot, "?/filter\r")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen) and "filter [1/" in text(pilot.app.screen))
        press_without_waiting(pilot, "\x1b\x1b/nothing")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen) and "/ nothing" in text(pilot.app.screen))

    drive(home(place), script, size=(120, 36))


def test_a_panel_is_selected_and_searched_in_one_go() -> None:
    async def script(pilot: AppPilot) -> None:
        press_without_waiting(pilot, "7/host\rz")
        log = pilot.app.screen.query_one(LogPanel)
        await until(pilot, lambda: "/host/" in text(pilot.app.screen) and log.has_focus)
        press_without_waiting(pilot, "\x1b\x1bs\x1b2")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen) and not log.has_focus)

    drive(monitor(made.running()), script, size=(160, 45))

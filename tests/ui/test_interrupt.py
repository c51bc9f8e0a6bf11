"""Ctrl-C shows how to leave on every screen of the program, and leaves none. The monitor's test is with its keys."""

from __future__ import annotations

from pathlib import Path

from tests.ui import paces
from tests.ui.compared import Bench
from tests.ui.driving import AppPilot, drive, text, until
from tests.ui.fake_launch_service import edit, home, make_place, pick


async def assert_shows_how_to_leave(pilot: AppPilot, key: str) -> None:
    screen = pilot.app.screen
    await pilot.press("ctrl+c")
    sentence = f"Ctrl-C does not quit: {key} leaves this screen, ctrl+q quits"
    await until(pilot, lambda: sentence in " ".join(text(pilot.app.screen).split()))
    assert pilot.app.screen is screen


def test_list_picker_and_launcher_show_how_to_leave(tmp_path: Path) -> None:
    place = make_place(tmp_path)

    async def on_list_and_picker(pilot: AppPilot) -> None:
        await assert_shows_how_to_leave(pilot, "q")
        await pick(pilot)
        await assert_shows_how_to_leave(pilot, "esc")

    async def on_launcher(pilot: AppPilot) -> None:
        await edit(pilot)
        await assert_shows_how_to_leave(pilot, "esc")

    drive(home(place), on_list_and_picker)
    drive(home(place), on_launcher)


def test_comparison_shows_how_to_leave() -> None:
    async def script(pilot: AppPilot) -> None:
        await assert_shows_how_to_leave(pilot, "q")

    Bench(paces.pair()).drive(script)

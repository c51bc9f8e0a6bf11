"""Pictures of hidden and resized panels, and of the dialog of layouts, compared where Textual is what drew them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import textual

from tests.ui import made
from tests.ui.driving import AppPilot, first_frame, monitor, text, until
from tests.ui.test_base_app_pictures import DRAWN_BY, SIZES, Compare

pytestmark = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)


def pressing(*pressed: str) -> Callable[[AppPilot], Awaitable[None]]:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press(*pressed)

    return script


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_hidden_and_resized(snap_compare: Compare, size: tuple[int, int]) -> None:
    script = pressing("5", "H", "9", "H", "2", *["shift+right"] * 4, *["shift+down"] * 3)
    assert snap_compare(monitor(made.running()), terminal_size=size, run_before=script)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_dialog(snap_compare: Compare, size: tuple[int, int]) -> None:
    press = pressing("P", "4", "6", "s", *"mine", "enter", "9", "up")

    async def script(pilot: AppPilot) -> None:
        await press(pilot)
        await until(pilot, lambda: "mine changed" in text(pilot.app.screen))

    assert snap_compare(monitor(made.running()), terminal_size=size, run_before=script)

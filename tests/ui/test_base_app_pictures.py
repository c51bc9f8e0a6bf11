"""Pictures of log, help and export at three sizes, and of every theme, compared where Textual is what drew them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import textual

from tests.ui import made
from tests.ui.driving import AppPilot, first_frame, monitor
from tests.ui.test_log import eight, many, said
from tputui.ui.app import ScreenApp

DRAWN_BY = "8.2.8"
SIZES = [(80, 24), (120, 36), (200, 50)]

pytestmark = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)

Compare = Callable[..., bool]


def pressing(*pressed: str) -> Callable[[AppPilot], Awaitable[None]]:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press(*pressed)

    return script


def logged() -> ScreenApp:
    full = "saving takes longer than usual, since the disk of this host is nearly full: 96 % of 1.8 TiB are taken " * 2
    lines = [*many(30), *eight(), said(50, full, level="warning"), said(60, "loss nan in step 301", level="error")]
    return monitor(made.changed(made.running(), logs=sorted(lines, key=lambda line: line.t)))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_log(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(logged(), terminal_size=size, run_before=pressing("7", "7", "up", "up", "up"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_log_searched(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(logged(), terminal_size=size, run_before=pressing("7", "7", "slash", *"loss|full", "("))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_help_searched(snap_compare: Compare, size: tuple[int, int]) -> None:
    script = pressing("question_mark", "slash", *"view undo")
    assert snap_compare(monitor(made.running()), terminal_size=size, run_before=script)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_export(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(monitor(made.running()), terminal_size=size, run_before=pressing("2", "e", "down"))


@pytest.mark.parametrize("times", [1, 2, 3], ids=["light", "colour-blind safe", "mono"])
def test_themes(snap_compare: Compare, times: int) -> None:
    assert snap_compare(logged(), terminal_size=(120, 36), run_before=pressing("7", *["t"] * times))

"""Snapshots of every screen at three sizes, compared if Textual has the version that drew them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import textual

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, first_frame, monitor, until
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.screen import MonitorScreen

DRAWN_BY = "8.2.8"
SIZES = [(80, 24), (160, 45), (200, 50)]

pytestmark = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)

Compare = Callable[..., bool]

STATES: dict[str, Callable[[], Snapshot]] = {
    "running": made.running,
    "starting": made.starting,
    "finished": made.finished,
    "failed": made.failed,
    "diverged": made.diverged,
    "outlying": made.outlying,
    "64 cores": lambda: made.running(64),
    "2048 cores": lambda: made.running(2048),
    "empty": made.empty,
}
ONCE = ("running", "outlying", "empty")
"""States with one small snapshot."""


CASES = [(state, size) for state in STATES for size in (SIZES if state not in ONCE else SIZES[:1])]


@pytest.mark.parametrize(("state", "size"), CASES, ids=str)
def test_monitor(snap_compare: Compare, state: str, size: tuple[int, int]) -> None:
    assert snap_compare(monitor(STATES[state]()), terminal_size=size, run_before=first_frame)


@pytest.mark.parametrize("size", [*SIZES, (120, 36)], ids=str)
def test_memory_in_full_screen(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def enlarge(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press("6", "enter")

    assert snap_compare(monitor(made.running()), terminal_size=size, run_before=enlarge)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_replay(snap_compare: Compare, size: tuple[int, int]) -> None:
    app = monitor(made.running(), player=made.HandPlayer())
    assert snap_compare(app, terminal_size=size, run_before=first_frame)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_recorded_run_before_its_end(snap_compare: Compare, tmp_path: Path, size: tuple[int, int]) -> None:
    run_dir = recorded.write_run(tmp_path, ended=False)
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 11)
    app = ScreenApp(lambda: MonitorScreen(session, run_dir))
    assert snap_compare(app, terminal_size=size, run_before=_all_read)


async def _all_read(pilot: AppPilot) -> None:
    await first_frame(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, MonitorScreen)
    await until(pilot, lambda: screen.frame is not None and screen.frame.caught_up and bool(screen.frame.snapshot.loss))


@pytest.mark.parametrize("keys", [["s"], ["question_mark"], ["7", "7"], ["4", "4"], ["l"]], ids="".join)
def test_after_keys(snap_compare: Compare, keys: list[str]) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press(*keys)

    assert snap_compare(monitor(made.running()), terminal_size=(80, 24), run_before=script)

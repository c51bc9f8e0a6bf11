"""Snapshots of the run list and the launcher at three terminal sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import textual

from tests import recorded
from tests.ui.driving import AppPilot, first_frame, text, until
from tests.ui.fake_launch_service import FakeLaunchService, edit, make_place, pick
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui.ui.app import ScreenApp
from tputui.ui.launch.panels import FieldsPanel
from tputui.ui.runs.screen import RunsScreen

SIZES = [(80, 24), (120, 36), (200, 50)]

pytestmark = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScreenApp:
    """The run list with three runs and a fake launch service."""
    monkeypatch.chdir(make_place(tmp_path))
    recorded.write_run(Path("runs"), run="digits-1")
    recorded.write_run(Path("runs"), run="digits-2", ended=False)
    damaged = recorded.write_run(Path("runs"), run="digits-3")
    (damaged / "worker-0.jsonl").write_bytes(b"garbage")
    service = FakeLaunchService(Path("runs"))
    return ScreenApp(
        lambda: RunsScreen(Path("runs"), service=service, config_dir=Path(), clock=lambda: recorded.T0 + 11)
    )


async def all_read(pilot: AppPilot) -> None:
    """Waits until every run was read."""
    await first_frame(pilot)
    await until(pilot, lambda: "3 runs, 1 running \u00b7" in text(pilot.app.screen))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_runs(snap_compare: Compare, app: ScreenApp, size: tuple[int, int]) -> None:
    assert snap_compare(app, terminal_size=size, run_before=all_read)


@pytest.mark.parametrize(
    "keys", [["slash", *"lr>=0.0001", "space", *"done"], ["o", "o", "space"]], ids=["filter", "order"]
)
def test_runs_after_keys(snap_compare: Compare, app: ScreenApp, keys: list[str]) -> None:
    async def script(pilot: AppPilot) -> None:
        await all_read(pilot)
        await pilot.press(*keys)

    assert snap_compare(app, terminal_size=(80, 24), run_before=script)


def test_no_runs(snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def looked(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await until(pilot, lambda: "No runs in" in text(pilot.app.screen))

    app = ScreenApp(lambda: RunsScreen(Path("runs"), service=FakeLaunchService(Path("runs"))))
    assert snap_compare(app, terminal_size=(80, 24), run_before=looked)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_offers(snap_compare: Compare, app: ScreenApp, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await all_read(pilot)
        await pick(pilot)
        await until(pilot, lambda: "digits-1" in text(pilot.app.screen) and "ready" in text(pilot.app.screen))

    assert snap_compare(app, terminal_size=size, run_before=script)


@pytest.mark.parametrize("what", ["sound", "wrong"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_launcher(snap_compare: Compare, app: ScreenApp, size: tuple[int, int], what: str) -> None:
    async def script(pilot: AppPilot) -> None:
        await all_read(pilot)
        await edit(pilot)
        await until(pilot, lambda: "of 16.0 GiB" in text(pilot.app.screen))
        if what == "wrong":
            pilot.app.screen.query_one(FieldsPanel).go("optim.lr")
            await pilot.press("enter", "ctrl+u", *"0.x")
            await until(pilot, lambda: "0.x is not a number" in text(pilot.app.screen).splitlines()[1])
            await until(pilot, lambda: "validating" not in text(pilot.app.screen))

    assert snap_compare(app, terminal_size=size, run_before=script)

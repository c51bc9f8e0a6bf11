"""X requests the stacks of every process and shows them."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tputui.state.snapshot import ProcessStacks, Snapshot, StacksView
from tputui.telemetry import requests
from tputui.telemetry.events import CodeFrame, ThreadStack
from tputui.ui.app import ScreenApp
from tputui.ui.base import keymap
from tputui.ui.monitor.events import StacksScreen
from tputui.ui.monitor.screen import MonitorScreen


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The directory of a run that accepts requests."""
    return recorded.write_run(tmp_path, ended=False)


def with_stacks(age_s: float = 12.0, again_t: float | None = None) -> Snapshot:
    """A run whose stacks were requested."""
    t = made.NOW - age_s
    frames = [
        CodeFrame(file="/usr/lib/python3.11/threading.py", line=324, function="Condition.wait", owner="library"),
        CodeFrame(file="/home/me/reader\x1b[31m.py", line=31, function="Reader.fetch", owner="user"),
        *[CodeFrame(file="engine/loop/trainer.py", line=n, function="train", owner="tputui") for n in range(6)],
    ]
    process = ProcessStacks(
        t=t,
        request="1",
        process="rank-5",
        pid=4711,
        cores=[5],
        phase="data",
        phase_s=94.0,
        step=812,
        waits_for=None,
        threads=[ThreadStack(name="tputui-train", frames=frames), ThreadStack(name="MainThread", frames=[frames[0]])],
        path="stacks/1-rank-5.txt",
        by_signal=False,
    )
    return made.changed(made.running(), stacks=StacksView(request="1", t=t, processes=[process], again_t=again_t))


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
def test_x_shows_user_code_of_each_process(run_dir: Path, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await open_stacks(pilot)
        shown = text(pilot.app.screen)
        assert "waiting for data for 1 min 34 s at step 812" in shown
        assert "/home/me/reader.py:31 in Reader.fetch" in shown
        assert "6 calls of tputui" in shown
        assert "other threads: MainThread" in shown
        assert "\x1b" not in shown
        await until(pilot, lambda: len(requests.read_all(run_dir)) == 1)
        await pilot.press("X")
        await until(pilot, lambda: len(requests.read_all(run_dir)) == 2)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(with_stacks(), run_dir=run_dir), script, size=size)
    assert {(request.kind, request.by) for request in requests.read_all(run_dir)} == {("stacks", "screen")}


async def open_stacks(pilot: AppPilot) -> None:
    """Wait until the stacks are shown."""
    await pilot.press("X")
    await until(pilot, lambda: isinstance(pilot.app.screen, StacksScreen) and "rank-5" in text(pilot.app.screen))


def test_read_only_view_cannot_request_stacks(run_dir: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("X")
        await until(pilot, lambda: "stacks: this view is read-only" in text(pilot.app.screen))
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(made.running(), run_dir=run_dir, read_only=True), script)
    assert requests.read_all(run_dir) == []


def test_recording_shows_stacks_requested_at_that_time(run_dir: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await open_stacks(pilot)
        assert "taken 12 s ago" in text(pilot.app.screen)
        assert "not requested again: not possible in a recording" in text(pilot.app.screen)
        assert "X: dump again" not in text(pilot.app.screen)
        await pilot.press("escape")
        assert "stacks: not possible" not in text(pilot.app.screen)

    drive(monitor(with_stacks(), player=made.HandPlayer(), run_dir=run_dir), script)
    assert requests.read_all(run_dir) == []


def test_stacks_show_age_and_pending_request(run_dir: Path) -> None:
    source = made.HandSource(with_stacks(age_s=200, again_t=made.NOW - 3))

    async def script(pilot: AppPilot) -> None:
        await open_stacks(pilot)
        at = time.strftime("%H:%M:%S", time.localtime(made.NOW - 200))
        assert f"taken 3 min ago, at {at}; requested again 3 s ago, no answer yet" in text(pilot.app.screen)
        source.served = with_stacks(age_s=1)
        await until(pilot, lambda: "taken 1 s ago" in text(pilot.app.screen))
        assert "requested again" not in text(pilot.app.screen)

    drive(ScreenApp(lambda: MonitorScreen(source, run_dir)), script, size=(80, 24))


def test_read_only_view_shows_stacks_others_requested(run_dir: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await open_stacks(pilot)
        assert "taken 12 s ago" in text(pilot.app.screen)
        assert "not requested again: this view is read-only" in text(pilot.app.screen)
        assert "X: dump again" not in text(pilot.app.screen)
        await pilot.press("X")
        await until(pilot, lambda: "stacks: this view is read-only" in text(pilot.app.screen).splitlines()[-1])

    drive(monitor(with_stacks(), run_dir=run_dir, read_only=True), script, size=(80, 24))
    assert requests.read_all(run_dir) == []


@pytest.mark.parametrize("age_s", [math.inf, -math.inf, math.nan, -1e300])
def test_stacks_with_any_claimed_time_are_shown(run_dir: Path, age_s: float) -> None:
    async def script(pilot: AppPilot) -> None:
        await open_stacks(pilot)

    drive(monitor(with_stacks(age_s), run_dir=run_dir), script)


def test_help_mentions_stacks() -> None:
    assert any(key.action == "stacks" and "stacks" in key.help for key in keymap.MONITOR)

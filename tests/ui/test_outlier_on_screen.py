"""The outlier on screen: header, cores panel and chart name the same core, soon after its journal does."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from tests import recorded
from tests.state.test_outlier import BAD, NUM_CORES, healthy, off_by
from tests.ui.driving import AppPilot, drive, text, until
from tputui.session.session import Session
from tputui.state.outlier import NAMED, OFF
from tputui.telemetry import events as ev
from tputui.telemetry.journal import JournalWriter
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.screen import MonitorScreen

STEPS_A_REPORT = 20


def test_core_off_or_slow_for_20_steps_is_named_everywhere_without_further_steps(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, ended=False)
    (run_dir / "worker-0.jsonl").unlink()
    writer = JournalWriter(run_dir / "worker-0.jsonl")
    writer.append(recorded.worker_events()[:3])
    rows, began = healthy(), time.monotonic()

    def clock() -> float:
        return recorded.T0 + 6 + time.monotonic() - began

    def report(first: int, last: int, *, off: bool) -> None:
        part = [off_by(row, OFF + 0.1) if off else row for row in rows[first:last]]
        writer.append([recorded.steps_recorded(clock(), first + 1, part)])

    async def script(pilot: AppPilot) -> None:
        for first in range(0, 200, STEPS_A_REPORT):
            report(first, first + STEPS_A_REPORT, off=False)
        await until(pilot, lambda: "no outlier" in text(pilot.app.screen))
        assert f"core {BAD} above" not in text(pilot.app.screen)
        report(200, 200 + NAMED, off=True)
        everywhere = (
            f"core {BAD} above the others since step 201",
            f"core {BAD} high since step 201",
            f"outlier: core {BAD}, up to",
        )
        await until(pilot, lambda: all(words in text(pilot.app.screen) for words in everywhere))

    def report_times(first: int, last: int, *, slow: bool) -> None:
        part = [[0.02 * (1.5 if slow and core == BAD else 1.0) for core in range(NUM_CORES)]] * (last - first)
        event = recorded.steps_recorded(clock(), first + 1, part)
        writer.append([msgspec.structs.replace(event, metric=ev.COMPUTE_METRIC)])

    async def slow_script(pilot: AppPilot) -> None:
        await script(pilot)
        report_times(0, 200, slow=False)
        report_times(200, 200 + NAMED, slow=True)
        everywhere = (
            f"core {BAD}: 50 % slower since step 201",
            f"core {BAD}: 50 % slower for {NAMED} steps",
            "\u25b2 50 % slower",
            f"! core {BAD} is 50 % slower",
        )
        await until(pilot, lambda: all(words in text(pilot.app.screen) for words in everywhere))

    session = Session.live(run_dir, clock)
    drive(ScreenApp(lambda: MonitorScreen(session, run_dir)), slow_script, size=(200, 50))
    session.close()
    writer.close()

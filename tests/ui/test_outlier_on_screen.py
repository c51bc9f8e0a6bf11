"""The outlier on screen: header, cores panel and chart name the same core, soon after its journal does."""

from __future__ import annotations

import time
from pathlib import Path

from tests import recorded
from tests.state.test_outlier import BAD, healthy, off_by
from tests.ui.driving import AppPilot, drive, text, until
from tputui.session.session import Session
from tputui.state.outlier import NAMED, OFF
from tputui.telemetry.journal import JournalWriter
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.screen import MonitorScreen

STEPS_A_REPORT = 20
NAMED_WITHIN_S = 2.0


def test_core_off_for_20_steps_is_named_everywhere_within_two_seconds(tmp_path: Path) -> None:
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
        written = time.monotonic()
        report(200, 200 + NAMED, off=True)
        everywhere = (
            f"core {BAD} above the others since step 201",
            f"core {BAD} high since step 201",
            f"outlier: core {BAD}, up to",
        )
        await until(pilot, lambda: all(words in text(pilot.app.screen) for words in everywhere))
        assert time.monotonic() - written < NAMED_WITHIN_S

    session = Session.live(run_dir, clock)
    drive(ScreenApp(lambda: MonitorScreen(session, run_dir)), script, size=(200, 50))
    session.close()
    writer.close()

"""When a report falls due."""

from __future__ import annotations

from engine.report_interval import DEPTH, ReportInterval


def test_reports_follow_the_step_time_and_never_outgrow_the_register() -> None:
    cadence = ReportInterval(interval_s=1.0)
    assert cadence.due(1, 0.0)  # the first step is told at once
    cadence.retune(0.013)
    assert not cadence.due(75, 0.9)
    assert cadence.due(76, 0.9)
    cadence.retune(1e-5)
    assert cadence.due(DEPTH, 0.0)


def test_steps_that_slow_down_are_still_told_within_the_interval() -> None:
    cadence = ReportInterval(interval_s=1.0)
    cadence.retune(0.013)
    assert cadence.due(3, 1.0)
    assert not cadence.due(0, 60.0)

"""When a report falls due."""

from __future__ import annotations

from engine.loop.step_buffer import ReportInterval
from engine.task import MAX_REPORT_STEPS


def test_reports_follow_step_time_within_buffer_size() -> None:
    interval = ReportInterval(interval_s=1.0)
    assert interval.due(1, 0.0)  # the first step is reported at once
    interval.retune(0.013)
    assert not interval.due(75, 0.9)
    assert interval.due(76, 0.9)
    interval.retune(1e-5)
    assert interval.due(MAX_REPORT_STEPS, 0.0)


def test_slowing_steps_are_reported_within_interval() -> None:
    interval = ReportInterval(interval_s=1.0)
    interval.retune(0.013)
    assert interval.due(3, 1.0)
    assert not interval.due(0, 60.0)

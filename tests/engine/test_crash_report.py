"""The event for an error that ended training, also for errors whose methods raise."""

from __future__ import annotations

from engine.process import crash_report
from tputui.reporting.failures import TEXT_CHARS_MAX, TRACEBACK_CHARS_MAX
from tputui.reporting.progress import Progress


class Hostile(Exception):
    """An exception whose every method raises."""

    def __str__(self) -> str:
        raise SystemExit("no text for you")

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(f"no {name} either")


def test_exception_that_raises_on_access_is_reported() -> None:
    event = crash_report.failure_event(Hostile(), Progress(), "rank 0: ")

    assert event.error == "Hostile"
    assert event.message == "rank 0: (its message is not available: __str__ raised SystemExit)"


def test_huge_message_is_reported_by_beginning_and_end() -> None:
    event = crash_report.failure_event(ValueError("begin \udce4 " + "x" * 50_000_000 + " end"), Progress())

    assert event.message.startswith("begin \\udce4 x")
    assert event.message.endswith("x end")
    assert len(event.message) < TEXT_CHARS_MAX + 100
    assert event.traceback.startswith("ValueError: begin")
    assert len(event.traceback) < TRACEBACK_CHARS_MAX + 100

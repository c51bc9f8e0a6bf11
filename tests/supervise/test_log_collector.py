"""The collector of logs, without a supervisor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests import recorded
from tests.supervise.harness import events_in
from tputui.supervise import log_collector
from tputui.supervise.log_collector import LogCollector
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

NUM_LOGS = 100
NUM_ROWS = 100


def collected(
    folder: Path, printed: Sequence[str] = (), is_stop_requested: Callable[[], bool] = lambda: False
) -> list[ev.Event]:
    """What a collector reports of the logs in a folder and of output, of a command that has just ended."""
    run_dir = rundir.create(folder / "runs", recorded.manifest())
    reporter = Reporter(run_dir, "logs")
    collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(folder), "logs": ["*.csv"]})
    collector.take_console(printed)
    collector.close(is_stop_requested)
    reporter.close()
    return events_in(run_dir, "logs-0", ev.Event)


def test_logs_are_read_to_their_end_after_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(NUM_LOGS):
        rows = "".join(f"{step},0.5\n" for step in range(NUM_ROWS))
        (tmp_path / f"{number}.csv").write_text(f"step,m{number}\n{rows}")
    # One log in each look; all of them take longer than the reader may go without progress.
    monkeypatch.setattr(log_collector, "VALUES_PER_LOOK", NUM_ROWS)
    monkeypatch.setattr(log_collector, "CLOSE_S", 0.3)

    events = collected(tmp_path)

    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == NUM_LOGS * NUM_ROWS
    assert not [event for event in events if isinstance(event, ev.WarningRaised)]


def test_output_is_parsed_to_its_end_and_left_out_lines_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_collector, "LINES_PER_LOOK", 10)
    events = collected(tmp_path, [f"step {step} loss {1 / step:.4f}" for step in range(1, 101)])
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == 100
    assert not [event for event in events if isinstance(event, ev.WarningRaised)]

    monkeypatch.setattr(log_collector, "LINES_MAX", 50)
    (tmp_path / "more").mkdir()
    events = collected(tmp_path / "more", [f"step {step} loss {1 / step:.4f}" for step in range(1, 101)])
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == 50
    (warning,) = [event for event in events if isinstance(event, ev.WarningRaised)]
    assert "some of those printed are left out" in warning.text


def test_a_request_to_stop_ends_the_reading_of_long_logs_and_keeps_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows = 500_000
    (tmp_path / "long.csv").write_text("step,loss\n" + "".join(f"{step},0.5\n" for step in range(1, num_rows + 1)))
    monkeypatch.setattr(log_collector, "VALUES_PER_LOOK", 10_000)
    monkeypatch.setattr(log_collector, "GIVE_UP_S", 30.0)

    def has_values() -> bool:
        (journal,) = (tmp_path / "runs").glob("*/logs-0.jsonl")
        return journal.stat().st_size > 10_000

    events = collected(tmp_path, is_stop_requested=has_values)

    steps = [event.first + event.n - 1 for event in events if isinstance(event, ev.StepsRecorded)]
    (warning,) = [event.text for event in events if isinstance(event, ev.WarningRaised)]
    assert 0 < steps[-1] < num_rows
    assert f"read only to step {steps[-1]:,}, because a stop was requested" in warning
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == steps[-1]

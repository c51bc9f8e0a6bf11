"""Truncated and missing journals are reported; a run whose processes were killed is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.recorded import T0, supervisor_events, worker_events, write_journal, write_run
from tputui.cli.main import main
from tputui.session.session import load
from tputui.telemetry import events as ev

Capture = pytest.CaptureFixture[str]
Regions = list[tuple[str, int, int, str, int | None]]


def cut(run_dir: Path, writer: str, num_lines: int) -> int:
    """Keeps the first lines of a journal; returns its size."""
    path = run_dir / f"{writer}.jsonl"
    kept = b"".join(path.read_bytes().splitlines(keepends=True)[:num_lines])
    path.write_bytes(kept)
    return len(kept)


def regions_of(run_dir: Path, capsys: Capture) -> Regions:
    """The damaged regions; `check` and a snapshot must agree."""
    code = main(["check", str(run_dir), "--json"])
    checked = [tuple(region.values()) for region in json.loads(capsys.readouterr().out)["regions"]]
    shown = [tuple(msgspec.to_builtins(region).values()) for region in load(run_dir).damage.regions]
    assert sorted(checked, key=repr) == sorted(shown, key=repr)
    assert code == (1 if checked else 0)
    return checked


def rewritten(run_dir: Path, writer: str, events: list[ev.Event]) -> None:
    (run_dir / f"{writer}.jsonl").unlink(missing_ok=True)
    write_journal(run_dir / f"{writer}.jsonl", events)


def ended(outcome: ev.Outcome, *, heard: bool | None, exited: ev.WorkerExited) -> list[ev.Event]:
    """The events of a supervisor at the end of a run."""
    last = ev.RunEnded(t=T0 + 12, outcome=outcome, exit_code=1, reason="it ended", training_ended=heard)
    return [*supervisor_events(None), exited, last]


EXITED = ev.WorkerExited(t=T0 + 11, pid=4243, exit_code=1)
KILLED = ev.WorkerExited(t=T0 + 11, pid=4243, exit_code=None, signal="SIGKILL")


def test_a_worker_journal_cut_between_two_lines(recorded_run: Path, capsys: Capture) -> None:
    size = cut(recorded_run, "worker-0", 12)
    assert regions_of(recorded_run, capsys) == [
        ("worker-0.jsonl", size, size, "the end of the journal is missing", None)
    ]


@pytest.mark.parametrize("outcome", ["failed", "stopped"])
def test_cut_journal_of_an_unfinished_run(recorded_run: Path, capsys: Capture, outcome: ev.Outcome) -> None:
    rewritten(recorded_run, "supervisor-0", ended(outcome, heard=True, exited=EXITED))
    size = cut(recorded_run, "worker-0", 12)
    assert regions_of(recorded_run, capsys) == [
        ("worker-0.jsonl", size, size, "the end of the journal is missing", None)
    ]


def test_a_journal_that_was_removed(recorded_run: Path, capsys: Capture) -> None:
    (recorded_run / "worker-0.jsonl").unlink()
    assert regions_of(recorded_run, capsys) == [("worker-0.jsonl", 0, 0, "the journal is missing", None)]


def test_run_without_supervisor_is_not_truncated(recorded_run: Path, capsys: Capture) -> None:
    (recorded_run / "supervisor-0.jsonl").unlink()
    assert regions_of(recorded_run, capsys) == []


def test_supervisor_journal_cut_before_worker_start(recorded_run: Path, capsys: Capture) -> None:
    size = cut(recorded_run, "supervisor-0", 2)
    regions = regions_of(recorded_run, capsys)
    assert regions == [("supervisor-0.jsonl", size, size, "the end of the journal is missing", None)]


def test_cut_line_is_reported_once(recorded_run: Path, capsys: Capture) -> None:
    path = recorded_run / "worker-0.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert [region[3] for region in regions_of(recorded_run, capsys)] == ["the last line is truncated"]


def test_unreadable_manifest_is_shown_as_damage(recorded_run: Path, capsys: Capture) -> None:
    (recorded_run / "run.json").write_text("{")
    [(journal, start, end, reason, lost)] = regions_of(recorded_run, capsys)
    assert (journal, start, end, lost) == ("run.json", 0, 1, None)
    assert reason.startswith("cannot be read")


def _everything_killed(run_dir: Path) -> None:
    rewritten(run_dir, "worker-0", worker_events()[:-1])
    rewritten(run_dir, "supervisor-0", supervisor_events(None))


def _supervisor_killed(run_dir: Path) -> None:
    rewritten(run_dir, "supervisor-0", supervisor_events(None))


def _worker_killed(run_dir: Path) -> None:
    rewritten(run_dir, "worker-0", worker_events()[:-1])
    rewritten(run_dir, "supervisor-0", ended("failed", heard=False, exited=KILLED))


def _worker_killed_and_supervisor_after_it(run_dir: Path) -> None:
    rewritten(run_dir, "worker-0", worker_events()[:-1])
    rewritten(run_dir, "supervisor-0", [*supervisor_events(None), KILLED])


def _worker_failed_before_its_first_event(run_dir: Path) -> None:
    (run_dir / "worker-0.jsonl").unlink()
    rewritten(run_dir, "supervisor-0", ended("failed", heard=False, exited=EXITED))


def _worker_failed_before_its_first_event_in_an_older_run(run_dir: Path) -> None:
    (run_dir / "worker-0.jsonl").unlink()
    rewritten(run_dir, "supervisor-0", ended("failed", heard=None, exited=EXITED))


def _supervisor_killed_before_it_started_the_worker(run_dir: Path) -> None:
    (run_dir / "worker-0.jsonl").unlink()
    rewritten(run_dir, "supervisor-0", supervisor_events(None)[:2])


@pytest.mark.parametrize(
    "happened",
    [
        _everything_killed,
        _supervisor_killed,
        _worker_killed,
        _worker_killed_and_supervisor_after_it,
        _worker_failed_before_its_first_event,
        _worker_failed_before_its_first_event_in_an_older_run,
        _supervisor_killed_before_it_started_the_worker,
    ],
)
def test_killed_processes_leave_intact_journals(
    tmp_path: Path, capsys: Capture, happened: Callable[[Path], None]
) -> None:
    run_dir = write_run(tmp_path)
    happened(run_dir)
    assert regions_of(run_dir, capsys) == []

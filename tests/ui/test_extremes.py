"""Numbers that no run has, steps and times out of order: every view of such a run is drawn all the same."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.ui import extremes
from tputui.cli.main import main
from tputui.state.meter_limits import METERS_MAX
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

EVERY = 31
"""Of the absurd runs one in so many is drawn in the quick tests, those that broke a view in the past besides."""


@pytest.mark.parametrize("value", extremes.FLOATS)
@pytest.mark.parametrize("kind", [ev.TrainingEnded, ev.RunEnded, ev.EpochStarted, ev.ProgressReported, ev.EpochEnded])
def test_no_time_of_an_event_breaks_a_view(kind: type[ev.Event], value: float) -> None:
    journals = {
        name: [extremes.changed(event, ("t",), value) if type(event) is kind else event for event in events]
        for name, events in extremes.whole_run().items()
    }
    extremes.look(journals)


@pytest.mark.parametrize("value", extremes.FLOATS)
def test_no_time_of_a_section_breaks_a_view(value: float) -> None:
    journals = extremes.whole_run()
    for section in ("data", "compile"):
        path = ("sections_s", section)
        journals["worker-0"] = [
            extremes.changed(event, path, value) if isinstance(event, ev.EpochEnded) else event
            for event in journals["worker-0"]
        ]
    extremes.look(journals)
    epochs = build_snapshot(extremes.reduced(journals), ViewerContext(now=recorded.T0, run="a", dir="/a")).epochs
    assert all(math.isfinite(sum(epoch.sections_s.values())) for epoch in epochs)


@pytest.mark.parametrize("journals", [pytest.param(journals, id=what) for what, journals in extremes.disordered_runs()])
def test_no_order_of_records_breaks_a_view(journals: extremes.Journals) -> None:
    extremes.look(journals)


def test_a_few_absurd_numbers_of_every_kind_break_no_view() -> None:
    for what, journals in itertools.islice(extremes.absurd_runs(), 0, None, EVERY):
        _look(what, journals)


@pytest.mark.slow
def test_absurd_numbers_break_no_view() -> None:
    for what, journals in itertools.islice(extremes.absurd_runs(), 7, None, 12):
        _look(what, journals)


def test_moment_page_prints_for_any_order_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    path = run_dir / "worker-0.jsonl"
    events = recorded.worker_events()
    first, *_, last = [place for place, event in enumerate(events) if isinstance(event, ev.StepsRecorded)]
    early, late = events[first], events[last]
    events[first], events[last] = msgspec.structs.replace(late, t=early.t), msgspec.structs.replace(early, t=late.t)
    path.unlink()
    recorded.write_journal(path, events)
    assert main(["replay", str(run_dir), "--at", "end", "--once"]) == 0
    assert "step 1 " in capsys.readouterr().out


def test_thousands_of_meters_are_drawn_partly_and_counted() -> None:
    many = {f"meter {number}": recorded.reading([0.5]) for number in range(20_000)}
    journals = extremes.whole_run()
    journals["worker-0"] = [
        msgspec.structs.replace(event, meters=many)
        if isinstance(event, ev.MetersReported)
        else msgspec.structs.replace(event, train=many, valid=many, scores=dict.fromkeys(many, 0.5))
        if isinstance(event, ev.EpochEnded)
        else event
        for event in journals["worker-0"]
    ]
    snapshot = build_snapshot(extremes.reduced(journals), ViewerContext(now=recorded.T0, run="a", dir="/a"))
    assert len(snapshot.meters) <= 2 * METERS_MAX
    assert all(len(epoch.valid) + len(epoch.scores) <= 2 * METERS_MAX for epoch in snapshot.epochs)
    assert f"20,000 meters are reported at once; the first {METERS_MAX} are shown" in snapshot.warnings
    extremes.draw(snapshot)


def _look(what: str, journals: extremes.Journals) -> None:
    try:
        extremes.look(journals)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error

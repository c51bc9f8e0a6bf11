"""Numbers that no run has, steps and times out of order: every view of such a run is drawn all the same."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import recorded
from tests.ui import extremes
from tputui.cli.main import main
from tputui.state.process_state import METERS_MAX
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.ui.charts.curves import dot_of
from tputui.ui.charts.scale import dot_row, fitted, scale_for, ticks
from tputui.ui.render.braille import DOTS_Y

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


@pytest.mark.parametrize(
    "reports",
    [
        [(-1e308, -1e308, -1e308), (1e308, 1e308, 1e308)],
        [(sys.float_info.max, sys.float_info.max, sys.float_info.max), (1.0, 1.0, 1.0)],
        [(1e308, 0.0, 1e-300), (1e308, 0.0, 1e-300)],
        [(math.nan, 0.0, 1.0), (0.5, 0.5, 0.5)],
    ],
    ids=["far-apart", "greatest", "mean-outside", "mean-nan"],
)
def test_report_prints_whatever_the_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reports: list[tuple[float, float, float]]
) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    steps: list[ev.Event] = [
        msgspec.structs.replace(
            recorded.steps_recorded(recorded.T0 + step, step, [[0.5]]), mean=mean, min=least, max=greatest
        )
        for step, (mean, least, greatest) in enumerate(reports * 3, 1)
    ]
    recorded.write_journal(run_dir / "worker-0.jsonl", [recorded.opened(recorded.T0, "worker", 0), *steps])
    assert main(["replay", str(run_dir), "--at", "step:5", "--once"]) == 0
    assert "step 1 " in capsys.readouterr().out


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 40),
)
@example([-1e308, 1e308], False, 12)
@example([sys.float_info.max], False, 12)
@example([sys.float_info.max], True, 12)
@example([5e-324, sys.float_info.max], True, 12)
@example([5e-324, 1e-300], True, 40)
@example([2.225073858507e-311], False, 1)
def test_every_finite_value_has_a_place_on_its_axis(values: list[float], log: bool, rows: int) -> None:
    found = scale_for(values, log)
    if found is None:
        return
    scale, dots = fitted(found, rows), rows * DOTS_Y
    row_of = dot_of(scale, dots)
    for value in values:
        if value > 0 or not log:
            assert 0 <= dot_row(value, scale, dots) < dots
            assert 0 <= row_of(value) < dots
    assert len(ticks(scale, 5)) <= 5


def test_thousands_of_meters_are_drawn_partly_and_counted() -> None:
    many = {f"meter {number}": recorded.reading([0.5]) for number in range(19_999)}
    many["loss"] = recorded.reading([0.5])
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
    assert all("loss" in epoch.train and "loss" in epoch.valid for epoch in snapshot.epochs)
    assert all(len(epoch.valid) + len(epoch.scores) <= 2 * METERS_MAX for epoch in snapshot.epochs)
    assert f"20,000 meters are reported at once; {METERS_MAX} are shown, losses first" in snapshot.warnings
    extremes.draw(snapshot)


def _look(what: str, journals: extremes.Journals) -> None:
    try:
        extremes.look(journals)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error

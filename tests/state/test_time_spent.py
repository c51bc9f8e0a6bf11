"""Where the wall time of training went: sections sum to the wall time, stalls are not part of a section."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import T0
from tests.state.pod import STEP_S, reduced, shown, trained
from tests.state.pod import started as process_started
from tputui.state.time_spent import SECTIONS_MAX, TimeSpent
from tputui.telemetry import events as ev

SECONDS = st.floats(0, 1e5)


def reported(t: float, step: int, **sections_s: float) -> ev.ProgressReported:
    return ev.ProgressReported(
        t=t,
        epoch=1,
        epoch_step=step,
        step=step,
        step_s=0.1,
        examples_per_s=1.0,
        lr=0.1,
        report_steps=1,
        sections_s=sections_s,
    )


def started(t: float = T0) -> TimeSpent:
    spent = TimeSpent()
    spent.epoch_started(ev.EpochStarted(t=t, epoch=1, first_step=1))
    return spent


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS, st.booleans()), min_size=1, max_size=20), SECONDS)
def test_sections_sum_to_the_wall_time_whatever_is_reported(
    reports: list[tuple[float, float, float, bool]], after_s: float
) -> None:
    spent, t, sections = started(), T0, {"data": 0.0, "execute": 0.0}
    for step, (wall_s, data_s, execute_s, stalled) in enumerate(reports, start=1):
        t += wall_s
        sections = {"data": sections["data"] + data_s, "execute": sections["execute"] + execute_s}
        if stalled:
            spent.stalled(wall_s)
        spent.reported(reported(t, step, **sections), None)
    view = spent.view(t + after_s, "executing")
    if view is not None:
        assert math.fsum(view.sections_s.values()) == pytest.approx(view.until - view.began, abs=1e-3)


def test_a_stall_is_counted_once_and_not_in_the_section_that_contains_it() -> None:
    spent = started()
    spent.reported(reported(T0 + 10, 10, data=2.0, execute=8.0), None)
    spent.stalled(300.0)
    spent.reported(reported(T0 + 320, 20, data=4.0, execute=316.0), None)
    spent.reported(reported(T0 + 330, 30, data=6.0, execute=324.0), None)
    view = spent.view(T0 + 330, "executing")
    assert view is not None
    assert view.sections_s == pytest.approx({"data": 6.0, "execute": 24.0, "stall": 300.0, "other": 0.0})
    assert view.newest_s == pytest.approx({"data": 4.0, "execute": 16.0, "stall": 300.0})
    assert view.newest_wall_s == 320.0


def test_a_stall_that_goes_on_is_not_time_of_training() -> None:
    beats = [ev.HeartbeatSent(t=T0 + t, phase="executing", phase_s=0.0, step=40, epoch=1) for t in range(7, 200)]
    snapshot = shown(reduced({"worker-0": [*process_started(0, 1), *trained(0, T0 + 2, 1, 40, 1), *beats]}), T0 + 200)
    assert snapshot.condition == "stalled"
    assert snapshot.time_spent is not None
    spent = snapshot.time_spent.sections_s
    assert spent["stall"] == pytest.approx(200 - 2 - 40 * STEP_S)
    assert spent["execute"] == pytest.approx(40 * STEP_S)


def test_time_since_the_newest_report_belongs_to_the_phase_of_the_process() -> None:
    spent = started()
    spent.reported(reported(T0 + 10, 10, data=2.0, execute=8.0), 5.0)
    spent.reported(reported(T0 + 20, 25, data=4.0, execute=16.0), 11.0)
    view = spent.view(T0 + 140, "compiling")
    assert view is not None
    assert view.sections_s == pytest.approx({"data": 4.0, "execute": 16.0, "compile": 120.0, "other": 0.0})
    assert (view.newest_s, view.newest_steps, view.newest_execute_s) == ({"data": 2.0, "execute": 8.0}, 15, 6.0)


def test_a_loop_without_measured_execution_has_none_in_the_running_epoch() -> None:
    spent = started()
    spent.epoch_ended(
        ev.EpochEnded(
            t=T0 + 30, epoch=1, step=9, train={}, valid={}, train_s=30.0, valid_s=0.0, sections_s={"other": 30.0},
            lr=0.1, best=False,
        )
    )  # fmt: skip
    view = spent.view(T0 + 40, "executing")
    assert view is not None
    assert view.sections_s == pytest.approx({"other": 40.0})


def test_a_clock_that_was_set_back_makes_no_section_negative() -> None:
    spent = started()
    spent.reported(reported(T0 + 3200, 10, execute=3000.0, data=200.0), None)
    spent.reported(reported(T0 + 110, 20, execute=3001.0, data=200.0), None)
    view = spent.view(T0 + 110, "executing")
    assert view is not None
    assert min(view.sections_s.values()) >= 0
    assert math.fsum(view.sections_s.values()) == pytest.approx(110)


def test_names_and_sums_of_sections_are_bounded() -> None:
    spent = started()
    for epoch in range(1, 200):
        sections_s = {f"{epoch}-{number}": ev.T_MAX for number in range(SECTIONS_MAX)}
        spent.epoch_ended(
            ev.EpochEnded(
                t=T0, epoch=epoch, step=epoch, train={}, valid={}, train_s=1.0, valid_s=0.0, sections_s=sections_s,
                lr=0.1, best=False,
            )
        )  # fmt: skip
    assert len(spent.closed_s) == SECTIONS_MAX
    assert max(spent.closed_s.values()) <= ev.T_MAX

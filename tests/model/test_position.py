"""Where a step lies: told by reports, and between them by the pace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.test_view import run_until
from tests.recorded import STEP_S, T0
from tputui.model.position import (
    Course,
    next_mark,
    next_mark_after_step,
    previous_mark,
    previous_mark_before_step,
)
from tputui.model.snapshot import Mark, MarkKind

COURSE = Course(run_until(12))
"""Epochs of 22 steps of 64 examples begin at 4.7, 6.7 and 8.7 s; an evaluation follows each."""


def test_a_step_is_done_where_its_report_and_the_pace_say() -> None:
    at = COURSE.at(33)
    assert (at.step, at.epoch, at.examples) == (33, 1.5, 33 * 64)
    for step, seconds in ((0, 4.7), (1, 4.7 + STEP_S), (11, 5.25), (22, 5.8), (23, 6.7 + STEP_S), (66, 9.8)):
        assert COURSE.time_of(step) == pytest.approx(T0 + seconds, abs=1e-3)
    assert COURSE.time_of(67) is None


def test_a_moment_between_two_epochs_is_at_the_last_step_of_the_first() -> None:
    assert [COURSE.step_at(T0 + t) for t in (0, 4.6, 4.76, 5.25, 5.8, 6.5, 6.76, 99)] == [0, 0, 1, 11, 22, 22, 23, 66]


@given(st.integers(1, 66))
def test_steps_and_times_lead_back_to_each_other(step: int) -> None:
    t = COURSE.time_of(step)
    assert t is not None
    assert COURSE.step_at(t + 1e-4) == step


@given(st.integers(1, 66))
def test_steps_epochs_and_examples_lead_back_to_each_other(step: int) -> None:
    epoch, examples = COURSE.epoch_of(step), COURSE.examples_of(step)
    assert epoch is not None
    assert examples is not None
    assert COURSE.step_of_epoch(epoch) == step
    assert (COURSE.step_of_examples(examples), COURSE.step_of_examples(examples - 63)) == (step, step)


def test_before_a_plan_was_told_nothing_is_made_up() -> None:
    course = Course(run_until(1))
    at = course.at(5)
    assert (at.epoch, at.t, at.examples) == (None, None, None)
    assert (course.step_at(T0 + 5), course.step_of_epoch(1.0), course.step_of_examples(64.0)) == (0, None, None)


def test_marks_are_found_from_a_moment_and_from_a_step() -> None:
    marks = run_until(12).marks
    assert next_mark(marks, T0 + 4.7) == marks[1]
    first = next_mark(marks, 0.0, {"checkpoint"})
    assert first is not None
    assert (first.kind, first.step) == ("checkpoint", 22)
    assert next_mark(marks, T0 + 99) is None
    assert previous_mark(marks, marks[0].t) is None
    before = previous_mark(marks, T0 + 99, {"epoch"})
    assert before is not None
    assert before.step == 45
    after = next_mark_after_step(marks, 22, {"epoch"})
    assert after is not None
    assert after.step == 23
    assert previous_mark_before_step(marks, 1) is None


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["epoch", "best"])), max_size=20), st.floats(0, 100))
def test_next_and_previous_mark_miss_none(told: list[tuple[float, MarkKind]], t: float) -> None:
    marks = [Mark(t=when, step=1, kind=kind, text="", core=None) for when, kind in sorted(told)]
    after = [mark.t for mark in marks if mark.t > t and mark.kind == "best"]
    before = [mark.t for mark in marks if mark.t < t and mark.kind == "best"]
    found = next_mark(marks, t, ["best"]), previous_mark(marks, t, ["best"])
    assert [mark and mark.t for mark in found] == [after[0] if after else None, before[-1] if before else None]
